#include <cerrno>
#include <cstring>
#include <utility>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/real.h"
#include "base/uncancelled.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/qp_convert.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/qp.h"
#include "translate/verbs/stride_queue.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId modifying = EntryId::ibv_exp_modify_qp;

// What is kept about one of rdma-core's queue pairs; either may be null.
struct Known {
  queue::QpFront *front;
  QpNotes *notes;
};
[[gnu::always_inline]] inline Known known_of(ContextState *state, ibv_qp *qp) {
  return {queue::before(qp), queue::notes_of(state, qp)};
}

// Whether it receives from a shared receive queue of strides.
bool is_connection(const queue::QpFront *front) {
  return front != nullptr && front->own.connection != nullptr;
}

// Whether it is a DC initiator.
bool is_initiator(const QpNotes *known, const ibv_qp *qp) {
  return qp->qp_type == IBV_QPT_DRIVER && known != nullptr;
}

// The port that a queue pair was given, by whatever way.
std::uint8_t port_of(const QpNotes &known, ibv_qp *qp) {
  if (known.port != 0) return known.port;
  ibv_qp_attr now{};
  ibv_qp_init_attr unused{};
  return real().ibv_query_qp(qp, &now, IBV_QP_PORT, &unused) == 0 ? now.port_num : 0;
}

// In the terms of an initiator. 0 or an errno value, which may be negative.
int modify_initiator(const QpNotes &known, ibv_qp *qp, ibv_qp_attr &attr, int mask) {
  to_initiator(attr, mask);
  // Today's kernels want a state, even where none changes.
  if ((mask & IBV_QP_STATE) == 0) {
    attr.qp_state = qp->state;
    mask |= IBV_QP_STATE;
  }
  if ((mask & IBV_QP_AV) == 0) return real().ibv_modify_qp(qp, &attr, mask);
  if (lacks_port(attr, mask)) attr.ah_attr.port_num = port_of(known, qp);
  const int before = errno;
  const int error = real().ibv_modify_qp(qp, &attr, mask);
  if (error != EINVAL && error != ENODATA) return error;
  // Kernels that take no address here, addresses without a GID on Ethernet, and with
  // one of an empty slot (ENODATA): nothing of it matters.
  const int again = real().ibv_modify_qp(qp, &attr, mask & ~IBV_QP_AV);
  if (again == 0) errno = before;
  return again;
}

// The device takes the port in RTS: what was asked before that waits, and is tried once.
int spread_packets(QpNotes *known, ibv_qp *qp) {
  if (known == nullptr || known->udp_source == 0 || qp->state != IBV_QPS_RTS) return 0;
  return positive(real().mlx5dv_modify_qp_udp_sport(qp, std::exchange(known->udp_source, {})));
}

// Refusals before anything is changed.
Result<void> check_entropy(const QpNotes *known, ibv_qp *qp, const ibv_exp_qp_attr &attr) {
  if ((attr.comp_mask & IBV_EXP_QP_ATTR_FLOW_ENTROPY) == 0)
    return invalid(modifying, "comp_mask", attr.comp_mask,
                   "IBV_EXP_QP_FLOW_ENTROPY needs IBV_EXP_QP_ATTR_FLOW_ENTROPY");
  const auto refused = [&](const char *why) {
    return unsupported(modifying, "flow_entropy", attr.flow_entropy, why);
  };
  if (known == nullptr || (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC))
    return refused("for RC and UC queue pairs only");
  if (real().mlx5dv_modify_qp_udp_sport == nullptr) return refused("needs rdma-core 33 or newer");
  ibv_port_attr port{};
  const std::uint8_t number = port_of(*known, qp);
  if (const auto asked = outcome(ibv_query_port(qp->context, number != 0 ? number : 1, &port));
      !asked)
    return asked;
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return refused("for RoCE only");
  return {};
}

// The queue pair has changed, whatever the device says of the port.
[[gnu::cold]] void try_to_spread_packets(QpNotes *known, ibv_qp *qp) {
  const int before = errno;
  if (const int refused = spread_packets(known, qp); refused != 0) {
    log(LogLevel::warn, "ibv_exp_modify_qp: flow_entropy: the UDP source port cannot be set: %s",
        std::strerror(refused));
    errno = before;
  }
}

[[gnu::noinline]] void forget(QpState &state) { state.builders.forget(); }

// A reset takes all requests away, without completions.
[[gnu::always_inline]] inline void reset(Known of) {
  if (QpState *const state = queue::state_of(of.front, of.notes)) [[unlikely]]
    forget(*state);
  if (of.front != nullptr) queue::restart(*of.front);
}

[[gnu::noinline]] void reset_front(queue::QpFront &front) {
  reset({&front, front.own.known});
  queue::follow(front, IBV_QPS_RESET);
}

// After a change of state, of what is not special. In INIT there is nothing new.
[[gnu::always_inline]] inline void follow_front(queue::QpFront &front) {
  const ibv_qp_state now = front.own.back->state;
  engine::set_relaxed(front.shown.state, now);
  if (now >= IBV_QPS_RTS) return queue::follow(front, now);
  if (now == IBV_QPS_INIT) return;
  if (now == IBV_QPS_RESET) return reset_front(front);
  queue::follow(front, now);
}

// The same of any.
[[gnu::always_inline]] inline void follow(Known of, ibv_qp *qp, ibv_qp_state to) {
  if (of.front != nullptr) engine::set_relaxed(of.front->shown.state, qp->state);
  if (to == IBV_QPS_INIT) return;
  if (of.notes != nullptr && of.notes->udp_source != 0) [[unlikely]]
    try_to_spread_packets(of.notes, qp);
  if (to == IBV_QPS_RESET) reset(of);
  if (of.front != nullptr) return queue::follow(*of.front, to);
  if (ContextState *const context = find_state(qp->context)) queue::follow(*context, qp, to);
}

// Any queue pair, by whatever door. Not so for targets.
[[gnu::always_inline]] inline int modify_known(Known of, ibv_qp *qp, ibv_qp_attr &attr, int mask) {
  const bool initiator = is_initiator(of.notes, qp);
  const int error = is_connection(of.front) ? modify(*of.front->own.connection, qp, attr, mask)
                    : initiator             ? modify_initiator(*of.notes, qp, attr, mask)
                                            : real().ibv_modify_qp(qp, &attr, mask);
  if (error != 0) [[unlikely]]
    return error;
  if (initiator && (mask & IBV_QP_PORT) != 0) of.notes->port = attr.port_num;
  if ((mask & IBV_QP_STATE) != 0) follow(of, qp, attr.qp_state);
  return 0;
}

// Programs without experimental verbs get rdma-core's answer.
void complete_address(ibv_qp *qp, ibv_qp_attr &attr) {
  const ContextState *const state = find_state(qp->context);
  if (state != nullptr && state->is_legacy) attr.ah_attr.port_num = port_of({}, qp);
}

// The caller's structure may be the shorter one of the legacy age.
[[gnu::noinline]] int modify_copied(Known of, ibv_qp *qp, const ibv_qp_attr *attr, int mask) {
  ibv_qp_attr copy{};
  std::memcpy(&copy, attr, offsetof(ibv_qp_attr, rate_limit));
  if ((mask & IBV_QP_RATE_LIMIT) != 0) copy.rate_limit = attr->rate_limit;
  if (!is_initiator(of.notes, qp)) complete_address(qp, copy);
  return modify_known(of, qp, copy, mask);
}

[[gnu::always_inline]] inline int modify(Known of, ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  if (is_initiator(of.notes, qp) || lacks_port(*attr, mask)) [[unlikely]]
    return modify_copied(of, qp, attr, mask);
  return modify_known(of, qp, *attr, mask);
}

[[gnu::noinline]] int modify_without_front(ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  return modify(known_of(find_state(qp->context), qp), qp, attr, mask);
}

[[gnu::noinline]] int modify_special(queue::QpFront &front, ibv_qp_attr *attr, int mask) {
  const Known of{&front, front.own.known};
  if (is_connection(&front)) return modify_copied(of, front.own.back, attr, mask);
  return modify(of, front.own.back, attr, mask);
}

}  // namespace

// After the call it reads again what is behind the front, which takes less than to keep it.
int modify_base_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  const Uncancelled whole;
  queue::QpFront *const front = queue::front_of(qp);
  if (front == nullptr) return modify_without_front(qp, attr, mask);
  if (front->own.back == nullptr) [[unlikely]]
    return queue::gone("ibv_modify_qp");
  if (front->own.special || lacks_port(*attr, mask)) [[unlikely]]
    return modify_special(*front, attr, mask);
  const int error = real_behind_front().ibv_modify_qp(front->own.back, attr, mask);
  if (error == 0 && (mask & IBV_QP_STATE) != 0) follow_front(*front);
  return error;
}

namespace {

// Members that the base verb has are in the same places.
ibv_qp_attr *base_of(ibv_exp_qp_attr *attr) { return reinterpret_cast<ibv_qp_attr *>(attr); }

// Refusals of what the base verb does not have, before anything is changed. A bit of comp_mask makes
// a member valid, the argument asks for it: only the argument is refused for what cannot be done.
Result<void> check_more(Known of, ibv_qp *qp, const ibv_exp_qp_attr &attr, std::uint64_t mask) {
  if ((attr.comp_mask & ~std::uint32_t{IBV_EXP_QP_ATTR_RESERVED - 1}) != 0)
    return invalid(modifying, "comp_mask", attr.comp_mask, "unknown bits");
  // Above those of the base verb, the legacy provider did not look at unknown bits.
  constexpr std::uint64_t ignorable = ~std::uint64_t{0} << 32;
  if (const auto bits = check_bits(modifying, "exp_attr_mask", mask,
                                   bits_of<"ibv_exp_qp_attr_mask">(), ignorable);
      !bits)
    return bits;
  if ((attr.comp_mask & IBV_EXP_QP_ATTR_BURST_INFO) != 0) {
    constexpr auto id = FeatureId::IBV_EXP_QP_ATTR_BURST_INFO;
    if (effective_now(answer_of<id>).verdict == Verdict::unsupported)
      return unsupported(modifying, id, "comp_mask", attr.comp_mask);
    if ((mask & IBV_EXP_QP_RATE_LIMIT) == 0 || attr.rate_limit == 0)
      return invalid(modifying, "burst_info", attr.burst_info.max_burst_sz,
                     "bursts need a rate limit (IBV_EXP_QP_RATE_LIMIT)");
  }
  if ((mask & IBV_EXP_QP_FLOW_ENTROPY) != 0) {
    if (const auto checked = check_entropy(of.notes, qp, attr); !checked) return checked;
  }
  if ((mask & IBV_EXP_QP_DC_KEY) != 0 && !is_initiator(of.notes, qp))
    return invalid(modifying, "exp_attr_mask", mask, "IBV_EXP_QP_DC_KEY is for DC initiators only");
  // Linux 7 takes it from other queue pairs as well, and mlx5 does nothing about it.
  if ((mask & IBV_EXP_QP_RATE_LIMIT) != 0 && qp->qp_type != IBV_QPT_RAW_PACKET)
    return invalid(modifying, "rate_limit", attr.rate_limit,
                   "only raw packet queue pairs send at a rate");
  return {};
}

[[gnu::noinline]] Result<void> modify_more(Known of, ibv_qp *qp, ibv_exp_qp_attr *attr,
                                           std::uint64_t mask) {
  if (const auto checked = check_more(of, qp, *attr, mask); !checked) return checked;
  QpNotes *const known = of.notes;
  const bool burst = (attr->comp_mask & IBV_EXP_QP_ATTR_BURST_INFO) != 0;
  const bool entropy = (mask & IBV_EXP_QP_FLOW_ENTROPY) != 0;

  // rdma-core reads what the mask names. The rate is in another place.
  ibv_qp_attr copy, *modern = base_of(attr);
  if ((mask & IBV_EXP_QP_RATE_LIMIT) != 0) {
    copy = to_modern(*attr, mask);
    modern = &copy;
  }
  int modern_mask = to_modern_qp_mask(mask);
  // ibv_modify_qp_rate_limit() sets rate and burst in one step, in RTS.
  if (burst) modern_mask &= ~IBV_QP_RATE_LIMIT;

  const KeepErrno keep;
  const std::uint16_t waiting = known != nullptr ? known->udp_source : std::uint16_t{0};
  if (entropy) {
    known->udp_source = to_udp_source(attr->flow_entropy);
    if (of.front != nullptr) of.front->own.special = true;
  }
  int error = 0;
  if (modern_mask != 0 || !(burst || entropy)) {
    error = modify(of, qp, modern, modern_mask);
    if (error == 0 && entropy) try_to_spread_packets(known, qp);
  } else if (entropy) {
    error = spread_packets(known, qp);
  }
  if (error != 0) {
    if (known != nullptr) known->udp_source = waiting;
    return Error{positive(error)};
  }
  if (burst) {
    ibv_qp_rate_limit_attr limit = to_modern_pace(*attr);
    return outcome(ibv_modify_qp_rate_limit(qp, &limit));
  }
  return {};
}

[[gnu::noinline]] Result<void> modify_any(queue::QpFront *front, ibv_qp *qp, ibv_exp_qp_attr *attr,
                                          std::uint64_t mask) {
  const Known of{front, queue::notes_of(attached(qp->context), qp)};
  if ((mask & ~common_qp_mask) != 0 || attr->comp_mask != 0) return modify_more(of, qp, attr, mask);
  const KeepErrno keep;
  return outcome(modify(of, qp, base_of(attr), static_cast<int>(mask)));
}

}  // namespace

Result<void> modify_qp(ibv_qp *qp, ibv_exp_qp_attr *attr, std::uint64_t mask) {
  if (attr == nullptr) return invalid(modifying, "attributes", 0, "must not be null");
  queue::QpFront *const front = queue::before(qp);
  ibv_qp_attr &base = *base_of(attr);
  const int bits = static_cast<int>(mask);
  if (front == nullptr || front->own.special || lacks_port(base, bits) ||
      (mask & ~common_qp_mask) != 0 || attr->comp_mask != 0) [[unlikely]]
    return modify_any(front, qp, attr, mask);
  const KeepErrno keep;
  const int error = real_behind_front().ibv_modify_qp(qp, &base, bits);
  if (error == 0 && (bits & IBV_QP_STATE) != 0) follow_front(*front);
  return outcome(error);
}

}  // namespace ibvexp::translate
