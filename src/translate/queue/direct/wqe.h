// Entries of send and receive queues, as the device reads them. No calls, no
// state: images written into the memory that is given.
//
// A send queue is a ring of blocks of 64 bytes, an entry one or more of them,
// made of segments of 16 bytes. Layouts: mlx5dv.h.
#pragma once

#include <infiniband/mlx5dv.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ibvexp::direct {

inline constexpr std::size_t block_bytes = 64;
inline constexpr std::size_t segment_bytes = 16;
inline constexpr unsigned max_segments = 63;  // six bits of the control segment

// Ethernet headers have to be in the entry itself. This much is enough for every
// inline mode that a device may be in.
inline constexpr std::uint32_t eth_inline_bytes = 18;
inline constexpr std::uint32_t vlan_tag_bytes = 4;
inline constexpr std::uint32_t mac_bytes = 12;
inline constexpr std::uint32_t ethertype_vlan = 0x8100;

constexpr std::uint16_t be(std::uint16_t v) { return __builtin_bswap16(v); }
constexpr std::uint32_t be(std::uint32_t v) { return __builtin_bswap32(v); }
constexpr std::uint64_t be(std::uint64_t v) { return __builtin_bswap64(v); }
static_assert(std::endian::native == std::endian::little);

template <class T>
T load(const void *at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
template <class T>
void store(void *at, T value) {
  std::memcpy(at, &value, sizeof(value));
}
template <class T>
T load_be(const void *at) {
  return be(load<T>(at));
}
inline std::uint8_t *byte_at(void *base, std::size_t offset) {
  return static_cast<std::uint8_t *>(base) + offset;
}

constexpr unsigned segments_of(std::size_t bytes) {
  return static_cast<unsigned>((bytes + segment_bytes - 1) / segment_bytes);
}
constexpr unsigned blocks_of(unsigned segments) {
  return (segments + block_bytes / segment_bytes - 1) / (block_bytes / segment_bytes);
}

// Length 0 would mean 2 GB to the device, and the highest bit inline data.
constexpr bool is_length(std::uint32_t length) { return length - 1 < 0x7fffffffu; }

inline void write_data(void *at, std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
  store(at, be(std::uint64_t{length} << 32 | lkey));
  store(byte_at(at, 8), be(address));
}

// The key of an entry that ends a scatter list.
inline constexpr std::uint32_t no_key = 0x100;

// Ends the scatter list of a receive entry that has room for more.
inline void write_end(void *at) {
  store(at, be(std::uint64_t{no_key}));
  store(byte_at(at, 8), std::uint64_t{0});
}

// Send flags as the control segment has them.
inline constexpr std::uint8_t control_signaled = MLX5_WQE_CTRL_CQ_UPDATE;
inline constexpr std::uint8_t control_solicited = MLX5_WQE_CTRL_SOLICITED;
inline constexpr std::uint8_t control_fence = 4 << 5;

// What a doorbell repeats: the first eight bytes. number is the queue pair's,
// shifted left by 8.
constexpr std::uint64_t control_head(std::uint16_t index, std::uint8_t opcode, std::uint32_t number,
                                     unsigned segments) {
  return be(std::uint64_t{index} << 40 | std::uint64_t{opcode} << 32 | number | segments);
}

// imm is in network order already.
inline void write_control(void *at, std::uint64_t head, std::uint8_t flags, std::uint32_t imm) {
  store(at, head);
  store(byte_at(at, 8), std::uint64_t{imm} << 32 | std::uint64_t{flags} << 24);
}

// The segment of an Ethernet frame whose first 18 bytes are at header.
inline void write_ethernet(void *at, std::uint8_t checksums, const void *header) {
  const auto *from = static_cast<const std::uint8_t *>(header);
  constexpr std::uint64_t size = be(static_cast<std::uint16_t>(eth_inline_bytes));
  store(at, std::uint64_t{checksums} << 32);
  store(byte_at(at, 8), size << 32 | std::uint64_t{load<std::uint16_t>(from)} << 48);
  std::memcpy(byte_at(at, 16), from + 2, 16);
}

// The memory of a send queue.
struct Ring {
  std::uint8_t *begin = nullptr;
  std::uint8_t *end = nullptr;

  std::uint8_t *block(std::uint16_t index) const {
    const std::size_t blocks = static_cast<std::size_t>(end - begin) / block_bytes;
    return begin + (index & (blocks - 1)) * block_bytes;
  }
};

// Writes an entry that may pass the end of the ring. The caller has made sure of
// the room.
class EntryWriter {
 public:
  EntryWriter(Ring ring, std::uint16_t index)
      : ring_(ring), first_(ring.block(index)), at_(first_) {}

  std::uint8_t *segment() {
    std::uint8_t *here = at_;
    at_ += segment_bytes;
    if (at_ == ring_.end) at_ = ring_.begin;
    ++segments_;
    return here;
  }

  // Bytes from here on, as whole segments; what remains of the last one is left.
  void append(const void *data, std::size_t bytes) {
    const auto *from = static_cast<const std::uint8_t *>(data);
    while (bytes != 0) {
      if (room_ == 0) {
        tail_ = segment();
        room_ = segment_bytes;
      }
      const std::size_t part = bytes < room_ ? bytes : room_;
      std::memcpy(tail_, from, part);
      tail_ += part;
      room_ -= part;
      from += part;
      bytes -= part;
    }
  }
  void end_append() { room_ = 0; }

  std::uint8_t *first() const { return first_; }
  unsigned segments() const { return segments_; }

 private:
  Ring ring_;
  std::uint8_t *first_;
  std::uint8_t *at_;
  std::uint8_t *tail_ = nullptr;
  std::size_t room_ = 0;
  unsigned segments_ = 0;
};

// Bytes of a gather list, from a place in it.
class Gather {
 public:
  Gather(const ibv_sge *list, std::uint32_t count) : list_(list), left_(count) { skip_empty(); }

  std::uint64_t remaining() const {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < left_; ++i) total += list_[i].length;
    return total - offset_;
  }

  // Copies out and moves on; returns how much there was.
  std::uint32_t take(void *to, std::uint32_t bytes) {
    std::uint32_t done = 0;
    while (done < bytes && left_ != 0) {
      const std::uint32_t here = list_->length - offset_;
      const std::uint32_t part = here < bytes - done ? here : bytes - done;
      std::memcpy(byte_at(to, done), reinterpret_cast<const void *>(list_->addr + offset_), part);
      done += part;
      offset_ += part;
      skip_empty();
    }
    return done;
  }

  // The next piece as it lies in memory; false at the end.
  bool piece(ibv_sge &out) {
    if (left_ == 0) return false;
    out = {list_->addr + offset_, list_->length - offset_, list_->lkey};
    offset_ = list_->length;
    skip_empty();
    return true;
  }

  std::uint32_t pieces() const {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < left_; ++i) n += list_[i].length != 0;
    return n;
  }

 private:
  void skip_empty() {
    while (left_ != 0 && offset_ == list_->length) {
      ++list_;
      --left_;
      offset_ = 0;
    }
  }

  const ibv_sge *list_;
  std::uint32_t left_;
  std::uint32_t offset_ = 0;
};

// The data of a request, inline: a length, then the bytes.
inline void append_inline(EntryWriter &entry, Gather data) {
  const std::uint32_t bytes = static_cast<std::uint32_t>(data.remaining());
  if (bytes == 0) return;
  const std::uint32_t length = be(bytes | MLX5_INLINE_SEG);
  entry.append(&length, sizeof(length));
  for (ibv_sge piece; data.piece(piece);)
    entry.append(reinterpret_cast<const void *>(piece.addr), piece.length);
  entry.end_append();
}

inline void append_pointers(EntryWriter &entry, Gather data) {
  for (ibv_sge piece; data.piece(piece);)
    write_data(entry.segment(), piece.addr, piece.length, piece.lkey);
}

// The Ethernet segment of a frame, whose header leaves the gather list. tci, if
// given, becomes a VLAN tag behind the addresses: written by software, because a
// device that wants the header inline cannot insert one.
inline void append_ethernet(EntryWriter &entry, std::uint8_t checksums, Gather &data,
                            const std::uint16_t *tci) {
  std::uint8_t header[eth_inline_bytes] = {};
  std::uint32_t bytes = 0;
  if (tci == nullptr) {
    bytes = data.take(header, eth_inline_bytes);
  } else {
    data.take(header, mac_bytes);
    store(header + mac_bytes, be(ethertype_vlan << 16 | *tci));
    bytes = mac_bytes + vlan_tag_bytes;
    bytes += data.take(header + bytes, eth_inline_bytes - bytes);
  }
  std::uint8_t segment[2 * segment_bytes];
  write_ethernet(segment, checksums, header);
  store(segment + 12, be(static_cast<std::uint16_t>(bytes)));
  std::memcpy(entry.segment(), segment, segment_bytes);
  std::memcpy(entry.segment(), segment + segment_bytes, segment_bytes);
}

}  // namespace ibvexp::direct
