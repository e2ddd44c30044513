#include "tool/audit/binary/anchors.h"

#include <algorithm>
#include <cstring>

#include "tool/audit/binary/byte_block.h"

namespace ibvexp::audit {
namespace {

// mov rbp, rsp within the first bytes: [rbp - 8] is a variable then.
bool keeps_frame_pointer(std::span<const std::uint8_t> code) {
  for (std::size_t i = 0; i + 3 <= code.size() && i < 16; ++i)
    if (code[i] == 0x48 && code[i + 1] == 0x89 && code[i + 2] == 0xe5) return true;
  return false;
}

// The 8-bit displacement of a memory operand whose ModRM byte is at p, with the
// length up to it; 0 if there is none.
std::size_t displacement_at(const std::uint8_t *modrm) {
  if ((*modrm & 0xc0) != 0x40) return 0;
  return (*modrm & 7) == 4 ? 2 : 1;
}

// Whether the 64-bit register is negated or subtracted soon: the code from `at`.
bool is_subtracted(std::span<const std::uint8_t> code, std::size_t at, unsigned reg) {
  constexpr std::size_t soon = 192;
  const std::size_t end = std::min(code.size(), at + soon);
  for (std::size_t i = at; i + 3 <= end; ++i) {
    const std::uint8_t rex = code[i], op = code[i + 1], modrm = code[i + 2];
    if ((rex & 0xf8) != 0x48 || modrm < 0xc0) continue;
    const unsigned rm = (modrm & 7U) | (rex & 1U) << 3;
    const unsigned r = ((modrm >> 3) & 7U) | (rex & 4U) << 1;
    if ((op == 0xf7 && (modrm & 0x38) == 0x18 && rm == reg) || (op == 0x29 && r == reg) ||
        (op == 0x2b && rm == reg))
      return true;
  }
  return false;
}

// size word of a verbs_context in front of its context: modern and 2.x headers
constexpr std::uint8_t size_word = 0xf8;      // -8
constexpr std::uint8_t old_size_word = 0xb8;  // -72

// A look-up tests a bit of the context's mask and subtracts the size of the table. Where a compiler
// made a small function of the look-up, one of these two instructions is enough to evaluate it.
// Where the look-up is inlined, the test of the table's size stands near them. Large functions are
// evaluated only with that test: they take long, and contain such instructions by chance.
constexpr std::size_t function_of_mask = 128, function_of_size = small_look_up;
constexpr std::size_t large_function = 8192;
constexpr std::size_t near = 2048;

// Distances of the table's size word from the end of the search, E: 320 behind it
// in modern headers; in those of 2.x, 272 behind the table or 208 behind E.
bool is_size_word(std::uint32_t displacement) {
  return displacement == 320 || displacement == 272 || displacement == 208;
}

// A 64-bit load of it, or a comparison with it: 32-bit displacement, not of the stack.
bool reads_size_word(const std::uint8_t *b, std::size_t left) {
  if (left < 8 || (b[0] & 0xf8) != 0x48) return false;
  const unsigned extension = (b[2] >> 3) & 7U;
  const bool compares =
      ((b[1] == 0x83 || b[1] == 0x81) && extension == 7) || b[1] == 0x39 || b[1] == 0x3b;
  if ((!compares && b[1] != 0x8b) || (b[2] & 0xc0) != 0x80) return false;
  std::size_t at = 3;
  if ((b[2] & 7) == 4) {
    const bool stack = (b[3] & 7) == 4 && (b[0] & 1) == 0;
    if (stack) return false;
    at = 4;
  }
  std::uint32_t displacement;
  std::memcpy(&displacement, b + at, sizeof displacement);
  return is_size_word(displacement);
}

bool size_word_near(std::span<const std::uint8_t> code, std::size_t anchor) {
  const std::size_t from = anchor > near ? anchor - near : 0;
  const std::size_t to = std::min(code.size(), anchor + near);
  for (std::size_t i = from; i < to; ++i)
    if (reads_size_word(&code[i], code.size() - i)) return true;
  return false;
}

bool begins_sign(std::uint8_t byte) { return (byte & 0xf8) == 0x48 || byte == 0xf6; }

enum class Sign : std::uint8_t { none, mask, size };

// Which instruction of a look-up stands at i.
Sign sign_at(std::span<const std::uint8_t> code, std::size_t i, bool framed) {
  const std::uint8_t *b = &code[i];
  if ((b[0] & 0xf8) == 0x48) {  // 64-bit operands
    const bool extended_base = (b[0] & 1) != 0;
    if ((b[1] & 0xf8) == 0xb8) {  // movabs of the mask
      static constexpr std::uint8_t mask[8] = {0, 0, 0, 0, 0, 0, 0, 0x40};
      if (i + 10 <= code.size() && std::memcmp(b + 2, mask, 8) == 0) return Sign::mask;
    } else if (b[1] == 0x2b || b[1] == 0x8b || b[1] == 0x85) {
      const std::size_t d = displacement_at(b + 2);
      const unsigned base = b[2] & 7;
      const bool variable = !extended_base && ((base == 5 && framed) || base == 4);
      if (d != 0 && !variable) {
        const std::uint8_t distance = b[2 + d];
        if (b[1] == 0x2b && (distance == size_word || distance == old_size_word)) return Sign::size;
        if (b[1] == 0x8b && (distance == size_word || distance == old_size_word) &&
            is_subtracted(code, i + 3 + d, ((b[2] >> 3) & 7U) | (b[0] & 4U) << 1))
          return Sign::size;
        if (b[1] == 0x85 && distance == 0xf0) return Sign::mask;  // test with a mask in a register
      }
    } else if (b[1] == 0x0f && b[2] == 0xba && (b[3] & 0xf8) == 0xe0 && b[4] == 62) {  // bt
      return Sign::mask;
    }
  }
  if (b[0] == 0xf6 && (b[1] & 0x38) == 0) {  // test of the mask's byte
    const std::size_t d = displacement_at(b + 1);
    if (d != 0 && b[2 + d] == 0x40 && (b[1 + d] & 7) == 7) return Sign::mask;
  }
  return Sign::none;
}

// Whether a sign may begin at one of some bytes, by those of its bytes that tell most.
inline bool may_begin_sign(const std::uint8_t *b) {
  const ByteBlock first = block_at(b), op = block_at(b + 1), third = block_at(b + 3),
                  fourth = block_at(b + 4);
  const auto displaced_by = [&](std::uint8_t distance) {
    return (third == distance) | (fourth == distance);
  };
  const auto reads =
      ((op == 0x2b) | (op == 0x8b)) & (displaced_by(size_word) | displaced_by(old_size_word));
  const auto tests = (op == 0x85) & displaced_by(0xf0);
  const auto moves = ((op & 0xf8) == 0xb8) & (block_at(b + 9) == 0x40);
  const auto tests_bit = (op == 0x0f) & ((third & 0xf8) == 0xe0) & (fourth == 62);
  return any((((first & 0xf8) == 0x48) & (reads | tests | moves | tests_bit)) |
             ((first == 0xf6) & displaced_by(0x40)));
}

// Calls fn(place, sign) for each until it returns true: where that was, or the end of the code.
template <class Fn>
std::size_t find_sign(std::span<const std::uint8_t> code, std::size_t from, bool framed, Fn fn) {
  constexpr std::size_t shortest = 7, longest = 10;
  for (std::size_t i = from; i + shortest <= code.size();) {
    std::size_t end = code.size() - shortest + 1;
    if (i + block_size + longest <= code.size()) {
      end = i + block_size;
      if (!may_begin_sign(&code[i])) i = end;
    }
    for (; i < end; ++i)
      if (begins_sign(code[i]))
        if (const Sign sign = sign_at(code, i, framed); sign != Sign::none && fn(i, sign)) return i;
  }
  return code.size();
}

}  // namespace

bool may_look_up(std::span<const std::uint8_t> code) {
  bool mask = false, size = false;
  const auto is_enough = [&](std::size_t at, Sign sign) {
    mask = mask || sign == Sign::mask;
    size = size || sign == Sign::size;
    return code.size() <= (sign == Sign::mask ? function_of_mask : function_of_size) ||
           (mask && size && code.size() <= large_function) || size_word_near(code, at);
  };
  return find_sign(code, 0, keeps_frame_pointer(code), is_enough) < code.size();
}

std::size_t next_sign(std::span<const std::uint8_t> code, std::size_t from) {
  return find_sign(code, from, false, [](std::size_t, Sign) { return true; });
}

bool may_be_inlined(std::span<const std::uint8_t> code, std::size_t sign) {
  const std::size_t from = sign > large_function ? sign - large_function : 0;
  const auto around = code.subspan(from, std::min(code.size() - from, 2 * large_function));
  bool mask = false, size = false;
  const auto both = [&](std::size_t, Sign found) {
    mask = mask || found == Sign::mask;
    size = size || found == Sign::size;
    return mask && size;
  };
  return find_sign(around, 0, false, both) < around.size() || size_word_near(code, sign);
}

}  // namespace ibvexp::audit
