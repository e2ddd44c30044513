#include "translate/verbs/hca_caps.h"

#include <infiniband/mlx5dv.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <memory>

namespace ibvexp::translate {

namespace {

enum class Page : std::uint32_t {
  general = 0,
  atomics = 3,
  quality_of_service = 0xc,
  events = 0x14
};

// On the heap: programs call verbs on stacks of 16 KiB.
struct Answer {
  std::array<__be32, 4> header;
  std::array<__be32, 1024> words;  // in the device's byte order
};

// QUERY_HCA_CAP, current values; null if it cannot be asked. Throws bad_alloc.
std::unique_ptr<const Answer> query(ibv_context *context, Page page) {
  constexpr std::uint32_t query_hca_cap = 0x100, current = 1;
  auto out = std::make_unique<Answer>();
  std::array<__be32, 4> in{htobe32(query_hca_cap << 16),
                           htobe32(static_cast<std::uint32_t>(page) << 1 | current)};
  if (mlx5dv_devx_general_cmd(context, in.data(), sizeof(in), out.get(), sizeof(*out)) != 0)
    return nullptr;
  return out;
}

// After query(): whether the kernel or the device will refuse the question again.
bool is_refused() {
  return errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS || errno == EREMOTEIO;
}

}  // namespace

std::optional<std::uint32_t> masked_atomic_sizes(ibv_context *context) {
  constexpr std::uint32_t extended_compare_swap = 4, extended_fetch_add = 8;
  // What a request can express: 4 to 32 bytes.
  constexpr std::uint32_t expressible = 0x3c;
  const auto page = query(context, Page::atomics);
  if (page == nullptr) return is_refused() ? std::optional(0u) : std::nullopt;
  const std::uint32_t operations = be32toh(page->words[4]);
  const std::uint32_t connected = be32toh(page->words[5]), dc = be32toh(page->words[6]);
  if ((operations & extended_compare_swap) == 0 || (operations & extended_fetch_add) == 0) return 0;
  return connected & dc & expressible;
}

std::optional<std::uint32_t> target_atomic_mode(ibv_context *context) {
  constexpr std::uint32_t plain = 3, extended = 0xc, as_in_the_specification = 1, eight_bytes = 3;
  const auto page = query(context, Page::atomics);
  if (page == nullptr) return {};
  const std::uint32_t operations = be32toh(page->words[4]);
  const std::uint32_t sizes = be32toh(page->words[6]) & 0xffff;
  // Modes above count as sizes do, in powers of two.
  if ((operations & extended) != 0 && sizes >> eight_bytes != 0)
    return static_cast<std::uint32_t>(std::bit_width(sizes)) - 1;
  return (operations & plain) == plain ? as_in_the_specification : 0;
}

std::optional<bool> reports_dc(ibv_context *context) {
  constexpr std::uint32_t dct = 1u << 5;
  const auto page = query(context, Page::general);
  if (page == nullptr) return {};
  return (be32toh(page->words[16]) & dct) != 0;
}

std::optional<bool> reports_key_entries(ibv_context *context, std::uint32_t entries) {
  const auto page = query(context, Page::general);
  if (page == nullptr) return {};
  const std::uint32_t log_most = be32toh(page->words[8]) & 0x3f;
  return log_most < 32 && entries <= std::uint32_t{1} << log_most;
}

std::optional<bool> reports_stride_queues(ibv_context *context) {
  // ib_striding_wq_cq_first_indication and ib_cyclic_striding_wq; ext_stride_num_range; tag_matching.
  constexpr std::uint32_t strides = 1u << 26 | 1u << 12, few_strides = 1u << 31, tags = 1u << 15;
  const auto page = query(context, Page::general);
  if (page == nullptr) return {};
  return (be32toh(page->words[17]) & strides) == strides &&
         (be32toh(page->words[29]) & few_strides) != 0 && (be32toh(page->words[47]) & tags) != 0;
}

std::optional<bool> reports_object_event(ibv_context *context, std::uint8_t event) {
  constexpr std::uint32_t event_cap = 1u << 15;
  const auto general = query(context, Page::general);
  if (general == nullptr) return {};
  if ((be32toh(general->words[4]) & event_cap) == 0) return false;
  const auto page = query(context, Page::events);
  if (page == nullptr) return {};
  // user_affiliated_events: numbers of 64 bits.
  const std::size_t word = event / 64 * 2 + (event % 64 < 32 ? 1 : 0);
  return (be32toh(page->words[word]) >> event % 32 & 1) != 0;
}

std::optional<std::uint32_t> largest_send_queue(ibv_context *context) {
  const auto page = query(context, Page::general);
  if (page == nullptr) return {};
  return std::uint32_t{1} << (be32toh(page->words[4]) >> 16 & 0x1f);
}

std::optional<bool> paces_bursts(ibv_context *context) {
  constexpr std::uint32_t pacing = 1u << 31, burst_bound = 1u << 26, typical_size = 1u << 25;
  constexpr std::uint32_t all = pacing | burst_bound | typical_size;
  const auto page = query(context, Page::quality_of_service);
  if (page == nullptr) return is_refused() ? std::optional(false) : std::nullopt;
  return (be32toh(page->words[0]) & all) == all;
}

}  // namespace ibvexp::translate
