// Messages per second and round trips on the software HCA, with more and more
// idle objects beside the QP that works. Two processes; plain rdma-core API.
//
//   bench [objects ...]      default: 0 100 1000 10000
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr uint64_t dc_key = 0xbe7c4;
constexpr uint32_t qkey = 0x11111111;
constexpr int depth = 64;
constexpr int windows = 25;
constexpr int repeats = 3;

[[noreturn]] void die(const char *what) {
  std::fprintf(stderr, "bench: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
template <class T>
T *need(T *p, const char *what) {
  if (p == nullptr) die(what);
  return p;
}
void need0(int r, const char *what) {
  if (r != 0) {
    errno = r > 0 ? r : errno;
    die(what);
  }
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

enum class Transport { rc, ud, dc };
const char *name_of(Transport t) {
  return t == Transport::rc ? "RC" : t == Transport::ud ? "UD" : "DC";
}

struct Address {
  uint32_t qpn, dctn;
  uint16_t lid;
  uint8_t gid[16];
};

class Endpoint {
 public:
  Endpoint(Transport t, uint32_t bytes, int objects, int socket) : transport_(t), bytes_(bytes) {
    ibv_device **list = need(ibv_get_device_list(nullptr), "device list");
    context_ = need(ibv_open_device(need(list[0], "no device")), "open");
    ibv_free_device_list(list);
    need0(ibv_query_port(context_, 1, &port_), "port");
    pd_ = need(ibv_alloc_pd(context_), "PD");
    cq_ = need(ibv_create_cq(context_, 4 * depth, nullptr, nullptr, 0), "CQ");
    buffer_.resize(2 * (bytes + 40) + 8192);
    mr_ = need(ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE), "MR");
    ibv_srq_init_attr srq{nullptr, {4 * depth, 1, 0}};
    srq_ = need(ibv_create_srq(pd_, &srq), "SRQ");
    make_qps();
    Address mine{qp_->qp_num, 0, port_.lid, {}};
    ibv_gid gid;
    need0(ibv_query_gid(context_, 1, 0, &gid), "GID");
    std::memcpy(mine.gid, gid.raw, 16);
    if (t == Transport::dc) {
      init(dct_, t);
      rtr(dct_, t, mine);
      mine.dctn = dct_->qp_num;
    }
    if (write(socket, &mine, sizeof mine) != sizeof mine ||
        recv(socket, &peer_, sizeof peer_, MSG_WAITALL) != sizeof peer_)
      die("socket");
    idle_objects(objects, peer_);
    init(qp_, t);
    rtr(qp_, t, peer_);
    rts(qp_, t);
    if (t != Transport::rc) {
      ibv_ah_attr ah = path(peer_);
      ah_ = need(ibv_create_ah(pd_, &ah), "AH");
    }
    char ready = 1;
    for (int i = 0; i < 2 * depth; ++i) post_receive();
    if (write(socket, &ready, 1) != 1 || read(socket, &ready, 1) != 1) die("socket");
  }

  void post_receive() {
    ibv_sge sge{reinterpret_cast<uintptr_t>(buffer_.data()) + bytes_ + 4096, bytes_ + 40,
                mr_->lkey};
    ibv_recv_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    need0(ibv_post_srq_recv(srq_, &wr, &bad), "post receive");
  }

  void post_send() {
    if (transport_ == Transport::dc) {
      ibv_wr_start(qpx_);
      qpx_->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_send(qpx_);
      mlx5dv_wr_set_dc_addr(dvx_, ah_, peer_.dctn, dc_key);
      ibv_wr_set_sge(qpx_, mr_->lkey, reinterpret_cast<uintptr_t>(buffer_.data()), bytes_);
      need0(ibv_wr_complete(qpx_), "post send");
      return;
    }
    ibv_sge sge{reinterpret_cast<uintptr_t>(buffer_.data()), bytes_, mr_->lkey};
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (transport_ == Transport::ud) {
      wr.wr.ud.ah = ah_;
      wr.wr.ud.remote_qpn = peer_.qpn;
      wr.wr.ud.remote_qkey = qkey;
    }
    need0(ibv_post_send(qp_, &wr, &bad), "post send");
  }

  // Polls until `sends` and `receives` completions have come; receives are
  // posted again. What comes early (the peer's next message may overtake the
  // completion of a send) counts for the next call.
  void wait(int sends, int receives) {
    ibv_wc wc[16];
    sends_due_ += sends;
    receives_due_ += receives;
    while (sends_due_ > 0 || receives_due_ > 0) {
      const int n = ibv_poll_cq(cq_, 16, wc);
      for (int i = 0; i < n; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) {
          std::fprintf(stderr, "bench: completion: %s\n", ibv_wc_status_str(wc[i].status));
          std::exit(1);
        }
        if (wc[i].opcode == IBV_WC_RECV) {
          --receives_due_;
          post_receive();
        } else {
          --sends_due_;
        }
      }
    }
  }

 private:
  // Connected, nothing posted.
  void idle_objects(int n, const Address &to) {
    for (int i = 0; i < n; ++i) {
      ibv_qp_init_attr a{};
      a.qp_type = IBV_QPT_RC;
      a.send_cq = a.recv_cq = cq_;
      a.srq = srq_;
      a.cap.max_send_wr = 1;
      a.cap.max_send_sge = 1;
      idle_qps_.push_back(need(ibv_create_qp(pd_, &a), "idle QP"));
      init(idle_qps_.back(), Transport::rc);
      rtr(idle_qps_.back(), Transport::rc, to);
      rts(idle_qps_.back(), Transport::rc);
      idle_mrs_.push_back(
          need(ibv_reg_mr(pd_, buffer_.data(), 64, IBV_ACCESS_LOCAL_WRITE), "idle MR"));
    }
  }

  void make_qps() {
    if (transport_ != Transport::dc) {
      ibv_qp_init_attr a{};
      a.qp_type = transport_ == Transport::rc ? IBV_QPT_RC : IBV_QPT_UD;
      a.send_cq = a.recv_cq = cq_;
      a.srq = srq_;
      a.cap.max_send_wr = depth;
      a.cap.max_send_sge = 1;
      qp_ = need(ibv_create_qp(pd_, &a), "QP");
      return;
    }
    ibv_qp_init_attr_ex a{};
    a.qp_type = IBV_QPT_DRIVER;
    a.send_cq = a.recv_cq = cq_;
    a.pd = pd_;
    a.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    a.send_ops_flags = IBV_QP_EX_WITH_SEND;
    a.cap.max_send_wr = depth;
    a.cap.max_send_sge = 1;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    qp_ = need(mlx5dv_create_qp(context_, &a, &dv), "DCI");
    qpx_ = ibv_qp_to_qp_ex(qp_);
    dvx_ = mlx5dv_qp_ex_from_ibv_qp_ex(qpx_);
    a.comp_mask = IBV_QP_INIT_ATTR_PD;
    a.send_ops_flags = 0;
    a.cap = {};
    a.srq = srq_;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    dv.dc_init_attr.dct_access_key = dc_key;
    dct_ = need(mlx5dv_create_qp(context_, &a, &dv), "DCT");
  }

  ibv_ah_attr path(const Address &to) const {
    ibv_ah_attr a{};
    a.dlid = to.lid;
    a.port_num = 1;
    a.is_global = port_.link_layer == IBV_LINK_LAYER_ETHERNET;
    std::memcpy(a.grh.dgid.raw, to.gid, 16);
    a.grh.hop_limit = 1;
    return a;
  }

  void init(ibv_qp *qp, Transport transport) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qkey = qkey;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (transport == Transport::ud) mask |= IBV_QP_QKEY;
    if (transport == Transport::rc || qp == dct_) mask |= IBV_QP_ACCESS_FLAGS;
    need0(ibv_modify_qp(qp, &a, mask), "INIT");
  }
  void rtr(ibv_qp *qp, Transport transport, const Address &to) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = port_.active_mtu;
    a.dest_qp_num = to.qpn;
    a.min_rnr_timer = 1;
    a.max_dest_rd_atomic = 1;
    a.ah_attr = path(to);
    int mask = IBV_QP_STATE;
    if (transport == Transport::rc)
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (transport == Transport::dc) mask |= IBV_QP_PATH_MTU;
    if (qp == dct_) mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_AV;
    need0(ibv_modify_qp(qp, &a, mask), "RTR");
  }
  void rts(ibv_qp *qp, Transport transport) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (transport != Transport::ud)
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    need0(ibv_modify_qp(qp, &a, mask), "RTS");
  }

  Transport transport_;
  uint32_t bytes_;
  ibv_context *context_;
  ibv_port_attr port_{};
  ibv_pd *pd_;
  ibv_cq *cq_;
  ibv_srq *srq_;
  ibv_mr *mr_;
  ibv_qp *qp_ = nullptr, *dct_ = nullptr;
  ibv_qp_ex *qpx_ = nullptr;
  mlx5dv_qp_ex *dvx_ = nullptr;
  ibv_ah *ah_ = nullptr;
  Address peer_{};
  int sends_due_ = 0, receives_due_ = 0;
  std::vector<char> buffer_;
  std::vector<ibv_qp *> idle_qps_;
  std::vector<ibv_mr *> idle_mrs_;
};

struct Result {
  double round_trip_us, messages_per_s;
};

// Both sides run the same schedule: ping-pongs, then a stream one way in
// batches that the other side answers with one message.
Result measure(Endpoint &e, bool client, uint32_t bytes) {
  const int pings = bytes > 4096 ? 40 : 160, batches = bytes > 4096 ? 2 : 12;
  auto ping = [&](int n) {
    for (int i = 0; i < n; ++i) {
      if (client) {
        e.post_send();
        e.wait(1, 1);
      } else {
        e.wait(0, 1);
        e.post_send();
        e.wait(1, 0);
      }
    }
  };
  auto stream = [&](int n) {
    for (int b = 0; b < n; ++b) {
      if (client) {
        for (int i = 0; i < depth; ++i) e.post_send();
        e.wait(depth, 1);
      } else {
        e.wait(0, depth);
        e.post_send();
        e.wait(1, 0);
      }
    }
  };
  ping(200);
  // The best of many short windows: other load of the machine only ever adds.
  Result best{1e9, 0};
  for (int window = 0; window < windows; ++window) {
    double t = now();
    ping(pings);
    best.round_trip_us = std::min(best.round_trip_us, (now() - t) / pings * 1e6);
    t = now();
    stream(batches);
    best.messages_per_s = std::max(best.messages_per_s, batches * depth / (now() - t));
  }
  return best;
}

Result run(Transport t, uint32_t bytes, int objects) {
  int s[2], result[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) != 0 || pipe(result) != 0) die("socketpair");
  pid_t children[2];
  for (int side = 0; side < 2; ++side) {
    if ((children[side] = fork()) != 0) continue;
    Endpoint e(t, bytes, objects, s[side]);
    const Result r = measure(e, side == 0, bytes);
    if (side == 0 && write(result[1], &r, sizeof r) != sizeof r) die("pipe");
    char done = 1;
    if (write(s[side], &done, 1) != 1 || read(s[side], &done, 1) != 1) die("socket");
    _exit(0);
  }
  for (int fd : {s[0], s[1], result[1]}) close(fd);
  for (int left = 2; left > 0; --left) {
    int status;
    const pid_t gone = wait(&status);
    if (gone > 0 && status == 0) continue;
    // Its peer would wait for ever.
    for (pid_t c : children)
      if (c != gone) kill(c, SIGKILL);
    std::exit(1);
  }
  Result r{};
  if (read(result[0], &r, sizeof r) != sizeof r) std::exit(1);
  close(result[0]);
  return r;
}

}  // namespace

int main(int argc, char **argv) {
  std::vector<int> sweep;
  for (int i = 1; i < argc; ++i) sweep.push_back(std::atoi(argv[i]));
  if (sweep.empty()) sweep = {0, 100, 1000, 10000};
  std::printf("%-4s %8s %10s %14s %8s %14s %8s\n", "", "bytes", "idle QP+MR", "round trip us",
              "ratio", "messages/s", "ratio");
  std::fflush(stdout);
  double worst = 1;
  for (Transport t : {Transport::rc, Transport::ud, Transport::dc})
    for (uint32_t bytes : {64u, t == Transport::ud ? 4096u : 65536u}) {
      // In turn, for the same reason: load that lasts hits all of them.
      std::vector<Result> results(sweep.size(), {1e9, 0});
      for (int repeat = 0; repeat < repeats; ++repeat)
        for (size_t i = 0; i < sweep.size(); ++i) {
          const Result r = run(t, bytes, sweep[i]);
          results[i].round_trip_us = std::min(results[i].round_trip_us, r.round_trip_us);
          results[i].messages_per_s = std::max(results[i].messages_per_s, r.messages_per_s);
        }
      const Result &base = results[0];
      for (size_t i = 0; i < sweep.size(); ++i) {
        const Result &r = results[i];
        const double slower = r.round_trip_us / base.round_trip_us;
        worst = std::max(worst, slower);
        std::printf("%-4s %8u %10d %14.2f %7.2fx %14.0f %7.2fx\n", name_of(t), bytes, sweep[i],
                    r.round_trip_us, slower, r.messages_per_s,
                    r.messages_per_s / base.messages_per_s);
        std::fflush(stdout);
      }
    }
  std::printf("slowest round trip with idle objects: %.2fx that without\n", worst);
}
