// Where the functions of a binary begin and end, with or without symbols.
#pragma once

#include <cstring>
#include <optional>

#include "tool/audit/binary/byte_block.h"
#include "tool/audit/binary/elf_image.h"

namespace ibvexp::audit {

struct Function {
  std::uint64_t start;
  std::uint64_t end;
  bool operator==(const Function &) const = default;
};

class Functions {
 public:
  explicit Functions(const ElfImage &image);

  const std::vector<Function> &all() const { return all_; }
  // The one that contains an address, null without.
  const Function *at(std::uint64_t address) const;
  std::size_t index(const Function &f) const { return static_cast<std::size_t>(&f - all_.data()); }

 private:
  std::vector<Function> all_;  // sorted, disjoint
};

// The function around an address, if the unwind tables have one.
std::optional<Function> framed_function(const ElfImage &image, std::uint64_t address);

// The functions of at most so many bytes around places, sorted, in code without unwind tables. The
// guesses are those of Functions, and more, but only the code around them is read but for calls.
std::vector<Function> small_functions(const ElfImage &image,
                                      const std::vector<std::uint64_t> &places,
                                      std::uint64_t longest);

// The word that a stub of the procedure linkage table jumps through; 0 for what is
// no such stub.
std::uint64_t linkage_word(const ElfImage &image, std::uint64_t stub);

// Whether a jump from a segment may lead there: in object files each function may have one of
// its own.
inline bool leads_to_code(const ElfImage &image, const Segment &from, std::uint64_t target) {
  return target - from.address < from.bytes.size() ||
         (image.is_object_file() && image.executable_at(target));
}

// Calls fn(address of the instruction, target, is it a call) for everything that
// looks like a direct call or jump with a 32-bit distance into code. Reads bytes,
// not instructions: a few of them are none. With every > 1 only one of so many parts of the code.
template <class Fn>
void for_each_direct_call(const ElfImage &image, Fn fn, std::size_t every = 1) {
  constexpr std::size_t part = std::size_t{1} << 20;
  for (const Segment &s : image.segments()) {
    if (!s.executable || s.bytes.size() < 5) continue;
    if (image.is_arm64()) {
      for (std::size_t i = 0; i + 4 <= s.bytes.size(); i += 4) {
        if (i % ElfImage::release_after == 0) image.release_pages();
        if (i % part == 0 && i / part % every != 0) {
          i += part - 4;
          continue;
        }
        std::uint32_t word;
        std::memcpy(&word, &s.bytes[i], sizeof word);
        if ((word & 0x7c000000) != 0x14000000) continue;  // neither b nor bl
        const auto distance = static_cast<std::int32_t>(word << 6) >> 4;
        const std::uint64_t from = s.address + i;
        const std::uint64_t target = from + static_cast<std::uint64_t>(std::int64_t{distance});
        if (leads_to_code(image, s, target)) fn(from, target, word >> 31 != 0);
      }
      continue;
    }
    for (std::size_t i = 0; i + 5 <= s.bytes.size(); ++i) {
      if (i % ElfImage::release_after == 0) image.release_pages();
      if (i % part == 0 && i / part % every != 0) {
        i += part - 1;
        continue;
      }
      if (i % block_size == 0 && i + block_size <= s.bytes.size() &&
          !any((block_at(&s.bytes[i]) & 0xfe) == 0xe8)) {
        i += block_size - 1;
        continue;
      }
      const std::uint8_t op = s.bytes[i];
      if (op != 0xe8 && op != 0xe9) continue;
      const auto distance =
          static_cast<std::int32_t>(s.bytes[i + 1] | s.bytes[i + 2] << 8 | s.bytes[i + 3] << 16 |
                                    static_cast<std::uint32_t>(s.bytes[i + 4]) << 24);
      const std::uint64_t from = s.address + i;
      const std::uint64_t target = from + 5 + static_cast<std::uint64_t>(std::int64_t{distance});
      if (leads_to_code(image, s, target)) fn(from, target, op == 0xe8);
    }
  }
}

}  // namespace ibvexp::audit
