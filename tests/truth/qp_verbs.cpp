// Queue pairs and DC targets: made, asked and changed.
#include "rig.h"

namespace truth {
namespace {

void create_qp(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = rig.polled();
  attr.qp_type = static_cast<ibv_qp_type>(call.integer("type", 2));
  const auto [send_wr, recv_wr] = two(call, "wr", 10, 10);
  const auto [send_sge, recv_sge] = two(call, "sge", 1, 1);
  attr.cap = {send_wr, recv_wr, send_sge, recv_sge,
              static_cast<std::uint32_t>(call.number("inline"))};
  attr.pd = rig.pd;
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask", 1));
  attr.exp_create_flags = static_cast<std::uint32_t>(call.number("flags"));
  attr.max_inl_recv = static_cast<std::uint32_t>(call.number("inline_recv"));
  attr.max_atomic_arg = static_cast<std::uint32_t>(call.number("atomic_arg"));
  attr.max_inl_send_klms = static_cast<std::uint32_t>(call.number("klms"));
  attr.port_num = static_cast<std::uint8_t>(call.number("port"));
  attr.sq_sig_all = call.integer("signal_all");
  attr.max_tso_header = static_cast<std::uint16_t>(call.number("tso"));
  attr.associated_qpn = static_cast<std::uint32_t>(call.number("associated"));
  attr.qpg.qpg_type = static_cast<ibv_exp_qpg_type>(call.integer("group"));
  attr.qpg.parent_attrib.tss_child_count = attr.qpg.parent_attrib.rss_child_count =
      static_cast<std::uint32_t>(call.number("children"));
  if (call.has("srq")) attr.srq = rig.srq;
  if (call.has("domain")) attr.res_domain = rig.domain;

  auto &qp = rig.qps[call.text("as", "qp")];
  if (qp != nullptr) ibv_destroy_qp(qp);
  qp = pointer(answer, [&] { return ibv_exp_create_qp(rig.context, &attr); });
  if (qp == nullptr) return;
  set(answer, "mask", attr.comp_mask);
  set_two(answer, "wr", attr.cap.max_send_wr, attr.cap.max_recv_wr);
  set_two(answer, "sge", attr.cap.max_send_sge, attr.cap.max_recv_sge);
  set(answer, "inline", attr.cap.max_inline_data);
  set(answer, "inline_recv", attr.max_inl_recv);
  set(answer, "atomic_arg", attr.max_atomic_arg);
  set(answer, "klms", attr.max_inl_send_klms);
  set(answer, "state", static_cast<int>(qp->state));
  if (!call.has("up") || bring_up(rig, qp)) return;
  answer.outcome = "not-up";
}

void query_qp(Rig &rig, const Call &call, Answer &answer) {
  ibv_qp *qp = rig.qp(call);
  if (qp == nullptr) return;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  number(answer, [&] { return ibv_query_qp(qp, &attr, IBV_QP_CAP, &init); });
  set_two(answer, "wr", attr.cap.max_send_wr, attr.cap.max_recv_wr);
  set_two(answer, "sge", attr.cap.max_send_sge, attr.cap.max_recv_sge);
  set(answer, "inline", attr.cap.max_inline_data);
  set_two(answer, "init_wr", init.cap.max_send_wr, init.cap.max_recv_wr);
  set_two(answer, "init_sge", init.cap.max_send_sge, init.cap.max_recv_sge);
  set(answer, "init_inline", init.cap.max_inline_data);
  set(answer, "signal_all", init.sq_sig_all);
  set(answer, "type", static_cast<int>(init.qp_type));
}

void destroy_qp(Rig &rig, const Call &call, Answer &answer) {
  auto &qp = rig.qps[call.text("qp", "qp")];
  if (qp == nullptr) return;
  number(answer, [&] { return ibv_destroy_qp(qp); });
  if (answer.outcome == "ok") qp = nullptr;
}

void qp_state(Rig &rig, const Call &call, Answer &answer) {
  ibv_qp *qp = rig.qp(call);
  if (qp == nullptr) return;
  answer.outcome = "ok";
  set(answer, "state", static_cast<int>(qp->state));
  if (!call.has("asked")) return;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  number(answer, [&] { return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init); });
  set(answer, "state", static_cast<int>(attr.qp_state));
}

ibv_exp_qp_attr extra_of(const Call &call) {
  ibv_exp_qp_attr attr{};
  attr.rate_limit = static_cast<std::uint32_t>(call.number("rate"));
  attr.flow_entropy = static_cast<std::uint32_t>(call.number("entropy"));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.dct_key = call.number("dc_key");
  return attr;
}

// The next step with all that it needs, without the attribute `without`, with those of `more`.
// `back`: a step that succeeds is undone.
void step(Rig &rig, const Call &call, Answer &answer) {
  ibv_qp *qp = rig.qp(call);
  if (qp == nullptr) return;
  const int to = call.integer("to");
  number(answer, [&] {
    return step_to(rig, qp, to, call.integer("without", -1), call.number("more"), extra_of(call));
  });
  set(answer, "state", static_cast<int>(qp->state));
  if (!call.has("back") || answer.outcome != "ok") return;
  ibv_exp_qp_attr reset{};
  ibv_exp_modify_qp(qp, &reset, IBV_EXP_QP_STATE);
  for (int state = IBV_QPS_INIT; state < to; ++state) step_to(rig, qp, state, -1, 0, {});
}

// Through RESET to a state, whatever the state was.
void afresh(Rig &rig, const Call &call, Answer &answer) {
  ibv_qp *qp = rig.qp(call);
  if (qp == nullptr) return;
  ibv_exp_qp_attr reset{};
  int result = ibv_exp_modify_qp(qp, &reset, IBV_EXP_QP_STATE);
  for (int state = IBV_QPS_INIT; state <= call.integer("to") && result == 0; ++state)
    result = step_to(rig, qp, state, -1, 0, {});
  returned(answer, result, 0);
}

void modify_qp(Rig &rig, const Call &call, Answer &answer) {
  ibv_qp *qp = rig.qp(call);
  if (qp == nullptr) return;
  auto attr = extra_of(call);
  attr.qp_state = static_cast<ibv_qp_state>(call.integer("state"));
  attr.port_num = static_cast<std::uint8_t>(call.number("port"));
  attr.pkey_index = static_cast<std::uint16_t>(call.number("pkey"));
  number(answer, [&] { return ibv_exp_modify_qp(qp, &attr, call.number("attrs")); });
}

void create_dct(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_dct_init_attr attr{};
  attr.pd = rig.pd;
  attr.cq = rig.cq;
  attr.srq = rig.srq;
  attr.dc_key = call.number("dc_key", 42);
  attr.port = static_cast<std::uint8_t>(call.number("port", 1));
  attr.access_flags = static_cast<std::uint32_t>(call.number("access", 15));
  attr.min_rnr_timer = static_cast<std::uint8_t>(call.number("rnr", 2));
  attr.tclass = static_cast<std::uint8_t>(call.number("tclass"));
  attr.flow_label = static_cast<std::uint32_t>(call.number("flow"));
  attr.mtu = static_cast<ibv_mtu>(call.integer("mtu", 3));
  attr.pkey_index = static_cast<std::uint8_t>(call.number("pkey"));
  attr.gid_index = static_cast<std::uint8_t>(call.number("gid"));
  if (call.has("routed") && rig.gid_index >= 0)
    attr.gid_index = static_cast<std::uint8_t>(rig.gid_index);
  attr.hop_limit = static_cast<std::uint8_t>(call.number("hop", 1));
  attr.inline_size = static_cast<std::uint32_t>(call.number("inline"));
  attr.create_flags = static_cast<std::uint32_t>(call.number("flags"));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  if (rig.dct != nullptr) ibv_exp_destroy_dct(rig.dct);
  rig.dct = pointer(answer, [&] { return ibv_exp_create_dct(rig.context, &attr); });
  set(answer, "inline", attr.inline_size);
  if (rig.dct != nullptr) whether_set(answer, "number", rig.dct->dct_num);
}

void query_dct(Rig &rig, const Call &call, Answer &answer) {
  if (rig.dct == nullptr) return;
  ibv_exp_dct_attr attr;
  std::memset(&attr, call.integer("fill", 0xee), sizeof(attr));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] { return ibv_exp_query_dct(rig.dct, &attr); });
  set(answer, "key", static_cast<std::uint64_t>(attr.dc_key));
  set(answer, "port", attr.port);
  set(answer, "access", static_cast<std::uint64_t>(attr.access_flags));
  set(answer, "rnr", attr.min_rnr_timer);
  set(answer, "tclass", attr.tclass);
  set(answer, "flow", attr.flow_label);
  set(answer, "mtu", static_cast<int>(attr.mtu));
  set(answer, "pkey", attr.pkey_index);
  set(answer, "gid", attr.gid_index);
  set(answer, "hop", attr.hop_limit);
  set(answer, "violations", attr.key_violations);
  set(answer, "state", static_cast<int>(attr.state));
  say(answer, "srq", attr.srq == rig.srq ? "same" : "other");
  say(answer, "cq", attr.cq == rig.cq ? "same" : "other");
  say(answer, "pd", attr.pd == rig.pd ? "same" : "other");
}

void arm_dct(Rig &rig, const Call &call, Answer &answer) {
  if (rig.dct == nullptr) return;
  ibv_exp_arm_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] { return ibv_exp_arm_dct(rig.dct, &attr); });
}

void destroy_dct(Rig &rig, const Call &, Answer &answer) {
  if (rig.dct == nullptr) return;
  number(answer, [&] { return ibv_exp_destroy_dct(rig.dct); });
  if (answer.outcome == "ok") rig.dct = nullptr;
}

}  // namespace

void add_qp_verbs(Verbs &verbs) {
  verbs["create_qp"] = create_qp;
  verbs["query_qp"] = query_qp;
  verbs["destroy_qp"] = destroy_qp;
  verbs["qp_state"] = qp_state;
  verbs["step"] = step;
  verbs["afresh"] = afresh;
  verbs["modify_qp"] = modify_qp;
  verbs["create_dct"] = create_dct;
  verbs["query_dct"] = query_dct;
  verbs["arm_dct"] = arm_dct;
  verbs["destroy_dct"] = destroy_dct;
}

}  // namespace truth
