// Drives the connection manager as user space does: open, write() of commands
// in the ABI's own structures, poll. The engine runs on its own thread.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "catch.h"
#include "cm/cm_file.h"
#include "cm/cm_state.h"
#include "config/config.h"
#include "config/identity.h"
#include "engine/engine.h"
#include "model/device.h"
#include "uverbs/file.h"
#include "wire/directory.h"
#include "wire/fabric.h"

namespace cm_rig {

using namespace softhca;
using cm::EventType;

// One device of each link layer, in a fabric of this process. Set up before
// anything asks for the configuration.
struct Surroundings {
  std::string fabric = "cm-test-" + std::to_string(getpid());
  std::string file = "/tmp/" + fabric + ".json";
  pid_t owner = getpid();
  Surroundings() {
    std::FILE *f = std::fopen(file.c_str(), "w");
    std::fprintf(f,
                 "{ \"fabric\": \"%s\", \"devices\": ["
                 "{ \"name\": \"mlx5_0\", \"ports\": [ { \"link\": \"ib\" } ] },"
                 "{ \"name\": \"mlx5_1\", \"ports\": [ { \"link\": \"eth\" } ] } ] }",
                 fabric.c_str());
    std::fclose(f);
    unsetenv("SOFTHCA_FABRIC");
    setenv("SOFTHCA_CONFIG", file.c_str(), 1);
  }
  ~Surroundings() {
    if (getpid() != owner) return;
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    std::filesystem::remove_all(fabric_directory(fabric), ignored);
  }
};
inline Surroundings surroundings;

inline const char *const ib_address = "10.0.1.1";
inline const char *const eth_address = "10.1.1.1";

inline sockaddr_in6 ip(const char *text, u16 port = 0) {
  sockaddr_in6 out{};
  sockaddr_in in{};
  if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&out, &in, sizeof in);
  } else {
    REQUIRE(inet_pton(AF_INET6, text, &out.sin6_addr) == 1);
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(port);
  }
  return out;
}
inline u16 port_of(const sockaddr_in6 &a) { return ntohs(a.sin6_port); }

template <class T>
u64 address_of(T &t) {
  return reinterpret_cast<u64>(&t);
}

inline u64 next_uid() {
  static u64 uid = 0x1000;
  return ++uid;
}

// An open /dev/infiniband/rdma_cm. Commands return 0 or errno.
class Channel {
 public:
  Channel() : fd_(cm_open(O_CLOEXEC)) { REQUIRE(fd_ >= 0); }
  ~Channel() { shut(); }
  Channel(const Channel &) = delete;
  int fd() const { return fd_; }
  void shut() {
    if (fd_ < 0) return;
    cm_close(fd_);
    close(fd_);
    fd_ = -1;
  }

  int raw(const void *bytes, size_t length) {
    errno = 0;
    return cm_write(fd_, bytes, length) == static_cast<ssize_t>(length) ? 0 : errno;
  }
  template <class Body>
  int command(u32 number, const Body &body, u32 out = 0, u32 in = sizeof(Body)) {
    struct {
      rdma_ucm_cmd_hdr header;
      Body body;
    } message{{number, static_cast<u16>(in), static_cast<u16>(out)}, body};
    static_assert(sizeof message == sizeof(rdma_ucm_cmd_hdr) + sizeof(Body));
    return raw(&message, sizeof(rdma_ucm_cmd_hdr) + in);
  }
  template <class Body, class Resp>
  int command(u32 number, Body body, Resp &resp) {
    body.response = address_of(resp);
    return command(number, body, sizeof resp);
  }

  // Waits for an event; none within 5 seconds: a failure.
  rdma_ucm_event_resp event(EventType expected) {
    pollfd p{fd_, POLLIN, 0};
    REQUIRE(poll(&p, 1, 5000) == 1);
    rdma_ucm_event_resp resp{};
    REQUIRE(command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, resp) == 0);
    REQUIRE(static_cast<EventType>(resp.event) == expected);
    return resp;
  }
  bool quiet(int ms = 0) {
    pollfd p{fd_, POLLIN, 0};
    return poll(&p, 1, ms) == 0;
  }

 private:
  int fd_;
};

class Id {
 public:
  explicit Id(Channel &c, u16 ps = RDMA_PS_TCP, u8 qp_type = 0) : uid(next_uid()), channel_(&c) {
    rdma_ucm_create_id cmd{};
    cmd.uid = uid;
    cmd.ps = ps;
    cmd.qp_type = qp_type;
    rdma_ucm_create_id_resp resp{};
    REQUIRE(c.command(RDMA_USER_CM_CMD_CREATE_ID, cmd, resp) == 0);
    number = resp.id;
  }
  // One that a connection request has made.
  static Id existing(Channel &c, u32 number) { return Id(&c, number); }

  // Returns events_reported.
  u32 destroy() {
    rdma_ucm_destroy_id cmd{};
    cmd.id = number;
    rdma_ucm_destroy_id_resp resp{};
    REQUIRE(channel_->command(RDMA_USER_CM_CMD_DESTROY_ID, cmd, resp) == 0);
    return resp.events_reported;
  }
  int bind(const sockaddr_in6 &a) {
    rdma_ucm_bind_ip cmd{};
    cmd.id = number;
    cmd.addr = a;
    return channel_->command(RDMA_USER_CM_CMD_BIND_IP, cmd);
  }
  int resolve_addr(const sockaddr_in6 &to, const sockaddr_in6 &from = {}) {
    rdma_ucm_resolve_ip cmd{};
    cmd.id = number;
    cmd.dst_addr = to;
    cmd.src_addr = from;
    cmd.timeout_ms = 1000;
    return channel_->command(RDMA_USER_CM_CMD_RESOLVE_IP, cmd);
  }
  int resolve_route() {
    return channel_->command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{number, 1000});
  }
  // Both, with their events.
  void resolve(const sockaddr_in6 &to) {
    REQUIRE(resolve_addr(to) == 0);
    channel_->event(EventType::addr_resolved);
    REQUIRE(resolve_route() == 0);
    channel_->event(EventType::route_resolved);
  }
  int listen(i32 backlog = 0) {
    return channel_->command(RDMA_USER_CM_CMD_LISTEN,
                             rdma_ucm_listen{number, static_cast<u32>(backlog)});
  }
  int connect(const rdma_ucm_conn_param &p, const rdma_ucm_ece &ece = {}) {
    rdma_ucm_connect cmd{};
    cmd.id = number;
    cmd.conn_param = p;
    cmd.ece = ece;
    return channel_->command(RDMA_USER_CM_CMD_CONNECT, cmd);
  }
  int accept(const rdma_ucm_conn_param &p, const rdma_ucm_ece &ece = {}) {
    rdma_ucm_accept cmd{};
    cmd.id = number;
    cmd.uid = uid;
    cmd.conn_param = p;
    cmd.ece = ece;
    return channel_->command(RDMA_USER_CM_CMD_ACCEPT, cmd);
  }
  int establish() { return accept(rdma_ucm_conn_param{}); }
  int reject(const std::string &data, u8 reason = 0) {
    rdma_ucm_reject cmd{};
    cmd.id = number;
    cmd.reason = reason;
    cmd.private_data_len = static_cast<u8>(data.size());
    std::memcpy(cmd.private_data, data.data(), data.size());
    return channel_->command(RDMA_USER_CM_CMD_REJECT, cmd);
  }
  int disconnect() {
    return channel_->command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{number});
  }
  int notify(u32 event) {
    return channel_->command(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{number, event});
  }
  template <class T>
  int set(u32 name, T value, u32 level = RDMA_OPTION_ID) {
    rdma_ucm_set_option cmd{};
    cmd.optval = address_of(value);
    cmd.id = number;
    cmd.level = level;
    cmd.optname = name;
    cmd.optlen = sizeof value;
    return channel_->command(RDMA_USER_CM_CMD_SET_OPTION, cmd);
  }
  rdma_ucm_query_route_resp route() {
    rdma_ucm_query cmd{};
    cmd.id = number;
    rdma_ucm_query_route_resp resp{};
    REQUIRE(channel_->command(RDMA_USER_CM_CMD_QUERY_ROUTE, cmd, resp) == 0);
    return resp;
  }
  rdma_ucm_query_addr_resp query(u32 option) {
    rdma_ucm_query cmd{};
    cmd.id = number;
    cmd.option = option;
    rdma_ucm_query_addr_resp resp{};
    REQUIRE(channel_->command(RDMA_USER_CM_CMD_QUERY, cmd, resp) == 0);
    return resp;
  }
  int init_qp_attr(u32 state, ib_uverbs_qp_attr &resp) {
    rdma_ucm_init_qp_attr cmd{};
    cmd.id = number;
    cmd.qp_state = state;
    return channel_->command(RDMA_USER_CM_CMD_INIT_QP_ATTR, cmd, resp);
  }
  u16 port() { return port_of(route().src_addr); }

  u32 number = 0;
  u64 uid;

 private:
  Id(Channel *c, u32 n) : number(n), uid(next_uid()), channel_(c) {}
  Channel *channel_;
};

inline rdma_ucm_conn_param parameters(u32 qpn, const std::string &data = {}) {
  rdma_ucm_conn_param p{};
  p.valid = 1;
  p.qp_num = qpn;
  p.responder_resources = 4;
  p.initiator_depth = 2;
  p.retry_count = 9;  // more than three bits hold
  p.rnr_retry_count = 5;
  p.private_data_len = static_cast<u8>(data.size());
  std::memcpy(p.private_data, data.data(), data.size());
  return p;
}

inline std::string text(const u8 *data) { return reinterpret_cast<const char *>(data); }

// A process forked as the preload layer's handlers do it, with pipes both ways.
class Process {
 public:
  explicit Process(const std::function<int(Process &)> &body) {
    if (pipe(up_) != 0 || pipe(down_) != 0) std::abort();
    process().mutex.lock();
    pid_ = fork();
    if (pid_ == 0) {
      new (&process().mutex) std::mutex;
      {
        InsideDevice inside;
        uverbs_forked();
        engine_forget();
        cm_forked();
      }
      alarm(60);  // never outlives a failed test by much
      _exit(body(*this));
    }
    process().mutex.unlock();
  }
  ~Process() {
    if (pid_ > 0) end(SIGKILL);
    for (const int fd : {up_[0], up_[1], down_[0], down_[1]}) close(fd);
  }
  Process(const Process &) = delete;

  pid_t pid() const { return pid_; }
  void end(int signal) {
    kill(pid_, signal);
    kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void say(u32 v) { put(up_[1], v); }  // child
  u32 await() { return get(down_[0]); }
  void notify(u32 v) { put(down_[1], v); }  // parent
  u32 hear() { return get(up_[0]); }

 private:
  static void put(int fd, u32 v) {
    if (write(fd, &v, sizeof v) != sizeof v) std::abort();
  }
  static u32 get(int fd) {
    u32 v = ~0u;
    return read(fd, &v, sizeof v) == sizeof v ? v : ~0u;
  }
  int up_[2], down_[2];
  pid_t pid_ = -1;
};

}  // namespace cm_rig
