#include "tool/audit/binary/functions.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

namespace ibvexp::audit {
namespace {

// Reads .eh_frame_hdr and the frame descriptions it points to.
class FrameTable {
 public:
  explicit FrameTable(const ElfImage &image) : image_(image), header_(image.eh_frame_hdr()) {}

  std::vector<Function> read() {
    std::vector<Function> out;
    for (std::uint64_t i = 0; i < count(); ++i)
      if (const auto f = function(i)) out.push_back(*f);
    return out;
  }

  // The one that contains an address: the table is sorted.
  std::optional<Function> at(std::uint64_t address) {
    const std::uint64_t next = next_behind(address);
    if (next == 0) return {};
    const auto f = function(next - 1);
    return f && address >= f->start && address < f->end ? f : std::nullopt;
  }

  // Where the first one behind an address starts.
  std::optional<std::uint64_t> start_behind(std::uint64_t address) const {
    const std::uint64_t next = next_behind(address);
    return next < count() ? start(next) : std::nullopt;
  }

 private:
  std::uint64_t count() const {
    const auto bytes = image_.at(header_);
    // version 1; the table's usual encoding is 4-byte distances from the header
    if (bytes.size() < 12 || bytes[0] != 1 || bytes[2] != 0x03 || bytes[3] != 0x3b) return 0;
    return std::min<std::uint64_t>(number<std::uint32_t>(header_ + 8).value_or(0),
                                   (bytes.size() - 12) / 8);
  }

  std::uint64_t next_behind(std::uint64_t address) const {
    std::uint64_t first = 0, last = count();
    while (first < last) {
      const std::uint64_t middle = first + (last - first) / 2;
      if (start(middle).value_or(address + 1) <= address) first = middle + 1;
      else last = middle;
    }
    return first;
  }

  // A distance of the table as an address.
  std::optional<std::uint64_t> address_at(std::uint64_t place) const {
    const auto distance = number<std::int32_t>(place);
    if (!distance) return {};
    return header_ + static_cast<std::uint64_t>(std::int64_t{*distance});
  }
  std::optional<std::uint64_t> start(std::uint64_t i) const {
    return address_at(header_ + 12 + 8 * i);
  }

  std::optional<Function> function(std::uint64_t i) {
    const auto begin = start(i), description = address_at(header_ + 16 + 8 * i);
    if (!begin || !description) return {};
    const auto length = code_length(*description);
    if (!length || *length == 0 || !image_.executable_at(*begin)) return {};
    return Function{*begin, *begin + *length};
  }

  template <class T>
  std::optional<T> number(std::uint64_t address) const {
    const auto bytes = image_.at(address);
    T out;
    if (bytes.size() < sizeof out) return {};
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
  }

  // Length of the code that a frame description is about.
  std::optional<std::uint64_t> code_length(std::uint64_t fde) {
    const auto size = number<std::uint32_t>(fde);
    const auto distance = number<std::uint32_t>(fde + 4);
    if (!size || !distance || *size == 0xffffffff || *distance == 0) return {};
    switch (pointer_size(fde + 4 - *distance)) {
      case 4: return number<std::uint32_t>(fde + 12);
      case 8: return number<std::uint64_t>(fde + 16);
      default: return {};
    }
  }

  // Size of the pointers in the descriptions that share this common entry.
  int pointer_size(std::uint64_t cie) {
    const auto [it, fresh] = pointer_sizes_.try_emplace(cie, 0);
    if (fresh) it->second = read_pointer_size(cie);
    return it->second;
  }

  int read_pointer_size(std::uint64_t cie) const {
    const std::string_view augmentation = image_.text_at(cie + 9);
    if (augmentation.empty() || augmentation[0] != 'z') return 8;
    std::uint64_t at = cie + 9 + augmentation.size() + 1;
    for (int i = 0; i < 3; ++i) skip_leb(at);  // alignments, return address
    skip_leb(at);                              // size of what follows
    for (const char c : augmentation.substr(1)) {
      const auto encoding = number<std::uint8_t>(at);
      if (!encoding) return 0;
      if (c == 'R') return size_of(*encoding);
      if (c == 'P') at += 1 + static_cast<std::uint64_t>(size_of(*encoding));
      else if (c == 'L') ++at;
    }
    return 8;
  }

  void skip_leb(std::uint64_t &at) const {
    while (number<std::uint8_t>(at).value_or(0) & 0x80) ++at;
    ++at;
  }

  static int size_of(std::uint8_t encoding) {
    switch (encoding & 0x07) {
      case 0x00:
      case 0x04: return 8;
      case 0x03: return 4;
      default: return 0;
    }
  }

  const ElfImage &image_;
  const std::uint64_t header_;
  std::map<std::uint64_t, int> pointer_sizes_;
};

// endbr64, push, or sub rsp
bool is_prologue(std::span<const std::uint8_t> b) {
  if (b.size() < 4) return false;
  if (b[0] == 0xf3 && b[1] == 0x0f && b[2] == 0x1e && b[3] == 0xfa) return true;
  if ((b[0] >= 0x50 && b[0] <= 0x57) || (b[0] == 0x41 && b[1] >= 0x50 && b[1] <= 0x57)) return true;
  return b[0] == 0x48 && (b[1] == 0x81 || b[1] == 0x83) && b[2] == 0xec;
}

// Padding that ends in zeros, which numbers in the middle of an instruction do as well:
// the longer forms of nop, or nothing but zeros.
bool is_zero_padding(std::span<const std::uint8_t> before) {
  using namespace std::string_view_literals;
  const std::string_view bytes(reinterpret_cast<const char *>(before.data()), before.size());
  return bytes.ends_with("\x0f\x1f\x40\0"sv) || bytes.ends_with("\x0f\x1f\x44\0\0"sv) ||
         bytes.ends_with("\x0f\x1f\x80\0\0\0\0"sv) || bytes.ends_with("\x0f\x1f\x84\0\0\0\0\0"sv) ||
         bytes.ends_with("\0\0\0\0\0\0\0\0"sv);
}

// Behind a return, a jump or padding.
bool is_behind_an_end(std::span<const std::uint8_t> code, std::size_t i) {
  const std::uint8_t last = code[i - 1];
  return last == 0xc3 || last == 0x90 || last == 0xcc ||
         (last == 0x00 && is_zero_padding(code.first(i))) || (i >= 5 && code[i - 5] == 0xe9) ||
         (i >= 2 && code[i - 2] == 0xeb);
}

// Starts of a stub in the procedure linkage table.
bool is_linkage_stub(std::span<const std::uint8_t> b) {
  if (b.size() >= 4 && b[0] == 0xf3 && b[1] == 0x0f && b[2] == 0x1e && b[3] == 0xfa)
    b = b.subspan(4);
  if (!b.empty() && b[0] == 0xf2) b = b.subspan(1);
  return b.size() >= 2 && b[0] == 0xff && b[1] == 0x25;
}

// Whether a function may begin at a multiple of 16, as compilers align them.
bool looks_like_start(std::span<const std::uint8_t> code, std::size_t i) {
  return i > 0 && is_prologue(code.subspan(i)) && is_behind_an_end(code, i);
}

// For code without unwind tables: whatever looks like a beginning.
std::vector<std::uint64_t> guessed_starts(const ElfImage &image,
                                          const std::vector<std::uint64_t> &called) {
  std::vector<std::uint64_t> starts = called;
  starts.insert(starts.end(), image.code_pointers().begin(), image.code_pointers().end());
  for (const Segment &s : image.segments()) {
    if (!s.executable) continue;
    starts.push_back(s.address);
    if (image.is_arm64()) continue;
    for (std::size_t i = (16 - s.address % 16) % 16; i < s.bytes.size(); i += 16) {
      if (i % ElfImage::release_after < 16) image.release_pages();
      if (looks_like_start(s.bytes, i)) starts.push_back(s.address + i);
    }
  }
  return starts;
}

bool by_start(const Function &a, const Function &b) { return a.start < b.start; }

const Function *containing(const std::vector<Function> &sorted, std::uint64_t address) {
  auto it = std::upper_bound(sorted.begin(), sorted.end(), Function{address, 0}, by_start);
  if (it == sorted.begin()) return nullptr;
  --it;
  return address < it->end ? &*it : nullptr;
}

bool inside_of(const std::vector<Function> &sorted, std::uint64_t address) {
  const Function *f = containing(sorted, address);
  return f != nullptr && f->start != address;
}

}  // namespace

namespace {

// adrp x16, page; ldr x17, [x16, offset], behind a landing pad perhaps.
std::uint64_t arm64_linkage_word(const ElfImage &image, std::uint64_t stub) {
  for (const std::uint64_t at : {stub, stub + 4}) {
    const auto bytes = image.at(at);
    std::uint32_t page, load;
    if (bytes.size() < 8) return 0;
    std::memcpy(&page, bytes.data(), sizeof page);
    std::memcpy(&load, bytes.data() + 4, sizeof load);
    if ((page & 0x9f00001f) != 0x90000010 || (load & 0xffc003ff) != 0xf9400211) continue;
    const std::uint32_t pages = (page >> 5 & 0x7ffff) << 2 | (page >> 29 & 3);
    const auto distance = std::int64_t{static_cast<std::int32_t>(pages << 11) >> 11} * 4096;
    return (at & ~std::uint64_t{4095}) + static_cast<std::uint64_t>(distance) +
           (load >> 10 & 0xfff) * 8;
  }
  return 0;
}

}  // namespace

std::uint64_t linkage_word(const ElfImage &image, std::uint64_t stub) {
  if (image.is_arm64()) return arm64_linkage_word(image, stub);
  auto b = image.at(stub);
  std::uint64_t at = stub;
  const auto skip = [&](std::size_t n) {
    b = b.subspan(n);
    at += n;
  };
  if (b.size() >= 4 && b[0] == 0xf3 && b[1] == 0x0f && b[2] == 0x1e && b[3] == 0xfa) skip(4);
  if (!b.empty() && b[0] == 0xf2) skip(1);
  if (b.size() < 6 || b[0] != 0xff || b[1] != 0x25) return 0;
  std::int32_t distance;
  std::memcpy(&distance, b.data() + 2, sizeof distance);
  return at + 6 + static_cast<std::uint64_t>(std::int64_t{distance});
}

namespace {

// Targets of direct calls, sorted, without PLT entries. Most functions are called from many places:
// duplicates are removed after each portion, so that the list stays short.
std::vector<std::uint64_t> called_addresses(const ElfImage &image, std::size_t every) {
  std::vector<std::uint64_t> called;
  const auto leave_out_known = [&] {
    std::sort(called.begin(), called.end());
    called.erase(std::unique(called.begin(), called.end()), called.end());
  };
  constexpr std::size_t portion = std::size_t{1} << 18;
  std::size_t most = portion;
  for_each_direct_call(
      image,
      [&](std::uint64_t, std::uint64_t target, bool call) {
        if (!call) return;
        called.push_back(target);
        if (called.size() < most) return;
        leave_out_known();
        most = called.size() + portion;
      },
      every);
  leave_out_known();
  std::uint64_t kept = 0;
  std::erase_if(called, [&](std::uint64_t target) {
    if (target - kept > ElfImage::release_after) {
      image.release_pages();
      kept = target;
    }
    return image.is_arm64() ? linkage_word(image, target) != 0 : is_linkage_stub(image.at(target));
  });
  image.release_pages();
  return called;
}

}  // namespace

Functions::Functions(const ElfImage &image) {
  std::vector<Function> known = FrameTable(image).read();
  image.release_pages();
  std::vector<std::uint64_t> starts;
  starts.reserve(known.size());
  for (const Function &f : known) starts.push_back(f.start);
  for (const NamedAddress &s : image.symbols())
    if (s.function && image.executable_at(s.address)) starts.push_back(s.address);
  if (image.executable_at(image.entry())) starts.push_back(image.entry());
  std::sort(starts.begin(), starts.end());

  // Whether tables know most functions shows in a part of a large file.
  constexpr std::size_t large = std::size_t{16} << 20;
  std::size_t code = 0;
  for (const Segment &s : image.segments()) code += s.executable ? s.bytes.size() : 0;
  const std::size_t every = code > large ? 8 : 1;
  std::vector<std::uint64_t> called = called_addresses(image, every);
  const auto strangers = std::count_if(called.begin(), called.end(), [&](std::uint64_t a) {
    return !std::binary_search(starts.begin(), starts.end(), a);
  });
  if (5 * strangers > std::ssize(called)) {
    if (every > 1) called = called_addresses(image, 1);
    std::sort(known.begin(), known.end(), by_start);
    for (const std::uint64_t start : guessed_starts(image, called))
      if (!inside_of(known, start)) starts.push_back(start);
    std::sort(starts.begin(), starts.end());
  }
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());

  // A start that no table knows lasts until the next one.
  std::sort(known.begin(), known.end(), by_start);
  auto next_known = known.begin();
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::uint64_t start = starts[i];
    std::uint64_t end = start + image.at(start).size();
    if (i + 1 < starts.size()) end = std::min(end, starts[i + 1]);
    while (next_known != known.end() && next_known->start < start) ++next_known;
    if (next_known != known.end() && next_known->start == start)
      end = std::min(end, next_known->end);
    if (end > start) all_.push_back({start, end});
  }
}

std::optional<Function> framed_function(const ElfImage &image, std::uint64_t address) {
  return FrameTable(image).at(address);
}

std::vector<Function> small_functions(const ElfImage &image,
                                      const std::vector<std::uint64_t> &places,
                                      std::uint64_t longest) {
  std::vector<std::uint64_t> starts;
  const auto add = [&](std::uint64_t start) {
    const auto place =
        std::lower_bound(places.begin(), places.end(), start - std::min(start, longest));
    if (place != places.end() && *place <= start + longest) starts.push_back(start);
  };
  for_each_direct_call(image, [&](std::uint64_t, std::uint64_t target, bool call) {
    if (call) add(target);
  });
  for (const NamedAddress &s : image.symbols())
    if (s.function) add(s.address);
  for (const std::uint64_t pointer : image.code_pointers()) add(pointer);
  add(image.entry());
  const FrameTable frames(image);
  for (const std::uint64_t place : places) {
    if (const auto next = frames.start_behind(place)) add(*next);
    for (const Segment &s : image.segments()) {
      if (!s.executable || place - s.address >= s.bytes.size()) continue;
      add(s.address);
      add(s.address + s.bytes.size());
      const std::uint64_t end = std::min(place + longest, s.address + s.bytes.size());
      for (std::uint64_t a = (place - std::min(place, longest) + 15) / 16 * 16; a < end; a += 16)
        if (a > s.address && looks_like_start(s.bytes, a - s.address)) starts.push_back(a);
    }
  }
  std::sort(starts.begin(), starts.end());
  std::vector<Function> out;
  for (const std::uint64_t place : places) {
    const auto next = std::upper_bound(starts.begin(), starts.end(), place);
    if (next == starts.begin() || next == starts.end()) continue;
    if (const Function f{*(next - 1), *next}; f.end - f.start <= longest) out.push_back(f);
  }
  return out;
}

const Function *Functions::at(std::uint64_t address) const { return containing(all_, address); }

}  // namespace ibvexp::audit
