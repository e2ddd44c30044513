// 64-bit and extended (masked) atomics on application memory.
//
// Memory holds integers in host order for every size; operands arrive
// big-endian. The original value is returned in host order for 8 bytes and
// big-endian for the other sizes (the rule of the last experimental kernels).
#include <algorithm>

#include "model/responder.h"

namespace softhca {

namespace {

using Wide = std::array<u8, 32>;  // little-endian integer of up to 32 bytes

Wide from_big_endian(const u8 *p, u32 size) {
  Wide w{};
  for (u32 i = 0; i < size; ++i) w[i] = p[size - 1 - i];
  return w;
}

// The operands of the WQE as integers; plain atomics become masked ones.
struct Operation {
  bool swap = false;
  Wide swap_or_add{}, compare{}, swap_mask{}, compare_mask_or_boundary{};
};

Operation parse(WqeOpcode opcode, u32 size, const u8 *p) {
  Operation op;
  op.swap = opcode == WqeOpcode::atomic_cs || opcode == WqeOpcode::masked_cs;
  op.swap_or_add = from_big_endian(p, size);
  switch (opcode) {
    case WqeOpcode::atomic_cs:
      op.compare = from_big_endian(p + 8, 8);
      op.swap_mask.fill(0xff);
      op.compare_mask_or_boundary.fill(0xff);
      break;
    case WqeOpcode::masked_cs:
      op.compare = from_big_endian(p + size, size);
      op.swap_mask = from_big_endian(p + 2 * size, size);
      op.compare_mask_or_boundary = from_big_endian(p + 3 * size, size);
      break;
    case WqeOpcode::masked_fa: op.compare_mask_or_boundary = from_big_endian(p + size, size); break;
    default: break;  // plain fetch-and-add: no field boundaries
  }
  return op;
}

// The value that replaces `old`; false when a compare fails.
bool apply(const Operation &op, u32 size, const Wide &old, Wide &next) {
  if (op.swap) {
    for (u32 i = 0; i < size; ++i)
      if (((old[i] ^ op.compare[i]) & op.compare_mask_or_boundary[i]) != 0) return false;
    for (u32 i = 0; i < size; ++i)
      next[i] =
          static_cast<u8>((old[i] & ~op.swap_mask[i]) | (op.swap_or_add[i] & op.swap_mask[i]));
    return true;
  }
  // A set boundary bit ends a field: no carry out of it.
  u32 carry = 0;
  for (u32 bit = 0; bit < size * 8; ++bit) {
    const u32 i = bit / 8, s = bit % 8;
    const u32 sum = (old[i] >> s & 1u) + (op.swap_or_add[i] >> s & 1u) + carry;
    next[i] = static_cast<u8>((next[i] & ~(1u << s)) | (sum & 1) << s);
    carry = (op.compare_mask_or_boundary[i] >> s & 1u) != 0 ? 0 : sum >> 1;
  }
  return true;
}

// As all that the device does, no access of the process: what the application may
// not do at the same time is said by completions, which no sanitizer sees.
template <class Int>
[[gnu::no_sanitize_thread]] Wide exchange(Int *word, const Operation &op) {
  Int old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  for (;;) {
    Wide before{}, after{};
    std::memcpy(before.data(), &old, sizeof old);
    if (!apply(op, sizeof old, before, after)) return before;
    Int next;
    std::memcpy(&next, after.data(), sizeof next);
    if (__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return before;
  }
}

}  // namespace

Syndrome execute_atomic(const SpanList &target, u64 address, WqeOpcode opcode, u32 size,
                        const u8 *operands, u8 *result) {
  if ((address & (size - 1)) != 0) return Syndrome::remote_invalid_request;
  const Operation op = parse(opcode, size, operands);
  Wide old{};

  const bool single = target.size() == 1 && target[0].length == size &&
                      target[0].kind != Span::Kind::null && (target[0].address & (size - 1)) == 0;
  if (single && (size == 4 || size == 8)) {
    // With the processor's own atomics: other processes of the fabric and the
    // application itself may work on the same shared memory.
    if (target[0].kind == Span::Kind::application && probe(target[0].address, size, true) != 0)
      return Syndrome::remote_access;
    old = size == 8 ? exchange(reinterpret_cast<u64 *>(target[0].address), op)
                    : exchange(reinterpret_cast<u32 *>(target[0].address), op);
  } else {
    if (!read_spans(target, 0, old.data(), size)) return Syndrome::remote_access;
    Wide next{};
    if (apply(op, size, old, next) && !write_spans(target, 0, next.data(), size))
      return Syndrome::remote_access;
  }
  for (u32 i = 0; i < size; ++i) result[i] = size == 8 ? old[i] : old[size - 1 - i];
  return Syndrome::ok;
}

}  // namespace softhca
