#include "translate/queue/engine/bind_window.h"

#include <array>
#include <cerrno>
#include <type_traits>

#include "translate/convert/access_convert.h"
#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/engine/key_segments.h"
#include "translate/queue/engine/request.h"
#include "translate/queue/umr_layout.h"

namespace ibvexp::engine {

namespace {

using translate::access_rights;

// A WQE has these parts, each in a block: control segment and what changes, the new context of
// the key, and the memory of a window that is bound.
constexpr std::uint32_t unbinding_segments = 8, binding_blocks = 3;

constexpr std::uint64_t change_flags =
    MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
constexpr std::uint64_t unbound =
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
constexpr std::uint64_t bound = unbound | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
                                MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | mask_rights;

// The requests of the base and the experimental verb differ in windows that begin at 0 only.
bool from_zero(const ibv_send_wr &wr) {
  return (wr.bind_mw.bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0;
}
bool from_zero(const ibv_exp_send_wr &wr) {
  return (wr.bind_mw.bind_info.exp_mw_access_flags & IBV_EXP_ACCESS_MW_ZERO_BASED) != 0;
}
std::uint64_t access_of(const ibv_send_wr &wr) { return wr.bind_mw.bind_info.mw_access_flags; }
std::uint64_t access_of(const ibv_exp_send_wr &wr) {
  return wr.bind_mw.bind_info.exp_mw_access_flags;
}

// By access, as the context of a key has them. Local reading comes with the window.
constexpr auto rights = [] {
  static_assert(access_rights == 0x1f);
  std::array<std::uint8_t, access_rights + 1> of{};
  for (std::uint64_t access = 0; access < of.size(); ++access)
    of[access] = static_cast<std::uint8_t>(queue::key_rights(access) &
                                           ~MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ);
  return of;
}();

bool takes_windows(const SendQueue &queue) {
  return queue.windows && queue.transport != Transport::ud &&
         queue.transport != Transport::raw_packet;
}

// The window of that key goes: of type 2 the device looks that it is this queue pair's.
int put_unbinding(SendQueue &queue, std::uint32_t key, std::uint32_t tag, bool of_queue_pair,
                  std::uint64_t flags, std::uint64_t wr_id, std::uint32_t completion_opcode) {
  EntryWriter entry(queue);
  if (!entry.fits(unbinding_segments)) return ENOMEM;
  if (of_queue_pair)
    put_change(entry.rest_of_block(), change_flags | MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN, 0,
               unbound | MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN);
  else put_change(entry.rest_of_block(), change_flags, 0, unbound);
  put_context(entry.block(), context_head(MLX5_WQE_MKEY_CONTEXT_FREE, 0, any_owner, tag), 0, 0);
  entry.commit(MLX5_OPCODE_UMR, 0, flags, be(key), wr_id, completion_opcode);
  entry.fence_next();
  return 0;
}

// Returns the first eight bytes.
template <class Wr>
[[gnu::always_inline]] inline std::uint64_t put_entry(const SendQueue &queue, std::uint8_t *at,
                                                      std::uint32_t posted, const Wr &wr) {
  const auto &bind = wr.bind_mw;
  const std::uint64_t flags = flags_of(wr), address = bind.bind_info.addr,
                      length = bind.bind_info.length;
  const bool second = bind.mw->type == IBV_MW_TYPE_2;
  const std::uint32_t key = bind.mw->rkey, region = bind.bind_info.mr->lkey, rkey = bind.rkey;
  const std::uint64_t start = from_zero(wr) ? 0 : address, access = access_of(wr);
  std::uint32_t control = queue.control[flags & 7];
  if ((flags & IBV_SEND_FENCE) == 0) control |= queue.fence;
  const std::uint64_t head = control_head(posted, MLX5_OPCODE_UMR, queue.number,
                                          binding_blocks * block_bytes / segment_bytes);
  write_control(at, head, control, be(key));
  put_change(at + segment_bytes,
             second ? change_flags | MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE : change_flags,
             block_bytes / segment_bytes, second ? bound | MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN : bound);
  // The new tag is in the context, the entry is for the window as it is.
  put_context(
      at + block_bytes,
      context_head(0, rights[access & access_rights], second ? queue.number : any_owner, rkey),
      start, length);
  std::uint8_t *const piece = at + 2 * block_bytes;
  // 0 means the largest one.
  write_data(piece, address, static_cast<std::uint32_t>(length & (queue::largest_piece - 1)),
             region);
  std::memset(piece + segment_bytes, 0, block_bytes - segment_bytes);
  return head;
}

// The same over the end of the ring.
template <class Wr>
[[gnu::noinline, gnu::cold]] std::uint64_t put_over_end(const SendQueue &queue, std::uint8_t *entry,
                                                        std::uint32_t posted, const Wr &wr) {
  std::uint8_t image[binding_blocks * block_bytes];
  const std::uint64_t head = put_entry(queue, image, posted, wr);
  const auto part = static_cast<std::size_t>(queue.end - entry);
  std::memcpy(entry, image, part);
  std::memcpy(queue.begin, image + part, sizeof(image) - part);
  return head;
}

// Into a queue that takes windows, and has room for an entry.
template <class Wr>
[[gnu::always_inline]] inline bool is_usual(const SendQueue &queue, const Wr &wr) {
  const auto &bind = wr.bind_mw;
  if constexpr (std::is_same_v<Wr, ibv_exp_send_wr>)
    if ((wr.exp_send_flags & queue.refused_flags) != 0) return false;
  return bind.mw != nullptr && bind.bind_info.mr != nullptr &&
         bind.bind_info.length - 1 < queue::largest_piece;
}

// Writes the entry of a request whose members are good. Its first eight bytes.
template <class Wr>
[[gnu::always_inline]] inline std::uint64_t put_one(SendQueue &queue, const Wr &wr,
                                                    std::uint32_t posted, std::uint32_t count) {
  const std::uint32_t slot = posted & queue.mask;
  std::uint8_t *const entry = queue.begin + (std::size_t{slot} << log_block);
  const bool whole = static_cast<std::size_t>(queue.end - entry) >= binding_blocks * block_bytes;
  const std::uint64_t head =
      whole ? put_entry(queue, entry, posted, wr) : put_over_end(queue, entry, posted, wr);
  // The next entry waits until the window is there.
  queue.fence = MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
  queue.sent[slot] = {wr.wr_id, std::uint64_t{IBV_EXP_WC_BIND_MW} << 32 | count};
  return head;
}

template <class Wr>
[[gnu::always_inline]] inline Written<Wr> put_all(SendQueue &queue, Wr *wr, std::uint32_t limit) {
  Written<Wr> done;
  if (!takes_windows(queue) || queue.max_blocks < binding_blocks) [[unlikely]]
    return done;
  std::uint32_t posted = *queue.posted, count = queue.count;
  for (; wr != nullptr && opcode_of(*wr) == IBV_EXP_WR_BIND_MW && count != limit; wr = wr->next) {
    if (!is_usual(queue, *wr)) [[unlikely]]
      break;
    done = {wr, put_one(queue, *wr, posted, count)};
    posted += binding_blocks;
    ++count;
  }
  queue.count = count;
  *queue.posted = posted;
  return done;
}

template <class Wr>
int put(SendQueue &queue, const Wr &wr) {
  const auto &bind = wr.bind_mw;
  if (!takes_windows(queue) || bind.mw == nullptr) [[unlikely]]
    return EINVAL;
  if (bind.bind_info.length == 0) [[unlikely]]
    return put_unbinding(queue, bind.mw->rkey, bind.rkey, bind.mw->type == IBV_MW_TYPE_2,
                         flags_of(wr), wr.wr_id, IBV_EXP_WC_BIND_MW);
  if (bind.bind_info.mr == nullptr) [[unlikely]]
    return EINVAL;
  if (bind.bind_info.length > queue::largest_piece) [[unlikely]]
    return EOPNOTSUPP;
  if (queue.max_blocks < binding_blocks) [[unlikely]]
    return ENOMEM;
  put_one(queue, wr, *queue.posted, queue.count);
  *queue.posted += binding_blocks;
  ++queue.count;
  return 0;
}

}  // namespace

int put_invalidation(SendQueue &queue, std::uint32_t rkey, std::uint64_t flags,
                     std::uint64_t wr_id) {
  if (!takes_windows(queue)) return EINVAL;
  return put_unbinding(queue, rkey, 0, true, flags, wr_id, IBV_EXP_WC_LOCAL_INV);
}

Written<ibv_send_wr> put_bindings(SendQueue &queue, ibv_send_wr *wr, std::uint32_t limit) {
  return put_all(queue, wr, limit);
}
Written<ibv_exp_send_wr> put_bindings(SendQueue &queue, ibv_exp_send_wr *wr, std::uint32_t limit) {
  return put_all(queue, wr, limit);
}

int put_binding(SendQueue &queue, const ibv_send_wr &wr) { return put(queue, wr); }
int put_binding(SendQueue &queue, const ibv_exp_send_wr &wr) { return put(queue, wr); }

}  // namespace ibvexp::engine
