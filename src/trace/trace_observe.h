// Which words of an entry point's arguments show what a caller asks for: flags,
// masks, opcodes, types. One overload per structure; a word that a mask guards is
// read only if the mask says that it is there. Nothing is judged here, and
// arguments may be null.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/nth.h"
#include "trace/trace.h"

namespace ibvexp::trace {

namespace detail {

// All values of an enum that are no limits, by its name: what bits_of() is for
// flags.
constexpr bool is_value_of(const ibvexp::detail::Valued &v, std::string_view owner) {
  return row(v.id).owner == owner && row(v.id).kind != Kind::limit;
}

template <Literal owner>
consteval auto collect_values() {
  constexpr auto count = std::count_if(ibvexp::detail::values.begin(), ibvexp::detail::values.end(),
                                       [](const auto &v) { return is_value_of(v, owner.view()); });
  static_assert(count > 0, "no such enum in the tables");
  std::array<FeatureBit, count> out{};
  std::size_t n = 0;
  for (const auto &v : ibvexp::detail::values)
    if (is_value_of(v, owner.view())) out[n++] = {v.value, v.id};
  return out;
}

template <Literal owner>
inline constexpr auto values = collect_values<owner>();

// A word of flags, or one value, by the name of the enum.
template <Literal owner>
void flags(Call &call, const char *field, std::uint64_t word) {
  call.flags(field, word, bits_of<owner>());
}
template <Literal owner, class T>
void value(Call &call, const char *field, T word) {
  call.value(field, ibvexp::detail::plain(word), detail::values<owner>);
}

// The legacy numbers of types that share an enum with rdma-core's.
inline constexpr FeatureBit qp_types[] = {
    {IBV_EXP_QPT_DC_INI, FeatureId::qpt_dc_ini},
};

}  // namespace detail

// What has nothing to show.
template <class T>
void look(Call &, const T &) noexcept {}

inline void look(Call &call, const ibv_exp_device_attr *attr) noexcept {
  if (attr == nullptr) return;
  detail::flags<"ibv_exp_device_attr_comp_mask">(call, "comp_mask", attr->comp_mask);
  if ((attr->comp_mask & static_cast<std::uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2)) != 0)
    detail::flags<"ibv_exp_device_attr_comp_mask_2">(call, "comp_mask_2", attr->comp_mask_2);
}

inline void look(Call &call, const ibv_exp_port_attr *attr) noexcept {
  if (attr == nullptr) return;
  detail::flags<"ibv_exp_query_port_attr_comp_mask">(call, "comp_mask", attr->comp_mask);
  if ((attr->comp_mask & IBV_EXP_QUERY_PORT_ATTR_MASK1) != 0)
    detail::flags<"query_port_mask">(call, "mask1", attr->mask1);
}

inline void look(Call &call, const ibv_exp_gid_attr *attr) noexcept {
  if (attr != nullptr) detail::flags<"ibv_exp_query_gid_attr">(call, "comp_mask", attr->comp_mask);
}

inline void look(Call &call, const ibv_exp_qp_init_attr *attr) noexcept {
  if (attr == nullptr) return;
  call.value("qp_type", attr->qp_type, detail::qp_types);
  detail::flags<"ibv_exp_qp_init_attr_comp_mask">(call, "comp_mask", attr->comp_mask);
  if ((attr->comp_mask & IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS) != 0)
    detail::flags<"ibv_exp_qp_create_flags">(call, "exp_create_flags", attr->exp_create_flags);
  if ((attr->comp_mask & IBV_EXP_QP_INIT_ATTR_QPG) != 0)
    detail::value<"ibv_exp_qpg_type">(call, "qpg.qpg_type",
                                      static_cast<ibv_exp_qpg_type>(attr->qpg.qpg_type));
}

inline void look(Call &call, const ibv_exp_qp_attr *attr) noexcept {
  if (attr != nullptr)
    detail::flags<"ibv_exp_qp_attr_comp_mask">(call, "comp_mask", attr->comp_mask);
}

inline void look(Call &call, const ibv_exp_send_wr *wr) noexcept {
  for (; wr != nullptr; wr = wr->next) {
    detail::value<"ibv_exp_wr_opcode">(call, "exp_opcode", wr->exp_opcode);
    detail::flags<"ibv_exp_send_flags">(call, "exp_send_flags", wr->exp_send_flags);
  }
}

inline void look(Call &call, const ibv_exp_task *task) noexcept {
  for (; task != nullptr; task = task->next)
    detail::value<"ibv_exp_task_type">(call, "task_type", task->task_type);
}

inline void look(Call &call, const ibv_exp_dct_init_attr *attr) noexcept {
  if (attr == nullptr) return;
  detail::flags<"ibv_exp_dct_create_flags">(call, "create_flags", attr->create_flags);
}

inline void look(Call &call, const ibv_exp_cq_init_attr *attr) noexcept {
  if (attr == nullptr) return;
  detail::flags<"ibv_exp_cq_init_attr_mask">(call, "comp_mask", attr->comp_mask);
  if ((attr->comp_mask & IBV_EXP_CQ_INIT_ATTR_FLAGS) != 0)
    detail::flags<"ibv_exp_cq_create_flags">(call, "flags", attr->flags);
}

inline void look(Call &call, const ibv_exp_cq_attr *attr) noexcept {
  if (attr != nullptr)
    detail::flags<"ibv_exp_cq_attr_comp_mask">(call, "comp_mask", attr->comp_mask);
}

inline void look(Call &call, const ibv_exp_values *values) noexcept {
  if (values != nullptr)
    detail::flags<"ibv_exp_values_comp_mask">(call, "comp_mask", values->comp_mask);
}

inline void look(Call &call, const ibv_exp_reg_mr_in *in) noexcept {
  if (in == nullptr) return;
  detail::flags<"ibv_exp_access_flags">(call, "exp_access", in->exp_access);
  detail::flags<"ibv_exp_reg_mr_in_comp_mask">(call, "comp_mask", in->comp_mask);
  if ((in->comp_mask & IBV_EXP_REG_MR_CREATE_FLAGS) != 0)
    detail::flags<"ibv_exp_reg_mr_create_flags">(call, "create_flags", in->create_flags);
}

inline void look(Call &call, const ibv_exp_prefetch_attr *attr) noexcept {
  if (attr != nullptr) detail::flags<"ibv_exp_prefetch_attr_flags">(call, "flags", attr->flags);
}

inline void look(Call &call, const ibv_exp_create_mr_in *in) noexcept {
  if (in == nullptr) return;
  detail::flags<"ibv_exp_mr_create_flags">(call, "attr.create_flags", in->attr.create_flags);
  detail::flags<"ibv_exp_access_flags">(call, "attr.exp_access_flags", in->attr.exp_access_flags);
}

inline void look(Call &call, const ibv_exp_mkey_list_container_attr *attr) noexcept {
  if (attr != nullptr)
    call.value("mkey_list_type", attr->mkey_list_type, detail::values<"ibv_exp_mkey_list_type">);
}

inline void look(Call &call, const ibv_exp_memcpy_dm_attr *attr) noexcept {
  if (attr != nullptr) detail::value<"ibv_exp_dm_memcpy_dir">(call, "memcpy_dir", attr->memcpy_dir);
}

inline void look(Call &call, const ibv_exp_mw_bind *bind) noexcept {
  if (bind == nullptr) return;
  detail::flags<"ibv_exp_send_flags">(call, "exp_send_flags", bind->exp_send_flags);
  detail::flags<"ibv_exp_access_flags">(call, "bind_info.exp_mw_access_flags",
                                        bind->bind_info.exp_mw_access_flags);
}

// Specifications follow the attributes, each with its type and size in front.
inline void look(Call &call, const ibv_exp_flow_attr *attr) noexcept {
  if (attr == nullptr) return;
  detail::value<"ibv_exp_flow_attr_type">(call, "type", attr->type);
  detail::flags<"ibv_exp_flow_flags">(call, "flags", attr->flags);
  const char *at = reinterpret_cast<const char *>(attr + 1);
  for (int i = 0; i < attr->num_of_specs; ++i) {
    const auto *spec = reinterpret_cast<const ibv_exp_flow_spec *>(at);
    const auto type = static_cast<unsigned>(spec->hdr.type);
    call.value("spec.type", type & ~unsigned{IBV_EXP_FLOW_SPEC_INNER},
               detail::values<"ibv_exp_flow_spec_type">);
    if ((type & IBV_EXP_FLOW_SPEC_INNER) != 0)
      call.value("spec.type", IBV_EXP_FLOW_SPEC_INNER, detail::values<"ibv_exp_flow_spec_type">);
    if (spec->hdr.size == 0) return;
    at += spec->hdr.size;
  }
}

inline void look(Call &call, const ibv_exp_wq_init_attr *attr) noexcept {
  if (attr == nullptr) return;
  detail::value<"ibv_exp_wq_type">(call, "wq_type", attr->wq_type);
  detail::flags<"ibv_exp_wq_init_attr_mask">(call, "comp_mask", attr->comp_mask);
  if ((attr->comp_mask & IBV_EXP_CREATE_WQ_VLAN_OFFLOADS) != 0)
    detail::flags<"ibv_exp_vlan_offloads">(call, "vlan_offloads", attr->vlan_offloads);
  if ((attr->comp_mask & IBV_EXP_CREATE_WQ_FLAGS) != 0)
    detail::flags<"ibv_exp_wq_init_attr_flags">(call, "flags", attr->flags);
}

inline void look(Call &call, const ibv_exp_wq_attr *attr) noexcept {
  if (attr != nullptr) detail::flags<"ibv_exp_wq_attr_mask">(call, "attr_mask", attr->attr_mask);
}

inline void look(Call &call, const ibv_exp_create_srq_attr *attr) noexcept {
  if (attr == nullptr) return;
  detail::value<"ibv_exp_srq_type">(call, "srq_type", attr->srq_type);
  detail::flags<"ibv_exp_create_srq_comp_mask">(call, "comp_mask", attr->comp_mask);
}

inline void look(Call &call, const ibv_exp_ops_wr *wr) noexcept {
  for (; wr != nullptr; wr = wr->next)
    detail::value<"ibv_exp_ops_wr_opcode">(call, "opcode", wr->opcode);
}

inline void look(Call &call, const ibv_exp_query_intf_params *params) noexcept {
  if (params == nullptr) return;
  detail::value<"ibv_exp_intf_scope">(call, "intf_scope", params->intf_scope);
  call.value("intf", params->intf, detail::values<"ibv_exp_intf_family">);
  detail::flags<"ibv_exp_query_intf_flags">(call, "flags", params->flags);
}

inline void look(Call &call, const ibv_exp_res_domain_init_attr *attr) noexcept {
  if (attr == nullptr) return;
  if ((attr->comp_mask & IBV_EXP_RES_DOMAIN_THREAD_MODEL) != 0)
    detail::value<"ibv_exp_thread_model">(call, "thread_model", attr->thread_model);
  if ((attr->comp_mask & IBV_EXP_RES_DOMAIN_MSG_MODEL) != 0)
    detail::value<"ibv_exp_msg_model">(call, "msg_model", attr->msg_model);
}

// Pointers lose their const on the way in.
template <class T>
void look_at(Call &call, T argument) noexcept {
  if constexpr (std::is_pointer_v<T> && std::is_class_v<std::remove_pointer_t<T>>)
    look(call, static_cast<const std::remove_pointer_t<T> *>(argument));
}

// Before the call. Masks that are arguments of their own belong to a verb.
template <EntryId id, class... Args>
void before(Call &call, Args... arguments) noexcept {
  (look_at(call, arguments), ...);
  if constexpr (id == EntryId::ibv_exp_modify_qp)
    detail::flags<"ibv_exp_qp_attr_mask">(call, "exp_attr_mask", nth<2>(arguments...));
  if constexpr (id == EntryId::ibv_exp_modify_cq)
    detail::flags<"ibv_exp_cq_attr_mask">(call, "cq_attr_mask",
                                          static_cast<unsigned>(nth<2>(arguments...)));
  if constexpr (id == EntryId::ibv_exp_rereg_mr)
    detail::flags<"ibv_exp_access_flags">(call, "access", nth<5>(arguments...));
  if constexpr (id == EntryId::ibv_exp_query_values)
    detail::flags<"ibv_exp_values_comp_mask">(call, "q_values",
                                              static_cast<unsigned>(nth<1>(arguments...)));
  if constexpr (id == EntryId::ibv_exp_get_provider_func)
    detail::value<"ibv_exp_func_name">(call, "name", nth<1>(arguments...));
}

// After it: what came back less than asked for, how far a chain came, what
// completions there are.
template <EntryId id, class R, class... Args>
void after(Call &call, [[maybe_unused]] R result, Args... arguments) noexcept {
  if constexpr (id == EntryId::ibv_exp_query_device) {
    if (call.failed()) return;
    const ibv_exp_device_attr *attr = nth<1>(arguments...);
    explain("comp_mask", attr->comp_mask, "all that is returned");
    for (const FeatureBit &b : bits_of<"ibv_exp_device_attr_comp_mask">())
      if ((attr->comp_mask & b.bit) == 0) call.withhold(b.id);
    if ((attr->comp_mask & static_cast<std::uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2)) != 0)
      for (const FeatureBit &b : bits_of<"ibv_exp_device_attr_comp_mask_2">())
        if ((attr->comp_mask_2 & b.bit) == 0) call.withhold(b.id);
  }
  if constexpr (id == EntryId::ibv_exp_post_send) {
    if (!call.failed()) return;
    ibv_exp_send_wr **bad = nth<2>(arguments...);
    if (bad == nullptr) return;
    for (const ibv_exp_send_wr *wr = nth<1>(arguments...); wr != nullptr && wr != *bad;
         wr = wr->next) {
      call.achieved_value(static_cast<unsigned>(wr->exp_opcode),
                          detail::values<"ibv_exp_wr_opcode">);
      call.achieved(wr->exp_send_flags, bits_of<"ibv_exp_send_flags">());
    }
  }
  if constexpr (id == EntryId::ibv_exp_poll_cq) {
    const auto stride = nth<3>(arguments...);
    const char *at = reinterpret_cast<const char *>(nth<2>(arguments...));
    for (int i = 0; i < result; ++i, at += stride) {
      ibv_exp_wc_opcode opcode;
      std::memcpy(&opcode, at + offsetof(ibv_exp_wc, exp_opcode), sizeof(opcode));
      call.brought_value(ibvexp::detail::plain(opcode), detail::values<"ibv_exp_wc_opcode">);
      // Elsewhere in the structure of earlier releases.
      if (stride < sizeof(ibv_exp_wc)) continue;
      std::uint64_t flags;
      std::memcpy(&flags, at + offsetof(ibv_exp_wc, exp_wc_flags), sizeof(flags));
      call.brought(flags, bits_of<"ibv_exp_wc_flags">());
    }
  }
}

}  // namespace ibvexp::trace
