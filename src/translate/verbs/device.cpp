#include "translate/verbs/device.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/real.h"
#include "base/uncancelled.h"
#include "table/feature_bits.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "trace/tally.h"
#include "translate/convert/device_convert.h"
#include "translate/convert/port_convert.h"
#include "translate/state/context_state.h"
#include "translate/verbs/device_objects.h"
#include "translate/verbs/environment.h"
#include "translate/verbs/hca_caps.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId querying_device = EntryId::ibv_exp_query_device;
constexpr EntryId querying_port = EntryId::ibv_exp_query_port;

// What the options of the process make of a row.
struct Standing {
  bool reportable;
  bool hidden;  // a switch that is off would set it
};
using Standings = std::array<Standing, std::size(features)>;

Standings find_standings() noexcept {
  Standings known{};
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Answer a = feature_row(static_cast<FeatureId>(i)).answer;
    const bool has_switch = is_switch(a.beyond) && info(a.beyond).status == SwitchStatus::done;
    known[i] = {reportable_now(a), has_switch && !reportable_now(a) && !switched_on(a.beyond)};
  }
  return known;
}

// Asked for a hundred rows in each query.
std::atomic<const Standings *> standings;
[[gnu::cold, gnu::noinline]] const Standings *first_standings() noexcept {
  static const Standings found = find_standings();
  standings.store(&found, std::memory_order_release);
  return &found;
}
Standing standing_of(FeatureId id) {
  const Standings *known = standings.load(std::memory_order_acquire);
  if (known == nullptr) [[unlikely]]
    known = first_standings();
  return (*known)[static_cast<std::size_t>(id)];
}

bool reportable_in_process(FeatureId id) { return standing_of(id).reportable; }

// mlx5dv_context as of rdma-core v47, whatever was there when we were built.
struct LaterContext {
  mlx5dv_context dv;
  std::uint64_t max_dc_target_reads, max_dc_initiator_reads;
};
constexpr std::size_t align_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }
constexpr std::size_t before_dc_reads = align_up(
    offsetof(mlx5dv_context, crypto_caps) + sizeof(mlx5dv_crypto_caps), alignof(std::uint64_t));
constexpr std::uint64_t mask_dc_reads = 1 << 14;  // MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM

// Without an answer the device is as one that has none of this.
void query_dv(ibv_context *context, DeviceFacts &facts) {
  LaterContext later{};
  later.dv = facts.dv;
  later.dv.comp_mask |= mask_dc_reads;
  if (mlx5dv_query_device(context, &later.dv) != 0) later = {};
  facts.dv = later.dv;
  if ((later.dv.comp_mask & mask_dc_reads) == 0) return;
  std::uint64_t reads[2];
  std::memcpy(reads, reinterpret_cast<const char *>(&later) + before_dc_reads, sizeof(reads));
  facts.max_dc_target_reads = reads[0];
  facts.max_dc_initiator_reads = reads[1];
}

// Why the answer leaves a row out, at level debug and once per process.
void explain_clear(FeatureId id) {
  const Standing standing = standing_of(id);
  if (standing.hidden) trace::count_hidden(trace::row_index(id));
  if (!log_enabled(LogLevel::debug)) [[likely]]
    return;
  static std::atomic<bool> explained[features.size()];
  if (explained[static_cast<std::size_t>(id)].exchange(true, std::memory_order_relaxed)) return;
  const Feature f = feature_row(id);
  const Answer &a = f.answer;
  const auto because = [&](const char *why, std::string_view what, const char *end) {
    log(LogLevel::debug, "%.*s is clear: %s%.*s%s", static_cast<int>(f.name.size()), f.name.data(),
        why, static_cast<int>(what.size()), what.data(), end);
  };
  if (standing.reportable) because("the device, its kernel or rdma-core does not have it", "", "");
  else if (standing.hidden)
    because("IBVEXP_BEYOND=", info(a.beyond).name, " sets it where the device has it");
  else because("not supported. ", a.note, "");
}

void explain_clear_bits(const ibv_exp_device_attr &attr, std::uint32_t asked) {
  if (!trace::is_counting() && !log_enabled(LogLevel::debug)) [[likely]]
    return;
  const auto explain = [](FeatureBits bits, std::uint64_t clear) {
    for (const FeatureBit &b : bits)
      if ((clear & b.bit) != 0) explain_clear(b.id);
  };
  explain(bits_of<"ibv_exp_device_attr_comp_mask">(), asked & ~attr.comp_mask);
  if ((attr.comp_mask & IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS) != 0)
    explain(bits_of<"ibv_exp_device_cap_flags">(), ~attr.exp_device_cap_flags);
}

// What rdma-core does not say.
void ask_by_commands(ibv_context *context, DeviceFacts &facts) {
  const bool masked =
      facts.engine && reportable_in_process(FeatureId::IBV_EXP_DEVICE_EXT_MASKED_ATOMICS);
  const std::optional<std::uint32_t> sizes = masked ? masked_atomic_sizes(context) : 0u;
  const std::optional<bool> paces = paces_bursts(context);
  facts.masked_atomic_sizes = sizes.value_or(0);
  facts.paces_bursts = paces.value_or(false);
  facts.unanswered = !sizes || !paces;
}

// Shared receive queues of strides, whose queue pairs are InfiniBand's.
bool makes_stride_queues(ibv_context *context) {
  ibv_port_attr port{};
  return ibv_query_port(context, 1, &port) == 0 && port.link_layer != IBV_LINK_LAYER_ETHERNET &&
         reports_stride_queues(context).value_or(false);
}

Result<DeviceFacts> ask(ibv_context *context, bool engine) {
  DeviceFacts facts{};
  if (const auto asked = outcome(ibv_query_device_ex(context, nullptr, &facts.attr)); !asked)
    return asked.failure();
  facts.is_mlx5 = mlx5dv_is_supported(context->device);
  if (!facts.is_mlx5) return facts;
  facts.engine = engine;
  facts.dv.comp_mask = MLX5DV_CONTEXT_MASK_SWP | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS |
                       MLX5DV_CONTEXT_MASK_DYN_BFREGS | MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
  // What only the engine reads.
  if (engine)
    facts.dv.comp_mask |= MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  query_dv(context, facts);
  ask_by_commands(context, facts);
  return facts;
}

// The answers, by device, for as long as some context of it keeps them. The device is there
// that long, and what it says stays the same.
struct Kept {
  const ibv_device *device;
  std::weak_ptr<const DeviceFacts> facts;
};
Mutex keeping;
std::vector<Kept> &kept() {
  static auto &all = *new std::vector<Kept>;
  return all;
}

std::shared_ptr<const DeviceFacts> find_kept(const ibv_device *device, bool engine) {
  const MutexGuard guard(keeping);
  for (const Kept &one : kept())
    if (one.device == device)
      if (auto facts = one.facts.lock(); facts != nullptr && facts->engine == engine) return facts;
  return nullptr;
}

void keep(const ibv_device *device, const std::shared_ptr<const DeviceFacts> &facts) {
  const MutexGuard guard(keeping);
  std::erase_if(kept(), [](const Kept &one) { return one.facts.expired(); });
  kept().push_back({device, facts});
}

[[gnu::noinline]] Result<const DeviceFacts *> ask_for_facts(ContextState &state) {
  const Uncancelled whole;
  ibv_context *const context = state.context;
  const bool engine = state.driver != nullptr && mlx5dv_is_supported(context->device);
  std::shared_ptr<const DeviceFacts> facts = find_kept(context->device, engine);
  if (facts == nullptr) {
    const auto asked = ask(context, engine);
    if (!asked) return asked.failure();
    facts = std::make_shared<const DeviceFacts>(asked.value());
    keep(context->device, facts);
  }
  const MutexGuard guard(state.mutex);
  // The facts of a second thread are dropped: those of the first may be in use.
  if (state.device_facts == nullptr) state.device_facts = std::move(facts);
  state.known_device.store(state.device_facts.get(), std::memory_order_release);
  return state.device_facts.get();
}

Result<const DeviceFacts *> facts_of(ContextState &state) {
  if (const DeviceFacts *known = state.known_device.load(std::memory_order_acquire)) return known;
  return ask_for_facts(state);
}

}  // namespace

// Devices that IBVEXP_DEVICE leaves out stay referenced: the caller's list no longer leads to them.
ibv_device **shown_devices(int *count) noexcept {
  ibv_device **list = real().ibv_get_device_list(count);
  trace::count_search(list != nullptr && *list != nullptr);
  const char *wanted = process_options().device;
  if (list == nullptr || *wanted == '\0') return list;
  int kept = 0;
  for (ibv_device **at = list; *at != nullptr; ++at)
    if (std::strcmp(ibv_get_device_name(*at), wanted) == 0) list[kept++] = *at;
  if (kept == 0)
    log(LogLevel::warn, "IBVEXP_DEVICE=%s: no such device; ibv_devices lists them", wanted);
  list[kept] = nullptr;
  if (count != nullptr) *count = kept;
  return list;
}

Result<void> ask_device_now(ContextState &state) {
  const KeepErrno keep;
  if (state.device().phys_port_cnt == 0) return keep.reason();
  return {};
}

Result<const ibv_device_attr_ex *> extended_device(ContextState &state) {
  const KeepErrno keep;
  const auto known = facts_of(state);
  if (!known) return known.failure();
  return &known.value()->attr;
}

Result<ibv_device **> get_device_list(int *num_devices) {
  const KeepErrno keep;
  ibv_device **list = shown_devices(num_devices);
  if (list == nullptr) return keep.reason(ENOSYS);
  return list;
}

Result<void> query_device(ContextState &state, ibv_context *, ibv_exp_device_attr *attr) {
  if (attr == nullptr) return invalid(querying_device, "attributes", 0, "must not be null");
  const KeepErrno keep;
  const auto known = facts_of(state);
  if (!known) return known.failure();
  DeviceFacts facts = *known.value();
  if (facts.is_mlx5) {
    if (facts.unanswered) [[unlikely]]
      ask_by_commands(state.context, facts);
    constexpr std::uint64_t about_dc = detail::plain(IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS) |
                                       detail::plain(IBV_EXP_DEVICE_ATTR_MAX_DCT) |
                                       detail::plain(IBV_EXP_DEVICE_DC_RD_REQ) |
                                       detail::plain(IBV_EXP_DEVICE_DC_RD_RES);
    constexpr std::uint32_t about_keys =
        IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_UMR;
    facts.dc = (attr->comp_mask & about_dc) != 0 && has_dc(state);
    // rdma-core's data path fills keys on some queue pairs only.
    facts.indirect_keys =
        facts.engine && (attr->comp_mask & about_keys) != 0 && makes_indirect_keys(state);
    facts.masters = facts.engine && (attr->comp_mask & IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS) != 0 &&
                    reportable_in_process(FeatureId::IBV_EXP_DEVICE_CROSS_CHANNEL) &&
                    makes_masters(state);
    facts.stride_queues = facts.engine && (attr->comp_mask & IBV_EXP_DEVICE_ATTR_MP_RQ) != 0 &&
                          reportable_in_process(FeatureId::IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM) &&
                          makes_stride_queues(state.context);
    facts.scatter_to_cqe = scatter_to_connected() != 0;
  }
  const std::uint32_t asked = attr->comp_mask;
  to_legacy(facts, reportable_in_process, *attr);
  explain_clear_bits(*attr, asked);
  return {};
}

Result<void> query_port(ibv_context *context, std::uint8_t port_num, ibv_exp_port_attr *attr) {
  if (attr == nullptr) return invalid(querying_port, "attributes", 0, "must not be null");
  // Inlines ask with 0 for everything, but do so without coming here.
  if ((attr->comp_mask & ~std::uint32_t{IBV_EXP_QUERY_PORT_ATTR_MASKS}) != 0)
    return invalid(querying_port, "comp_mask", attr->comp_mask, "unknown bits");
  std::uint32_t wanted = IBV_EXP_QUERY_PORT_STD_MASK;
  if (attr->comp_mask != 0) {
    wanted = attr->mask1;
    if ((wanted & ~std::uint32_t{IBV_EXP_QUERY_PORT_MASK}) != 0)
      return invalid(querying_port, "mask1", wanted, "unknown bits");
    // The legacy library filled all members of ibv_query_port or none.
    if ((wanted & ~std::uint32_t{IBV_EXP_QUERY_PORT_LINK_LAYER}) != 0)
      wanted = IBV_EXP_QUERY_PORT_STD_MASK;
  }
  const KeepErrno keep;
  ibv_port_attr port{};
  const int error = ibv_query_port(context, port_num, &port);
  if (error > 0) return Error{error};
  if (error < 0) return keep.reason();
  // In most calls it is all of them, which takes no question for each.
  if (wanted == IBV_EXP_QUERY_PORT_STD_MASK) to_legacy(port, IBV_EXP_QUERY_PORT_STD_MASK, *attr);
  else to_legacy(port, wanted, *attr);
  return {};
}

}  // namespace ibvexp::translate
