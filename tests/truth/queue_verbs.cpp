// Completion queues, shared receive queues, work queues and their tables.
#include <fcntl.h>

#include <utility>

#include "rig.h"

namespace truth {
namespace {

void create_cq(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.flags = static_cast<std::uint32_t>(call.number("flags"));
  if (call.has("domain")) attr.res_domain = rig.domain;
  auto &cq = rig.cqs[call.text("as", "cq")];
  if (cq != nullptr) ibv_destroy_cq(cq);
  cq = pointer(answer, [&] {
    return ibv_exp_create_cq(rig.context, call.integer("cqe", 10), nullptr, nullptr,
                             call.integer("vector"), &attr);
  });
  if (cq != nullptr) set(answer, "cqe", cq->cqe);
}

void base_create_cq(Rig &rig, const Call &, Answer &answer) {
  auto &cq = rig.cqs["cq"];
  if (cq != nullptr) ibv_destroy_cq(cq);
  cq = pointer(answer, [&] { return ibv_create_cq(rig.context, 10, nullptr, nullptr, 0); });
}

void modify_cq(Rig &rig, const Call &call, Answer &answer) {
  ibv_cq *cq = rig.cqs["cq"];
  if (cq == nullptr) return;
  ibv_exp_cq_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.moderation.cq_count = static_cast<std::uint16_t>(call.number("count", 4));
  attr.moderation.cq_period = 10;
  attr.cq_cap_flags = static_cast<std::uint32_t>(call.number("caps"));
  number(answer, [&] { return ibv_exp_modify_cq(cq, &attr, call.integer("attrs")); });
}

void destroy_cq(Rig &rig, const Call &call, Answer &answer) {
  auto &cq = rig.cqs[call.text("cq", "cq")];
  if (cq == nullptr) return;
  number(answer, [&] { return ibv_destroy_cq(cq); });
  if (answer.outcome == "ok") cq = nullptr;
}

void open_xrcd(Rig &rig, const Call &, Answer &answer) {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = -1;
  attr.oflags = O_CREAT;
  rig.xrcd = pointer(answer, [&] { return ibv_open_xrcd(rig.context, &attr); });
}

void create_srq(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_create_srq_attr attr{};
  attr.pd = rig.pd;
  attr.srq_type = static_cast<ibv_exp_srq_type>(call.integer("type"));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.base.attr.max_wr = static_cast<std::uint32_t>(call.number("wr", 10));
  attr.base.attr.max_sge = static_cast<std::uint32_t>(call.number("sge", 1));
  attr.base.attr.srq_limit = static_cast<std::uint32_t>(call.number("limit"));
  if (call.has("cq")) attr.cq = rig.cq;
  if (call.has("xrcd")) attr.xrcd = rig.xrcd;
  attr.tm_cap.max_num_tags = static_cast<std::uint32_t>(call.number("tags"));
  attr.tm_cap.max_ops = static_cast<std::uint32_t>(call.number("ops"));
  attr.mp_wr.log_num_of_strides = static_cast<std::uint8_t>(call.number("strides"));
  attr.mp_wr.log_stride_size = static_cast<std::uint8_t>(call.number("stride_size"));
  if (rig.srq != nullptr) ibv_destroy_srq(rig.srq);
  rig.srq = pointer(answer, [&] { return ibv_exp_create_srq(rig.context, &attr); });
  if (rig.srq == nullptr) return;
  set(answer, "wr", attr.base.attr.max_wr);
  set(answer, "sge", attr.base.attr.max_sge);
}

void base_create_srq(Rig &rig, const Call &call, Answer &answer) {
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = static_cast<std::uint32_t>(call.number("wr", 16));
  attr.attr.max_sge = 1;
  if (rig.srq != nullptr) ibv_destroy_srq(rig.srq);
  rig.srq = pointer(answer, [&] { return ibv_create_srq(rig.pd, &attr); });
}

void query_srq(Rig &rig, const Call &, Answer &answer) {
  if (rig.srq == nullptr) return;
  ibv_srq_attr attr{};
  number(answer, [&] { return ibv_query_srq(rig.srq, &attr); });
  set(answer, "wr", attr.max_wr);
  set(answer, "sge", attr.max_sge);
  set(answer, "limit", attr.srq_limit);
}

void get_srq_num(Rig &rig, const Call &, Answer &answer) {
  if (rig.srq == nullptr) return;
  std::uint32_t given = 0;
  number(answer, [&] { return ibv_get_srq_num(rig.srq, &given); });
  whether_set(answer, "number", given);
}

void destroy_srq(Rig &rig, const Call &, Answer &answer) {
  if (rig.srq == nullptr) return;
  number(answer, [&] { return ibv_destroy_srq(rig.srq); });
  if (answer.outcome == "ok") rig.srq = nullptr;
}

void post_srq_ops(Rig &rig, const Call &call, Answer &answer) {
  if (rig.srq == nullptr) return;
  ibv_exp_ops_wr request{}, *bad = nullptr;
  request.opcode = static_cast<ibv_exp_ops_wr_opcode>(call.integer("opcode"));
  number(answer, [&] { return ibv_exp_post_srq_ops(rig.srq, &request, &bad); });
  say(answer, "bad", bad == &request ? "first" : bad == nullptr ? "kept" : "other");
}

void create_wq(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_wq_init_attr attr{};
  attr.pd = rig.pd;
  attr.cq = rig.cq;
  attr.wq_type = static_cast<ibv_exp_wq_type>(call.integer("type"));
  attr.max_recv_wr = static_cast<std::uint32_t>(call.number("wr", 10));
  attr.max_recv_sge = static_cast<std::uint32_t>(call.number("sge", 1));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.flags = call.number("flags");
  attr.vlan_offloads = static_cast<std::uint16_t>(call.number("vlan"));
  attr.mp_rq.single_wqe_log_num_of_strides = static_cast<std::uint8_t>(call.number("strides"));
  attr.mp_rq.single_stride_log_num_of_bytes = static_cast<std::uint8_t>(call.number("stride_size"));
  if (rig.wq != nullptr) ibv_exp_destroy_wq(rig.wq);
  rig.wq = pointer(answer, [&] { return ibv_exp_create_wq(rig.context, &attr); });
  if (rig.wq == nullptr) return;
  set(answer, "state", static_cast<int>(rig.wq->state));
  set(answer, "type", static_cast<int>(rig.wq->wq_type));
  whether_set(answer, "number", rig.wq->wq_num);
  set(answer, "mask", rig.wq->comp_mask);
  set(answer, "wr", attr.max_recv_wr);
  set(answer, "sge", attr.max_recv_sge);
  if (rig.first_wq == nullptr) rig.first_wq = std::exchange(rig.wq, nullptr);
}

void destroy_wq(Rig &rig, const Call &call, Answer &answer) {
  auto &wq = call.has("first") ? rig.first_wq : rig.wq;
  if (wq == nullptr) return;
  number(answer, [&] { return ibv_exp_destroy_wq(wq); });
  if (answer.outcome == "ok") wq = nullptr;
}

void modify_wq(Rig &rig, const Call &call, Answer &answer) {
  if (rig.first_wq == nullptr) return;
  ibv_exp_wq_attr attr{};
  attr.attr_mask = static_cast<std::uint32_t>(call.number("attrs"));
  attr.wq_state = static_cast<ibv_exp_wq_state>(call.integer("to"));
  attr.curr_wq_state = static_cast<ibv_exp_wq_state>(call.integer("from"));
  number(answer, [&] { return ibv_exp_modify_wq(rig.first_wq, &attr); });
  set(answer, "state", static_cast<int>(rig.first_wq->state));
}

void create_rwq_ind_table(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_wq *both[] = {rig.first_wq, rig.first_wq};
  ibv_exp_rwq_ind_table_init_attr attr{};
  attr.pd = rig.pd;
  attr.ind_tbl = both;
  attr.log_ind_tbl_size = static_cast<std::uint32_t>(call.number("log_size"));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  rig.ind_table = pointer(answer, [&] { return ibv_exp_create_rwq_ind_table(rig.context, &attr); });
}

void destroy_rwq_ind_table(Rig &rig, const Call &, Answer &answer) {
  if (rig.ind_table == nullptr) return;
  number(answer, [&] { return ibv_exp_destroy_rwq_ind_table(rig.ind_table); });
  rig.ind_table = nullptr;
}

}  // namespace

void add_queue_verbs(Verbs &verbs) {
  verbs["create_cq"] = create_cq;
  verbs["base_create_cq"] = base_create_cq;
  verbs["modify_cq"] = modify_cq;
  verbs["destroy_cq"] = destroy_cq;
  verbs["open_xrcd"] = open_xrcd;
  verbs["create_srq"] = create_srq;
  verbs["base_create_srq"] = base_create_srq;
  verbs["query_srq"] = query_srq;
  verbs["get_srq_num"] = get_srq_num;
  verbs["destroy_srq"] = destroy_srq;
  verbs["post_srq_ops"] = post_srq_ops;
  verbs["create_wq"] = create_wq;
  verbs["destroy_wq"] = destroy_wq;
  verbs["modify_wq"] = modify_wq;
  verbs["create_rwq_ind_table"] = create_rwq_ind_table;
  verbs["destroy_rwq_ind_table"] = destroy_rwq_ind_table;
}

}  // namespace truth
