#include "translate/queue/lane/extended_poll.h"

#include "base/log.h"
#include "base/real.h"
#include "translate/queue/lane/hooks.h"
#include "translate/queue/operation.h"

#include <cerrno>

namespace ibvexp::lane {

namespace {

CqState *state_of(ibv_cq_ex *cq) { return find_cq(find_state(cq->context), ibv_cq_ex_to_cq(cq)); }

// Settles the completion that the queue stands at.
void settle_current(ibv_cq_ex *cq, ExtendedPoll &of) {
  ibv_wc wc{};
  wc.wr_id = cq->wr_id;
  wc.status = cq->status;
  wc.qp_num = of.read_qp_num(cq);
  if (wc.status == IBV_WC_SUCCESS) {
    wc.opcode = of.read_opcode(cq);
    if (of.read_byte_len != nullptr) wc.byte_len = of.read_byte_len(cq);
  }
  settle(*find_state(cq->context), wc);
  of.opcode = wc.opcode;
  of.byte_len = wc.byte_len;
  of.settled = true;
}

int start_poll(ibv_cq_ex *cq, ibv_poll_cq_attr *attr) {
  CqState *own = state_of(cq);
  if (own == nullptr) [[unlikely]]
    return EINVAL;  // being destroyed
  const int error = own->extended.start_poll(cq, attr);
  if (error == 0) settle_current(cq, own->extended);
  return error;
}

int next_poll(ibv_cq_ex *cq) {
  ExtendedPoll &of = state_of(cq)->extended;
  const int error = of.next_poll(cq);
  if (error == 0) settle_current(cq, of);
  return error;
}

ibv_wc_opcode read_opcode(ibv_cq_ex *cq) {
  const ExtendedPoll &of = state_of(cq)->extended;
  return of.settled ? of.opcode : of.read_opcode(cq);
}

std::uint32_t read_byte_len(ibv_cq_ex *cq) {
  const ExtendedPoll &of = state_of(cq)->extended;
  return of.settled ? of.byte_len : of.read_byte_len(cq);
}

// A queue has a reader of the queue pair's number only if its creator wanted one.
// They are all alike: that of a queue which does.
decltype(ibv_cq_ex::read_qp_num) reader_of_numbers(ibv_context *context) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 1;
  attr.wc_flags = IBV_WC_EX_WITH_QP_NUM;
  const int kept = errno;
  ibv_cq_ex *helper = ibv_create_cq_ex(context, &attr);
  const auto found = helper != nullptr ? helper->read_qp_num : nullptr;
  if (helper != nullptr) real().ibv_destroy_cq(ibv_cq_ex_to_cq(helper));
  errno = kept;
  return found;
}

}  // namespace

void install(ContextState &state, ibv_cq *cq) {
  if (cq == nullptr) return;
  auto *ex = reinterpret_cast<ibv_cq_ex *>(cq);
  if (ex->start_poll == nullptr || ex->start_poll == start_poll) return;
  const auto read_qp_num =
      ex->read_qp_num != nullptr ? ex->read_qp_num : reader_of_numbers(state.context);
  if (read_qp_num == nullptr) {
    log(LogLevel::warn, "CQ with handle %u: what ibv_start_poll() takes is not counted",
        cq->handle);
    return;
  }
  const MutexGuard guard(state.mutex);
  CqState &own = need_cq(state, cq);
  if (own.ring.ours || ex->start_poll == start_poll) return;
  own.extended = {ex->start_poll, ex->next_poll, ex->read_opcode, ex->read_byte_len, read_qp_num};
  if (ex->read_byte_len != nullptr) replace(ex->read_byte_len, &read_byte_len);
  replace(ex->read_opcode, &read_opcode);
  replace(ex->next_poll, &next_poll);
  replace(ex->start_poll, &start_poll);
}

}  // namespace ibvexp::lane
