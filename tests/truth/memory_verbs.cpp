// Memory regions, windows, keys of lists and device memory.
#include "rig.h"

namespace truth {
namespace {

void describe(Answer &answer, const ibv_mr *mr, const void *addr) {
  if (mr == nullptr) return;
  say(answer, "addr", mr->addr == addr ? "given" : mr->addr != nullptr ? "other" : "null");
  set(answer, "length", static_cast<std::uint64_t>(mr->length));
  say(answer, "keys", mr->lkey == mr->rkey ? "same" : "two");
}

void *address_of(const Rig &rig, const Call &call) {
  const auto text = call.text("addr", "memory");
  if (text == "memory") return rig.memory;
  if (text == "odd") return rig.memory + 3;
  return reinterpret_cast<void *>(call.number("addr"));
}

void reg_mr(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_reg_mr_in in{};
  in.pd = rig.pd;
  in.addr = address_of(rig, call);
  in.length = call.number("length", 4096);
  in.exp_access = call.number("access");
  in.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  in.create_flags = static_cast<std::uint32_t>(call.number("flags"));
  auto &mr = rig.mrs[call.text("as", "mr")];
  if (mr != nullptr) ibv_dereg_mr(mr);
  mr = pointer(answer, [&] { return ibv_exp_reg_mr(&in); });
  // With the address that the call may have written there.
  describe(answer, mr, in.addr);
}

void dereg_mr(Rig &rig, const Call &call, Answer &answer) {
  auto &mr = rig.mrs[call.text("mr", "mr")];
  if (mr == nullptr) return;
  number(answer, [&] { return ibv_dereg_mr(mr); });
  mr = nullptr;
}

void prefetch_mr(Rig &rig, const Call &call, Answer &answer) {
  ibv_mr *mr = rig.mrs["mr"];
  if (mr == nullptr) return;
  ibv_exp_prefetch_attr attr{};
  attr.addr = rig.memory;
  attr.length = call.number("length", 4096);
  attr.flags = call.integer("flags");
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] { return ibv_exp_prefetch_mr(mr, &attr); });
}

void reg_shared_mr(Rig &rig, const Call &, Answer &answer) {
  ibv_exp_reg_shared_mr_in in{};
  in.pd = rig.pd;
  in.mr_handle = rig.mr->handle;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  if (ibv_mr *mr = pointer(answer, [&] { return ibv_exp_reg_shared_mr(&in); })) ibv_dereg_mr(mr);
}

void create_mr(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_create_mr_in in{};
  in.pd = rig.pd;
  in.attr.max_klm_list_size = static_cast<std::uint32_t>(call.number("klms"));
  in.attr.create_flags = static_cast<std::uint32_t>(call.number("flags"));
  in.attr.exp_access_flags = call.number("access");
  in.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  auto &mr = rig.mrs["mr"];
  if (mr != nullptr) ibv_dereg_mr(mr);
  mr = pointer(answer, [&] { return ibv_exp_create_mr(&in); });
  describe(answer, mr, reinterpret_cast<void *>(1));
}

void query_mkey(Rig &rig, const Call &call, Answer &answer) {
  ibv_mr *mr = call.has("plain") ? rig.mr : rig.mrs["mr"];
  if (mr == nullptr) return;
  ibv_exp_mkey_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] { return ibv_exp_query_mkey(mr, &attr); });
  set(answer, "klms", attr.max_klm_list_size);
}

void alloc_mkey_list_memory(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_mkey_list_container_attr attr{};
  attr.pd = rig.pd;
  attr.mkey_list_type = static_cast<std::uint32_t>(call.number("type"));
  attr.max_klm_list_size = static_cast<std::uint32_t>(call.number("klms"));
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  if (rig.key_list != nullptr) ibv_exp_dealloc_mkey_list_memory(rig.key_list);
  rig.key_list = pointer(answer, [&] { return ibv_exp_alloc_mkey_list_memory(&attr); });
  if (rig.key_list != nullptr) set(answer, "klms", rig.key_list->max_klm_list_size);
}

void dealloc_mkey_list_memory(Rig &rig, const Call &, Answer &answer) {
  if (rig.key_list == nullptr) return;
  number(answer, [&] { return ibv_exp_dealloc_mkey_list_memory(rig.key_list); });
  rig.key_list = nullptr;
}

void alloc_mw(Rig &rig, const Call &call, Answer &answer) {
  rig.window = pointer(
      answer, [&] { return ibv_alloc_mw(rig.pd, static_cast<ibv_mw_type>(call.integer("type"))); });
  if (rig.window_mr == nullptr)
    rig.window_mr = ibv_reg_mr(rig.pd, rig.memory, 4096, IBV_ACCESS_MW_BIND | 15);
}

void bind_mw(Rig &rig, const Call &call, Answer &answer) {
  if (rig.window == nullptr) return;
  ibv_exp_mw_bind bind{};
  bind.qp = rig.qp(call);
  bind.mw = rig.window;
  bind.wr_id = 7;
  bind.exp_send_flags = call.number("flags", IBV_EXP_SEND_SIGNALED);
  bind.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  const auto mr = call.text("mr", "bindable");
  bind.bind_info.mr = mr == "bindable" ? rig.window_mr : mr == "plain" ? rig.mr : nullptr;
  bind.bind_info.addr = rig.address() + call.number("from");
  bind.bind_info.length = call.number("length", 64);
  bind.bind_info.exp_mw_access_flags = call.number("access", 6);
  const auto key = rig.window->rkey;
  number(answer, [&] { return ibv_exp_bind_mw(&bind); });
  say(answer, "rkey", key == rig.window->rkey ? "kept" : "new");
}

void dealloc_mw(Rig &rig, const Call &, Answer &answer) {
  if (rig.window == nullptr) return;
  number(answer, [&] { return ibv_dealloc_mw(rig.window); });
  rig.window = nullptr;
}

void alloc_dm(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_alloc_dm_attr attr{};
  attr.length = call.number("length");
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  if (ibv_exp_dm *dm = pointer(answer, [&] { return ibv_exp_alloc_dm(rig.context, &attr); }))
    ibv_exp_free_dm(dm);
}

}  // namespace

void add_memory_verbs(Verbs &verbs) {
  verbs["reg_mr"] = reg_mr;
  verbs["dereg_mr"] = dereg_mr;
  verbs["prefetch_mr"] = prefetch_mr;
  verbs["reg_shared_mr"] = reg_shared_mr;
  verbs["create_mr"] = create_mr;
  verbs["query_mkey"] = query_mkey;
  verbs["alloc_mkey_list_memory"] = alloc_mkey_list_memory;
  verbs["dealloc_mkey_list_memory"] = dealloc_mkey_list_memory;
  verbs["alloc_mw"] = alloc_mw;
  verbs["bind_mw"] = bind_mw;
  verbs["dealloc_mw"] = dealloc_mw;
  verbs["alloc_dm"] = alloc_dm;
}

}  // namespace truth
