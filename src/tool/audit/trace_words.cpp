#include "tool/audit/trace_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "table/feature_bits.h"

namespace ibvexp::audit {
namespace {

// Which enum a word is of. Without entry point: the same in all.
struct KnownWord {
  std::string_view entry, field, owner;
};
constexpr auto known = std::to_array<KnownWord>({
    {"", "comp_mask_2", "ibv_exp_device_attr_comp_mask_2"},
    {"", "exp_create_flags", "ibv_exp_qp_create_flags"},
    {"", "qpg.qpg_type", "ibv_exp_qpg_type"},
    {"", "exp_opcode", "ibv_exp_wr_opcode"},
    {"", "exp_send_flags", "ibv_exp_send_flags"},
    {"", "task_type", "ibv_exp_task_type"},
    {"", "exp_access", "ibv_exp_access_flags"},
    {"", "access", "ibv_exp_access_flags"},
    {"", "attr.create_flags", "ibv_exp_mr_create_flags"},
    {"", "attr.exp_access_flags", "ibv_exp_access_flags"},
    {"", "bind_info.exp_mw_access_flags", "ibv_exp_access_flags"},
    {"", "mkey_list_type", "ibv_exp_mkey_list_type"},
    {"", "memcpy_dir", "ibv_exp_dm_memcpy_dir"},
    {"", "spec.type", "ibv_exp_flow_spec_type"},
    {"", "wq_type", "ibv_exp_wq_type"},
    {"", "vlan_offloads", "ibv_exp_vlan_offloads"},
    {"", "srq_type", "ibv_exp_srq_type"},
    {"", "intf_scope", "ibv_exp_intf_scope"},
    {"", "intf", "ibv_exp_intf_family"},
    {"", "thread_model", "ibv_exp_thread_model"},
    {"", "msg_model", "ibv_exp_msg_model"},
    {"", "exp_attr_mask", "ibv_exp_qp_attr_mask"},
    {"", "cq_attr_mask", "ibv_exp_cq_attr_mask"},
    {"", "q_values", "ibv_exp_values_comp_mask"},
    {"", "mask1", "query_port_mask"},
    {"", "opcode", "ibv_exp_ops_wr_opcode"},
    {"", "attr_mask", "ibv_exp_wq_attr_mask"},
    {"", "name", "ibv_exp_func_name"},
    {"ibv_exp_query_device", "comp_mask", "ibv_exp_device_attr_comp_mask"},
    {"ibv_exp_query_port", "comp_mask", "ibv_exp_query_port_attr_comp_mask"},
    {"ibv_exp_query_gid_attr", "comp_mask", "ibv_exp_query_gid_attr"},
    {"ibv_exp_create_qp", "comp_mask", "ibv_exp_qp_init_attr_comp_mask"},
    {"rdma_create_qp_exp", "comp_mask", "ibv_exp_qp_init_attr_comp_mask"},
    {"ibv_exp_modify_qp", "comp_mask", "ibv_exp_qp_attr_comp_mask"},
    {"ibv_exp_create_dct", "create_flags", "ibv_exp_dct_create_flags"},
    {"ibv_exp_create_cq", "comp_mask", "ibv_exp_cq_init_attr_mask"},
    {"ibv_exp_create_cq", "flags", "ibv_exp_cq_create_flags"},
    {"ibv_exp_modify_cq", "comp_mask", "ibv_exp_cq_attr_comp_mask"},
    {"ibv_exp_query_values", "comp_mask", "ibv_exp_values_comp_mask"},
    {"ibv_exp_reg_mr", "comp_mask", "ibv_exp_reg_mr_in_comp_mask"},
    {"ibv_exp_reg_mr", "create_flags", "ibv_exp_reg_mr_create_flags"},
    {"ibv_exp_prefetch_mr", "flags", "ibv_exp_prefetch_attr_flags"},
    {"ibv_exp_create_flow", "type", "ibv_exp_flow_attr_type"},
    {"ibv_exp_create_flow", "flags", "ibv_exp_flow_flags"},
    {"ibv_exp_create_wq", "comp_mask", "ibv_exp_wq_init_attr_mask"},
    {"ibv_exp_create_wq", "flags", "ibv_exp_wq_init_attr_flags"},
    {"ibv_exp_create_srq", "comp_mask", "ibv_exp_create_srq_comp_mask"},
    {"ibv_exp_query_intf", "flags", "ibv_exp_query_intf_flags"},
});

constexpr bool belongs(const detail::Valued &v, std::string_view owner) {
  return row(v.id).owner == owner && row(v.id).kind != Kind::limit;
}

// An enum without rows would leave its words unnamed for ever.
static_assert(std::all_of(known.begin(), known.end(), [](const KnownWord &word) {
  return std::any_of(detail::values.begin(), detail::values.end(),
                     [&](const auto &v) { return belongs(v, word.owner); });
}));

bool are_bits(std::string_view owner) {
  return std::any_of(detail::values.begin(), detail::values.end(), [&](const auto &v) {
    const Kind kind = row(v.id).kind;
    return belongs(v, owner) &&
           (kind == Kind::mask || kind == Kind::flag || kind == Kind::capability);
  });
}

std::string name_bits(std::string_view owner, std::uint64_t word) {
  std::string out;
  const auto add = [&](std::string_view text) {
    if (!out.empty()) out += " | ";
    out += text;
  };
  for (const auto &v : detail::values) {
    if (!detail::is_bit_of(v, owner) || (word & v.value) == 0) continue;
    add(row(v.id).name);
    word &= ~v.value;
  }
  if (word != 0 || out.empty()) add(word == 0 ? "0" : fmt::format("{:#x}", word));
  return out;
}

std::string name_value(std::string_view owner, std::uint64_t word) {
  for (const auto &v : detail::values)
    if (belongs(v, owner) && v.value == word) return std::string(row(v.id).name);
  return fmt::format("{:#x}", word);
}

// "exp_create_flags 0x4"
std::string name_word(std::string_view entry, std::string_view text) {
  const std::size_t space = text.find(" 0x");
  if (space == std::string_view::npos) return std::string(text);
  const std::string_view field = text.substr(0, space), digits = text.substr(space + 3);
  const auto found = std::find_if(known.begin(), known.end(), [&](const KnownWord &word) {
    return word.field == field && (word.entry.empty() || word.entry == entry);
  });
  std::uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  // Cut off, perhaps.
  if (found == known.end() || error != std::errc() || end != digits.data() + digits.size())
    return std::string(text);
  return fmt::format(
      "{} {}", field,
      are_bits(found->owner) ? name_bits(found->owner, number) : name_value(found->owner, number));
}

}  // namespace

std::string name_words(std::string_view entry, std::string_view words) {
  std::string out;
  while (!words.empty()) {
    const std::size_t comma = words.find(", ");
    if (!out.empty()) out += ", ";
    out += name_word(entry, words.substr(0, comma));
    words = comma == std::string_view::npos ? std::string_view() : words.substr(comma + 2);
  }
  return out;
}

}  // namespace ibvexp::audit
