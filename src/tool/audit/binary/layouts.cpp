#include "tool/audit/binary/layouts.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <map>
#include <optional>

namespace ibvexp::audit {
namespace {

struct LayoutField {
  LayoutObject object;
  std::string_view member;
  int size;
  int at_3x, at_4x;
};
constexpr auto layout_fields = std::to_array<LayoutField>({
#define IBVEXP_LAYOUT_FIELD(object, member, size, at_3x, at_4x) \
  {LayoutObject::object, #member, size, at_3x, at_4x},
#include "tool/audit/binary/layouts.def"
});

struct Shape {
  LayoutObject object;
  int public_size;  // the public part: reading it proves nothing
  int container;    // bytes from the private structure to the public one in it
  int least;        // members that must be read, of a pointer of unknown type
  bool follows;     // and one of them is a pointer that is followed
};
// Pointers to the private structure itself occur as well: programs keep them.
constexpr auto shapes = std::to_array<Shape>({
    {LayoutObject::qp, 160, 8, 5, true},
    {LayoutObject::cq, 128, 0, 4, true},
    {LayoutObject::srq, 176, 8, 5, false},
    {LayoutObject::wq, 64, 16, 5, false},
});
// What is read of these two occurs in any structure of that size: they count only
// behind a pointer that is known to be one.
constexpr bool is_telling(LayoutObject object) {
  return object == LayoutObject::qp || object == LayoutObject::cq;
}
constexpr int least_of_known_type = 2;
constexpr int largest_offset = 1024;

// Whether a load of `size` bytes at `offset` reads the member at `at`. A wider one
// counts if it begins with the member or ends with it: two neighbours in one load.
bool reads(const FieldRead &r, int offset, int at, int size) {
  if (offset == at) return r.size == size || (size == 4 && r.size < 4);
  return false;
}

bool reads_two(const FieldRead &r, int offset, int at, int size) {
  if (r.size != 8 || size != 4 || (at != offset && at != offset + 4)) return false;
  // Only where the neighbour is a member of its own.
  const int other = at == offset ? offset + 4 : offset;
  return std::any_of(layout_fields.begin(), layout_fields.end(), [&](const LayoutField &f) {
    return f.size == 4 && (f.at_3x == other || f.at_4x == other);
  });
}

struct Match {
  std::vector<std::string_view> members;
  LayoutRelease release;
  int strange = 0;        // loads behind the public part that are no members
  int pairs = 0;          // loads of two members at once, which may be one pointer
  bool followed = false;  // a member that is a pointer is used as one
  std::uint64_t first = ~std::uint64_t{0};
};

Match match(const Shape &shape, int shift, std::span<const FieldRead> all) {
  Match out;
  std::vector<char> known(all.size(), 0), pair(all.size(), 0);
  for (const LayoutField &f : layout_fields) {
    if (f.object != shape.object) continue;
    bool in_3x = false, in_4x = false, followed = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int offset = static_cast<int>(all[i].offset) - shift;
      const bool two =
          reads_two(all[i], offset, f.at_3x, f.size) || reads_two(all[i], offset, f.at_4x, f.size);
      const bool a =
          reads(all[i], offset, f.at_3x, f.size) || reads_two(all[i], offset, f.at_3x, f.size);
      const bool b =
          reads(all[i], offset, f.at_4x, f.size) || reads_two(all[i], offset, f.at_4x, f.size);
      if (!a && !b) continue;
      known[i] = 1;
      pair[i] = two ? 1 : 0;
      in_3x = in_3x || a;
      in_4x = in_4x || b;
      followed = followed || (f.size == 8 && all[i].followed);
      out.first = std::min(out.first, all[i].site);
    }
    if (!in_3x && !in_4x) continue;
    out.members.push_back(f.member);
    out.followed = out.followed || followed;
    if (f.at_3x == f.at_4x) continue;
    out.release.read_3x += in_3x ? 1 : 0;
    out.release.read_4x += in_4x ? 1 : 0;
  }
  std::bitset<largest_offset> strange, pairs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int offset = static_cast<int>(all[i].offset) - shift;
    if (known[i] == 0 && offset >= shape.public_size && offset < largest_offset)
      strange.set(static_cast<std::size_t>(offset));
    if (pair[i] != 0) pairs.set(static_cast<std::size_t>(offset));
  }
  out.pairs = static_cast<int>(pairs.count());
  out.strange = static_cast<int>(strange.count());
  return out;
}

// Those who parse completions themselves need no more of a queue than its buffer
// and its size, and nothing else has both of that size at those distances.
bool is_of_ring(std::string_view member) {
  return member == "buf_a.buf" || member == "cq_log_size";
}
bool is_ring(const Match &m) {
  return m.followed && m.strange == 0 && std::ranges::count_if(m.members, is_of_ring) == 2;
}

// Members that only one release has at that place count for the one that has more, and
// two that are loaded at once for one: in another structure a pointer has that size.
int weight(const Match &m) {
  const int both = std::min(m.release.read_3x, m.release.read_4x);
  return static_cast<int>(m.members.size()) - both - m.pairs;
}

}  // namespace

// The object that a verb, or the slot of one, creates.
std::optional<LayoutObject> object_of(std::string_view verb) {
  constexpr std::pair<std::string_view, LayoutObject> all[] = {
      {"ibv_create_qp", LayoutObject::qp},     {"ibv_create_cq", LayoutObject::cq},
      {"ibv_create_srq", LayoutObject::srq},   {"ibv_exp_create_qp", LayoutObject::qp},
      {"ibv_exp_create_cq", LayoutObject::cq}, {"ibv_exp_create_srq", LayoutObject::srq},
      {"ibv_exp_create_wq", LayoutObject::wq}};
  for (const auto &[name, object] : all)
    if (verb == name) return object;
  return {};
}

namespace {

// Whether a displacement of 32 bits from a pointer may stand at i: behind a ModRM byte that says
// so, or that and a SIB byte. Variables on the stack are of no interest.
bool is_displacement(std::span<const std::uint8_t> code, std::size_t i) {
  if (i < 2) return false;
  const std::uint8_t before = code[i - 1], second = code[i - 2];
  if ((second & 0xc7) == 0x84) {
    // r12 has the number of rsp and a bit in the REX prefix, in front of one byte or two.
    const auto extended = [&](std::size_t back) {
      return i >= back && (code[i - back] & 0xf1) == 0x41;
    };
    if ((before & 7) != 4 || extended(4) || extended(5)) return true;
  }
  // 0f 8x are jumps.
  return (before & 0xc0) == 0x80 && (before & 7) != 4 && !(second == 0x0f && before < 0x90);
}

}  // namespace

bool may_read_layouts(std::span<const std::uint8_t> code, bool creates) {
  // Displacements of 32 bits, whatever instruction they belong to.
  std::bitset<largest_offset> seen;
  for (std::size_t i = 0; i + 4 <= code.size(); ++i)
    if (code[i + 3] == 0 && code[i + 2] == 0 && code[i + 1] < 4 && is_displacement(code, i))
      seen.set(static_cast<std::size_t>(code[i] | code[i + 1] << 8));
  if (seen.count() < static_cast<std::size_t>(least_of_known_type)) return false;
  for (const Shape &s : shapes) {
    if (!creates && !is_telling(s.object)) continue;
    for (const int shift : {0, s.container}) {
      const auto is_read = [&](const LayoutField &f) {
        return f.object == s.object && f.at_4x > 127 &&
               (seen[static_cast<std::size_t>(f.at_3x + shift)] ||
                seen[static_cast<std::size_t>(f.at_4x + shift)]);
      };
      const auto count = std::ranges::count_if(layout_fields, is_read);
      const bool ring = std::ranges::count_if(layout_fields, [&](const LayoutField &f) {
                          return is_of_ring(f.member) && is_read(f);
                        }) == 2;
      if (ring || count >= (creates ? least_of_known_type : s.least)) return true;
    }
  }
  return false;
}

std::vector<LayoutSite> find_layouts(std::vector<FieldRead> reads,
                                     std::span<const TypedPointer> typed) {
  std::vector<LayoutSite> out;
  std::stable_sort(reads.begin(), reads.end(),
                   [](const FieldRead &a, const FieldRead &b) { return a.base < b.base; });
  for (auto at = reads.begin(); at != reads.end();) {
    const auto end =
        std::find_if(at, reads.end(), [&](const FieldRead &r) { return r.base != at->base; });
    const std::span<const FieldRead> all(at, end);
    std::optional<LayoutObject> type;
    for (const TypedPointer &t : typed)
      if (t.base == at->base) type = t.object;
    std::optional<LayoutSite> best;
    for (const Shape &shape : shapes) {
      if (type ? *type != shape.object : !is_telling(shape.object)) continue;
      for (const int shift : {0, shape.container}) {
        // What a verb returned is the public structure.
        if (type && shift != 0) continue;
        const Match m = match(shape, shift, all);
        const int found = weight(m);
        const bool ring = is_ring(m);
        if (!ring && found < (type ? least_of_known_type : shape.least)) continue;
        if (!type && !ring && ((shape.follows && !m.followed) || m.strange > found)) continue;
        if (best && best->members.size() >= m.members.size()) continue;
        best = LayoutSite{m.first, 0, shape.object, m.members, m.release};
      }
    }
    if (best) out.push_back(std::move(*best));
    at = end;
  }
  return out;
}

}  // namespace ibvexp::audit
