#include "translate/queue/lane/post.h"

#include "translate/queue/lane/builder.h"
#include "translate/queue/lane/special.h"

#include "translate/queue/send_refusal.h"

#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

namespace ibvexp::lane {

namespace {

// What is between wr_start and wr_complete: holds the lock of the send queue.
class Batch {
 public:
  explicit Batch(Lane &lane) : lane_(lane) {}
  Batch(const Batch &) = delete;
  Batch &operator=(const Batch &) = delete;
  ~Batch() { close(); }

  void open() {
    if (open_) return;
    ibv_wr_start(lane_.ex);
    open_ = true;
    first_ = lane_.log.position();
  }

  std::uint32_t size() const { return count_; }
  bool full() const { return lane_.log.full(); }

  void record(const ibv_exp_send_wr &wr, Meaning meaning) {
    const bool signaled = lane_.signal_all || (wr.exp_send_flags & IBV_EXP_SEND_SIGNALED) != 0;
    lane_.log.push(wr.wr_id, signaled, meaning);
    ++count_;
  }

  // 0, or an errno value: then nothing of the batch was posted. What was judged
  // before fails for the state of the queue pair only.
  int close() {
    if (!open_) return 0;
    open_ = false;
    const std::uint32_t count = std::exchange(count_, 0);
    if (count == 0) {
      ibv_wr_abort(lane_.ex);
      return 0;
    }
    const int error = ibv_wr_complete(lane_.ex);
    if (error != 0) [[unlikely]]
      lane_.log.cancel_since(first_, count);
    return error < 0 ? -error : error;
  }

 private:
  Lane &lane_;
  bool open_ = false;
  std::uint32_t first_ = 0, count_ = 0;
};

void post_raw(Lane &lane, const ibv_exp_send_wr &wr, Special &special) {
  std::uint8_t flags = 0;
  if (lane.signal_all || (wr.exp_send_flags & IBV_EXP_SEND_SIGNALED) != 0)
    flags |= MLX5_WQE_CTRL_CQ_UPDATE;
  if ((wr.exp_send_flags & IBV_EXP_SEND_SOLICITED) != 0) flags |= MLX5_WQE_CTRL_SOLICITED;
  if ((wr.exp_send_flags & IBV_EXP_SEND_FENCE) != 0) flags |= MLX5_WQE_CTRL_FENCE;
  else if (lane.fence_raw) flags |= MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
  lane.fence_raw = lane.fence_built = special.fence;
  lane.ex->wr_id = wr.wr_id;
  lane.ex->wr_flags = 0;
  mlx5dv_wr_raw_wqe(lane.dv, special.wqe.finish(lane.qp_num(), flags));
}

// 0, or why the request is refused.
int add_special(Lane &lane, const ibv_exp_send_wr &wr, Batch &batch) {
  Special special;
  if (const int fault = write_special(lane, wr, special); fault != 0) return fault;
  batch.open();
  if (batch.full()) return ENOMEM;
  post_raw(lane, wr, special);
  batch.record(wr, special.meaning);
  return 0;
}

int add_basic(Lane &lane, const ibv_exp_send_wr &wr, ibv_wr_opcode opcode, Batch &batch) {
  if (const int fault = judge(lane, wr, opcode); fault != 0) [[unlikely]]
    return fault;
  batch.open();
  if (batch.full()) [[unlikely]]
    return ENOMEM;
  build(lane, wr, opcode);
  batch.record(wr, {});
  return 0;
}

// The request in the legacy layout.
const ibv_exp_send_wr &as_exp(const ibv_exp_send_wr &wr, ibv_exp_send_wr &) { return wr; }

const ibv_exp_send_wr &as_exp(const ibv_send_wr &wr, ibv_exp_send_wr &scratch) {
  // The two coincide up to the flags' place and the window.
  std::memcpy(static_cast<void *>(&scratch), &wr, offsetof(ibv_exp_send_wr, task));
  scratch.exp_send_flags = translate::to_modern_send_flags(wr.send_flags);
  if (wr.opcode == IBV_WR_BIND_MW) {
    scratch.bind_mw.mw = wr.bind_mw.mw;
    scratch.bind_mw.rkey = wr.bind_mw.rkey;
    scratch.bind_mw.bind_info.mr = wr.bind_mw.bind_info.mr;
    scratch.bind_mw.bind_info.addr = wr.bind_mw.bind_info.addr;
    scratch.bind_mw.bind_info.length = wr.bind_mw.bind_info.length;
    scratch.bind_mw.bind_info.exp_mw_access_flags =
        translate::to_exp_window_access(wr.bind_mw.bind_info.mw_access_flags);
  }
  return scratch;
}

template <class Wr>
int post_chain(Lane &lane, Wr *wr, std::uint64_t refused, Wr *&bad) {
  // libmlx5 looks at the state itself since release 40.
  if (wr != nullptr && lane.ex->qp_base.state < IBV_QPS_RTS) [[unlikely]] {
    bad = wr;
    return EINVAL;
  }
  const ibv_qp_type type = lane.qp_type();
  Batch batch(lane);
  Wr *first = nullptr;  // of the batch

  for (; wr != nullptr; wr = wr->next) {
    ibv_exp_send_wr scratch;
    const ibv_exp_send_wr &exp = as_exp(*wr, scratch);
    const translate::Opcode opcode = translate::to_modern_opcode(exp.exp_opcode, type);
    int fault = 0;
    if ((exp.exp_send_flags & refused) != 0) [[unlikely]] {
      fault = translate::refuse_send_flags(exp.exp_send_flags, refused);
    } else if (opcode.lane == translate::Lane::other && std::is_same_v<Wr, ibv_send_wr>) {
      fault = EINVAL;
    } else if (opcode.lane == translate::Lane::other || binds_type_1(exp)) {
      // Written without the lock: it may touch a lot of memory.
      if (const int error = batch.close(); error != 0) {
        bad = first;
        return error;
      }
      fault = add_special(lane, exp, batch);
    } else if (opcode.lane == translate::Lane::illegal) [[unlikely]] {
      fault = EINVAL;
    } else {
      fault = add_basic(lane, exp, opcode.modern, batch);
    }

    if (fault != 0) [[unlikely]] {
      const int error = batch.close();
      bad = error != 0 ? first : wr;
      return error != 0 ? error : fault;
    }
    if (batch.size() == 1) first = wr;
  }

  const int error = batch.close();
  if (error != 0) [[unlikely]]
    bad = first;
  return error;
}

}  // namespace

int post(Lane &lane, ibv_exp_send_wr *wr, std::uint64_t refused, ibv_exp_send_wr *&bad) {
  return post_chain(lane, wr, refused, bad);
}

int post(Lane &lane, ibv_send_wr *wr, ibv_send_wr *&bad) {
  if (lane.initiator) {
    bad = wr;
    return EINVAL;
  }
  return post_chain(lane, wr, 0, bad);
}

}  // namespace ibvexp::lane
