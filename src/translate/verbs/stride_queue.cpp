#include "translate/verbs/stride_queue.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/owned.h"
#include "base/real.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/srq_convert.h"
#include "translate/queue/driven.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/command_box.h"
#include "translate/verbs/cross_channel.h"
#include "translate/verbs/hca_caps.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_srq;
constexpr auto strides_row = FeatureId::IBV_EXP_CREATE_SRQ_MP_WR;

// Pages around memory of libmlx5's, for a command.
struct Place {
  std::uint32_t pages = 0;
  std::uint64_t offset = 0;
};
Result<Place> register_pages(ibv_context *context, void *begin, std::size_t bytes,
                             mlx5dv_devx_umem *&kept) {
  constexpr std::uintptr_t page = 4096;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = address & ~(page - 1),
                       end = (address + bytes + page - 1) & ~(page - 1);
  const KeepErrno keep;
  kept = mlx5dv_devx_umem_reg(context, reinterpret_cast<void *>(first), end - first,
                              IBV_ACCESS_LOCAL_WRITE);
  if (kept == nullptr) return keep.reason();
  return Place{kept->umem_id, address - first};
}

// Places of the ring and of the doorbell record.
struct Places {
  Place ring, record;
};
Result<Places> register_rings(ibv_context *context, queue::OnRings &made, void *ring,
                              std::size_t bytes, void *record) {
  const auto of_ring = register_pages(context, ring, bytes, made.ring);
  if (!of_ring) return of_ring.failure();
  const auto of_record = register_pages(context, record, 8, made.record);
  if (!of_record) return of_record.failure();
  return Places{of_ring.value(), of_record.value()};
}

std::uint32_t log2_of(std::uint32_t n) {
  return n == 0 ? 0 : static_cast<std::uint32_t>(std::bit_width(n)) - 1;
}

// CREATE_XRQ: tag matching, a list of entries with strides.
Result<void> create_on(ibv_context *context, const mlx5dv_srq &facts, std::uint32_t cqn,
                       std::uint32_t user_index, const ibv_exp_create_srq_attr &attr,
                       queue::OnRings &made) {
  constexpr std::uint32_t create_xrq = 0x717, matching = 1, rendezvous = 1, striding_list = 2;
  constexpr std::uint32_t most_usual_log = 9;
  constexpr std::size_t xrqc = 128, wq = xrqc + 1024;
  const std::uint32_t entries = facts.tail + 1;
  const auto places =
      register_rings(context, made, facts.buf, std::size_t{entries} * facts.stride, facts.dbrec);
  if (!places) return places.failure();
  CommandBox<16 + 128 + 192> in(create_xrq);
  in.put(xrqc + 20, 4, matching);
  in.put(xrqc + 28, 4, rendezvous);
  in.put(xrqc + 40, 24, user_index);
  in.put(xrqc + 72, 24, cqn);
  in.put(xrqc + 256, 4, log2_of(attr.tm_cap.max_num_tags) + 1);
  in.put(wq, 4, striding_list);
  in.put(wq + 72, 24, facts_of(attr.pd).pdn);
  in.put_64(wq + 128, places.value().record.offset);
  in.put(wq + 268, 4, log2_of(facts.stride));
  in.put(wq + 283, 5, log2_of(entries));
  in.put(wq + 288, 2, 3);  // both are in registered pages
  in.put(wq + 308, 4, std::uint32_t{attr.mp_wr.log_num_of_strides} - most_usual_log);
  in.put(wq + 317, 3, std::uint32_t{attr.mp_wr.log_stride_size} - StrideLimits::least_bytes);
  in.put(wq + 320, 32, places.value().record.pages);
  in.put(wq + 352, 32, places.value().ring.pages);
  in.put_64(wq + 384, places.value().ring.offset);
  return create_object(context, in, made.object, made.number);
}

Result<void> check(const ibv_exp_create_srq_attr &attr) {
  const ibv_exp_mp_wr &strides = attr.mp_wr;
  if (strides.log_num_of_strides < StrideLimits::least_count ||
      strides.log_num_of_strides > StrideLimits::most_count)
    return invalid(creating, "mp_wr.log_num_of_strides", strides.log_num_of_strides,
                   "must be 3 to 16");
  if (strides.log_stride_size < StrideLimits::least_bytes ||
      strides.log_stride_size > StrideLimits::most_bytes)
    return invalid(creating, "mp_wr.log_stride_size", strides.log_stride_size, "must be 6 to 13");
  return {};
}

}  // namespace

Result<ibv_srq *> create_stride_queue(ContextState &state, ibv_exp_create_srq_attr &attr) {
  if (const auto checked = check(attr); !checked) return checked.failure();
  ibv_cq *cq = queue::behind(attr.cq);
  const auto refused = [&](const char *why) {
    return unsupported(creating, "comp_mask", attr.comp_mask, why);
  };
  const queue::Joining joining(state, &cq, nullptr, queue::By::engine);
  if (!joining) return joining.failure();
  const CqState *const known = find_cq(&state, cq);
  if (joining.receives() != queue::By::engine || (known != nullptr && known->compressed))
    return refused(
        "needs a CQ of ibv_exp_create_cq() or ibv_create_cq() without compressed completions");

  const KeepErrno keep;
  ibv_srq_init_attr basic = attr.base;
  Owned<ibv_srq, queue::destroy_with_front> made(real().ibv_create_srq(attr.pd, &basic));
  if (!made) return keep.reason();
  const mlx5dv_srq facts = facts_of(made.get());
  queue::put_before(&state, made.get(), basic.attr.max_sge);
  queue::SrqFront *const front = queue::before(made.get());
  if (front == nullptr || front->own.engine == nullptr) return refused("needs IBVEXP_ENGINE=own");
  queue::complete_in_strides(state, *front, cq, attr.mp_wr);
  auto strides = std::make_unique<queue::OnRings>();
  const auto created = create_on(state.context, facts, facts_of(cq).cqn,
                                 front->own.engine->endpoint.user_index(), attr, *strides);
  if (!created) {
    if (created.failure().code == ENOMEM) return created.failure();
    log(LogLevel::info, "ibv_exp_create_srq: CREATE_XRQ: %s",
        std::strerror(created.failure().code));
    return refused("the device has no striding shared receive queues");
  }
  opened_by(Beyond::mp_srq, name_of_feature<strides_row>);
  front->legacy.srqn = front->legacy.srq_num = strides->number;
  front->own.strides = strides.release();
  attr.base.attr = basic.attr;
  front->shown.srq_context = attr.base.srq_context;
  static_cast<void>(made.release());
  return &front->shown;
}

// --- connections

namespace {

constexpr std::size_t qpc = 192, path = qpc + 192;
using Box = CommandBox<272>;

// Opcodes of QP commands.
constexpr std::uint32_t create_qp = 0x500, reset_to_init = 0x502, init_to_rtr = 0x503,
                        rtr_to_rts = 0x504, to_error = 0x507, to_reset = 0x50a, query_qp = 0x50b;

Result<void> create_on(const ibv_qp *qp, const mlx5dv_qp &facts, const mlx5dv_devx_uar &page,
                       std::uint32_t srqn, queue::Connection &made) {
  constexpr std::uint32_t migrated = 3, shared = 1;
  const auto places = register_rings(qp->context, made, facts.sq.buf,
                                     std::size_t{facts.sq.wqe_cnt} * facts.sq.stride, facts.dbrec);
  if (!places) return places.failure();
  Box in(create_qp);
  in.put(qpc + 19, 2, migrated);
  in.put(qpc + 40, 24, facts_of(qp->pd).pdn);
  in.put(qpc + 81, 4, log2_of(facts.sq.wqe_cnt));
  in.put(qpc + 104, 24, page.page_id);
  in.put(qpc + 136, 24, queue::resource_before(qp).number);
  in.put(qpc + 1000, 24, facts_of(qp->send_cq).cqn);
  in.put(qpc + 1256, 24, facts_of(qp->recv_cq).cqn);
  in.put_64(qpc + 1280, places.value().record.offset);
  in.put(qpc + 1381, 3, shared);
  in.put(qpc + 1384, 24, srqn);
  in.put(qpc + 1667, 1, 1);  // the record is in registered pages,
  in.put(qpc + 1824, 32, places.value().record.pages);
  in.put_64(2048, places.value().ring.offset);
  in.put(2112, 32, places.value().ring.pages);
  in.put(2144, 1, 1);  // as is the ring
  return create_object(qp->context, in, made.object, made.number);
}

}  // namespace

Result<queue::Connection *> connect_to_strides(ContextState &state, ibv_qp *made,
                                               const ModernQpInit &modern, queue::Sides by,
                                               const queue::SrqFront &srq, void **page) {
  constexpr EntryId entry = EntryId::ibv_exp_create_qp;
  const auto refused = [&](const char *why) {
    return unsupported(entry, "srq", srq.own.back->handle, why);
  };
  if (made->qp_type != IBV_QPT_RC || modern.channel != 0 || modern.max_umr_pieces != 0)
    return refused("RC queue pairs receive from it, without cross-channel and UMR");
  if (by.send != queue::By::engine || by.receive != queue::By::engine)
    return refused("not on a completion queue of ibv_cq_ex");
  const auto uar = channel_page(state);
  if (!uar) return uar.failure();
  auto connection = std::make_unique<queue::Connection>();
  const mlx5dv_qp facts = facts_of(made);
  if (const auto created =
          create_on(made, facts, *uar.value(), srq.own.strides->number, *connection);
      !created)
    return created.failure();
  connection->cap = modern.attr.cap;
  connection->signal_all = modern.attr.sq_sig_all != 0;
  made->qp_num = connection->number;
  *page = uar.value()->reg_addr;
  return connection.release();
}

namespace {

// What transitions need.
constexpr int for_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int for_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int for_rts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int known_mask = IBV_QP_STATE | IBV_QP_CUR_STATE | for_init | for_rtr | for_rts;

void keep(ibv_qp_attr &kept, const ibv_qp_attr &attr, int mask) {
  const auto take = [&](int bit, auto ibv_qp_attr::*member) {
    if ((mask & bit) != 0) kept.*member = attr.*member;
  };
  take(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  take(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  take(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  take(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
}

void put_access(Box &in, ibv_context *context, unsigned access) {
  const bool atomics = (access & IBV_ACCESS_REMOTE_ATOMIC) != 0;
  const std::uint32_t mode = atomics ? target_atomic_mode(context).value_or(0) : 0;
  in.put(qpc + 1164, 4, mode);
  in.put(qpc + 1168, 1, (access & IBV_ACCESS_REMOTE_READ) != 0);
  in.put(qpc + 1169, 1, (access & IBV_ACCESS_REMOTE_WRITE) != 0);
  in.put(qpc + 1170, 1, mode != 0);
}

// InfiniBand's: no other device matches tags.
void put_path(Box &in, const ibv_qp_attr &attr) {
  const ibv_ah_attr &to = attr.ah_attr;
  in.put(path + 16, 16, attr.pkey_index);
  in.put(path + 40, 1, to.is_global != 0);
  in.put(path + 41, 7, to.src_path_bits);
  in.put(path + 48, 16, to.dlid);
  in.put(path + 292, 4, to.sl);
  in.put(path + 296, 8, attr.port_num);
  if (to.is_global == 0) return;
  in.put(path + 72, 8, to.grh.sgid_index);
  in.put(path + 88, 8, to.grh.hop_limit);
  in.put(path + 100, 8, to.grh.traffic_class);
  in.put(path + 108, 20, to.grh.flow_label);
  std::memcpy(in.at(path / 8 + 16), to.grh.dgid.raw, sizeof(to.grh.dgid));
}

// The transition, and what it needs. 0: there is none.
struct Step {
  std::uint32_t opcode;
  int needs;
};
Step step_of(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET) return {to_reset, 0};
  if (to == IBV_QPS_ERR) return {to_error, 0};
  if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return {reset_to_init, for_init};
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) return {init_to_rtr, for_rtr};
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) return {rtr_to_rts, for_rts};
  return {0, 0};
}

void fill(Box &in, std::uint32_t opcode, ibv_context *context, const ibv_qp_attr &attr) {
  constexpr std::uint32_t access_bits = 1 << 1 | 1 << 2 | 1 << 3, migrated = 3, most_log_bytes = 30;
  in.put(qpc + 19, 2, migrated);
  put_path(in, attr);
  if (opcode == rtr_to_rts) {
    in.put(path + 64, 5, attr.timeout);
    in.put(qpc + 904, 3, log2_of(attr.max_rd_atomic));
    in.put(qpc + 909, 3, attr.retry_cnt);
    in.put(qpc + 912, 3, attr.rnr_retry);
    in.put(qpc + 968, 24, attr.sq_psn);
    return;
  }
  put_access(in, context, attr.qp_access_flags);
  if (opcode != init_to_rtr) return;
  in.put(128, 32, access_bits);  // what the transition may change beside
  in.put(qpc + 64, 3, attr.path_mtu);
  in.put(qpc + 67, 5, most_log_bytes);
  in.put(qpc + 168, 24, attr.dest_qp_num);
  in.put(qpc + 1160, 3, log2_of(attr.max_dest_rd_atomic));
  in.put(qpc + 1187, 5, attr.min_rnr_timer);
  in.put(qpc + 1192, 24, attr.rq_psn);
}

// In the order of the device's states.
constexpr ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                   IBV_QPS_SQE,   IBV_QPS_SQD,  IBV_QPS_ERR};

int ask_state(const queue::Connection &connection, ibv_qp_state &state) {
  const CommandBox<16> in(query_qp, connection.number);
  Box out;
  const int error = positive(
      mlx5dv_devx_obj_query(connection.object, in.data(), in.size(), out.data(), out.size()));
  if (error != 0) return error;
  const std::uint32_t number = out.get(qpc, 4);
  if (number < std::size(states)) state = states[number];
  return 0;
}

int refuse(const char *why) {
  log(LogLevel::warn, "ibv_modify_qp: a queue pair with an SRQ of strides: %s", why);
  return ENOTSUP;
}

}  // namespace

int modify(queue::Connection &connection, ibv_qp *qp, const ibv_qp_attr &attr, int mask) {
  if ((mask & ~known_mask) != 0)
    return refuse("the mask has attributes of other transports, or an alternate path");
  if ((mask & IBV_QP_STATE) == 0) return refuse("IBV_QP_STATE must be in the mask");
  ibv_qp_state from = qp->state;
  if (const int error = ask_state(connection, from); error != 0) return error;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != from) return EINVAL;
  const Step step = step_of(from, attr.qp_state);
  if (step.opcode == 0 && attr.qp_state > IBV_QPS_RTS)
    return refuse("not a state that this queue pair can change to");
  if (step.opcode == 0 || (mask & step.needs) != step.needs) return EINVAL;
  ibv_qp_attr wanted = connection.attr;
  keep(wanted, attr, mask);
  Result<void> changed;
  if (step.needs == 0) {
    changed = modify_object(connection.object, CommandBox<16>(step.opcode, connection.number));
  } else {
    Box in(step.opcode, connection.number);
    fill(in, step.opcode, qp->context, wanted);
    changed = modify_object(connection.object, in);
  }
  // The firmware refused a value.
  if (!changed) return changed.error() == EREMOTEIO ? EINVAL : changed.error();
  connection.attr = attr.qp_state == IBV_QPS_RESET ? ibv_qp_attr{} : wanted;
  qp->state = attr.qp_state;
  // libmlx5 does so: the device counts from 0 again.
  if (attr.qp_state == IBV_QPS_RESET) {
    const mlx5dv_qp facts = facts_of(qp);
    facts.dbrec[0] = facts.dbrec[1] = 0;
  }
  return 0;
}

int query(const queue::Connection &connection, ibv_qp_attr &attr, ibv_qp_init_attr &init) {
  ibv_qp_state state = IBV_QPS_RESET;
  if (const int error = ask_state(connection, state); error != 0) return error;
  std::memcpy(&attr, &connection.attr, offsetof(ibv_qp_attr, rate_limit));
  attr.qp_state = attr.cur_qp_state = state;
  attr.cap = init.cap = connection.cap;
  init.sq_sig_all = connection.signal_all;
  return 0;
}

}  // namespace ibvexp::translate
