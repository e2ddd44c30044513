// Requests and completions.
#include <chrono>

#include "rig.h"

namespace truth {
namespace {

using Clock = std::chrono::steady_clock;
// For a loaded machine; only what never comes costs it.
constexpr auto PATIENCE = std::chrono::seconds(2);

void create_ah(Rig &rig, const Call &, Answer &answer) {
  ibv_ah_attr path{};
  rig.fill_path(path);
  if (rig.ah != nullptr) ibv_destroy_ah(rig.ah);
  rig.ah = pointer(answer, [&] { return ibv_create_ah(rig.pd, &path); });
}

void receive(Rig &rig, const Call &call, Answer &answer) {
  for (int i = 0; i < call.integer("count", 1); ++i) {
    ibv_sge piece{rig.address(65536 + static_cast<std::size_t>(i) * 4096),
                  static_cast<std::uint32_t>(call.number("length", 256)), rig.mr->lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = 100 + static_cast<std::uint64_t>(i);
    request.sg_list = &piece;
    request.num_sge = 1;
    number(answer, [&] {
      return call.has("srq") ? ibv_post_srq_recv(rig.srq, &request, &bad)
                             : ibv_post_recv(rig.qp(call), &request, &bad);
    });
    if (answer.outcome != "ok") return;
  }
}

struct Request {
  ibv_exp_send_wr wr{};
  ibv_sge pieces[40]{};
};

void fill(Rig &rig, const Call &call, Request &request) {
  const int opcode = call.integer("opcode", IBV_EXP_WR_SEND);
  for (std::size_t i = 0; i < 40; ++i) request.pieces[i] = {rig.address(i * 64), 8, rig.mr->lkey};
  request.pieces[0].length = static_cast<std::uint32_t>(call.number("length", 8));
  auto &wr = request.wr;
  wr.wr_id = 9;
  wr.sg_list = request.pieces;
  wr.num_sge = call.integer("sge", 1);
  wr.exp_opcode = static_cast<ibv_exp_wr_opcode>(opcode);
  wr.exp_send_flags = call.number("flags", IBV_EXP_SEND_SIGNALED);
  wr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  wr.ex.imm_data = static_cast<std::uint32_t>(call.number("imm"));
  const auto target = rig.address(8192);
  wr.wr.rdma.remote_addr = wr.task.rdma.remote_addr = target;
  wr.wr.rdma.rkey = wr.task.rdma.rkey =
      static_cast<std::uint32_t>(call.number("rkey", rig.mr->rkey));
  if (call.has("to_self")) {
    wr.wr.ud.ah = rig.ah;
    wr.wr.ud.remote_qpn = rig.qp(call)->qp_num;
    wr.wr.ud.remote_qkey = 0x111;
  }
  if (call.has("dc_key")) {
    wr.dc.ah = rig.ah;
    wr.dc.dct_access_key = call.number("dc_key");
    wr.dc.dct_number = rig.dct->dct_num;
  }
  if (opcode == IBV_EXP_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_EXP_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = target;
    wr.wr.atomic.rkey = rig.mr->rkey;
    wr.wr.atomic.compare_add = 1;
    wr.wr.atomic.swap = call.number("swap", 2);
  }
  if (opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP ||
      opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD) {
    wr.ext_op.masked_atomics.log_arg_sz = 3;
    wr.ext_op.masked_atomics.remote_addr = target;
    wr.ext_op.masked_atomics.rkey = rig.mr->rkey;
    wr.exp_send_flags |= IBV_EXP_SEND_EXT_ATOMIC_INLINE;
  }
}

void hand_over(Rig &rig, ibv_qp *qp, ibv_exp_send_wr &wr, Answer &answer) {
  ibv_exp_send_wr none{}, *bad = &none;
  number(answer, [&] { return ibv_exp_post_send(qp, &wr, &bad); });
  rig.nothing_comes = answer.outcome != "ok" && bad == &wr;
  say(answer, "bad",
      bad == &none     ? "kept"
      : bad == &wr     ? "first"
      : bad == wr.next ? "second"
                       : "other");
}

void post_send(Rig &rig, const Call &call, Answer &answer) {
  if (rig.qp(call) == nullptr || (call.has("dc_key") && rig.dct == nullptr)) return;
  Request request, second;
  fill(rig, call, request);
  if (call.has("then")) {
    fill(rig, call, second);
    second.wr.exp_opcode = static_cast<ibv_exp_wr_opcode>(call.integer("then"));
    request.wr.next = &second.wr;
  }
  hand_over(rig, rig.qp(call), request.wr, answer);
}

// Requests that are not signalled, until one is refused.
void post_until_full(Rig &rig, const Call &call, Answer &answer) {
  if (rig.qp(call) == nullptr) return;
  Request request;
  fill(rig, call, request);
  request.wr.exp_send_flags = 0;
  ibv_exp_send_wr *bad = nullptr;
  int taken = 0;
  for (; taken < 5000; ++taken) {
    number(answer, [&] { return ibv_exp_post_send(rig.qp(call), &request.wr, &bad); });
    if (answer.outcome != "ok") break;
  }
  set(answer, "taken", taken);
}

void post_task(Rig &rig, const Call &call, Answer &answer) {
  Request request;
  if (call.has("request")) fill(rig, call, request);
  ibv_exp_task none{}, task{}, *bad = &none;
  task.task_type = static_cast<ibv_exp_task_type>(call.integer("type"));
  task.item.qp = rig.qp(call);
  if (call.has("request")) task.item.send_wr = &request.wr;
  task.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] { return ibv_exp_post_task(rig.context, &task, &bad); });
  rig.nothing_comes = answer.outcome != "ok";
  say(answer, "bad", bad == &none ? "kept" : bad == &task ? "first" : "other");
}

void post_umr(Rig &rig, const Call &call, Answer &answer) {
  ibv_qp *qp = rig.qp(call);
  ibv_mr *mr = call.has("plain") ? rig.mr : rig.mrs["mr"];
  if (qp == nullptr || mr == nullptr) return;
  ibv_exp_mem_region regions[8];
  ibv_exp_mem_repeat_block blocks[2];
  std::size_t counts[2] = {16, 16}, strides[2] = {64, 64}, repeats[1] = {4};
  for (std::size_t i = 0; i < 8; ++i) regions[i] = {rig.address(i * 8192), rig.mr, 64};
  for (std::size_t i = 0; i < 2; ++i)
    blocks[i] = {rig.address(i * 8192), rig.mr, counts + i, strides + i};

  ibv_exp_send_wr wr{};
  wr.wr_id = 5;
  wr.exp_opcode = static_cast<ibv_exp_wr_opcode>(call.integer("opcode", IBV_EXP_WR_UMR_FILL));
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  auto &umr = wr.ext_op.umr;
  if (call.has("list")) umr.memory_objects = rig.key_list;
  else wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
  umr.umr_type = static_cast<std::uint32_t>(call.number("type"));
  umr.exp_access = call.number("access", 15);
  umr.modified_mr = mr;
  umr.base_addr = 0x10000;
  umr.num_mrs = static_cast<std::uint32_t>(call.number("count", 2));
  umr.mem_list.mem_reg_list = regions;
  if (umr.umr_type == IBV_EXP_UMR_REPEAT) {
    umr.mem_list.rb.mem_repeat_block_list = blocks;
    umr.mem_list.rb.repeat_count = repeats;
    umr.mem_list.rb.stride_dim = static_cast<std::uint32_t>(call.number("dimensions", 1));
  }
  hand_over(rig, qp, wr, answer);
}

void key(Rig &rig, const Call &, Answer &answer) {
  const ibv_mr *mr = rig.mrs["mr"];
  if (mr == nullptr) return;
  answer.outcome = "ok";
  say(answer, "addr", mr->addr == nullptr ? "null" : "set");
  set(answer, "length", static_cast<std::uint64_t>(mr->length));
}

// Looks for the next completion.
void poll(Rig &rig, const Call &, Answer &answer) {
  ibv_exp_wc wc;
  int found = 0;
  const auto end = Clock::now() + (rig.nothing_comes ? Clock::duration{} : PATIENCE);
  do {
    std::memset(&wc, 0xee, sizeof(wc));
    wc.exp_wc_flags = 0;
    found = ibv_exp_poll_cq(rig.polled(), 1, &wc, sizeof(wc));
  } while (found == 0 && Clock::now() < end);
  if (found == 0) rig.nothing_comes = true;
  answer.outcome = found == 1 ? "ok" : found == 0 ? "none" : name_of(found);
  if (found != 1) return;
  set(answer, "id", wc.wr_id);
  set(answer, "status", static_cast<int>(wc.status));
  set_or_kept(answer, "opcode", static_cast<std::uint32_t>(wc.exp_opcode));
  set_or_kept(answer, "length", wc.byte_len);
  set_or_kept(answer, "imm", wc.imm_data);
  set(answer, "flags", static_cast<std::uint64_t>(wc.exp_wc_flags));
  whether_set(answer, "qp", reinterpret_cast<std::uintptr_t>(wc.qp));
  whether_set(answer, "srq", reinterpret_cast<std::uintptr_t>(wc.srq));
  whether_set(answer, "dct", reinterpret_cast<std::uintptr_t>(wc.dct));
  whether_set(answer, "time", wc.timestamp);
  whether_set(answer, "slid", wc.slid);
  set_or_kept(answer, "sl", wc.sl);
  set_or_kept(answer, "pkey", wc.pkey_index);
  whether_set(answer, "source", wc.src_qp);
  set_or_kept(answer, "path", wc.dlid_path_bits);
}

// Polls once, an empty queue.
void poll_empty(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_wc wcs[4];
  const int found = ibv_exp_poll_cq(rig.polled(), call.integer("entries", 1), wcs,
                                    static_cast<std::uint32_t>(call.number("size", sizeof(*wcs))));
  answer.outcome = "ok";
  set(answer, "found", found);
}

}  // namespace

void add_transfer_verbs(Verbs &verbs) {
  verbs["create_ah"] = create_ah;
  verbs["receive"] = receive;
  verbs["post_send"] = post_send;
  verbs["post_until_full"] = post_until_full;
  verbs["post_task"] = post_task;
  verbs["post_umr"] = post_umr;
  verbs["key"] = key;
  verbs["poll"] = poll;
  verbs["poll_empty"] = poll_empty;
}

}  // namespace truth
