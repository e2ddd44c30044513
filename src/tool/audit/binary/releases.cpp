#include "tool/audit/binary/releases.h"

#include <algorithm>
#include <array>
#include <bitset>

namespace ibvexp::audit {
namespace {

struct Release {
  std::string_view name;
  int table_size;
};
constexpr auto releases = std::to_array<Release>({
#define IBVEXP_RELEASE(name, size) {name, size},
#include "tool/audit/binary/releases.def"
});

struct KnownMask {
  std::string_view verb;
  std::size_t first, last;
  std::uint64_t mask;
};
constexpr auto known_masks = std::to_array<KnownMask>({
#define IBVEXP_KNOWN_MASK(verb, first, last, mask) {#verb, first, last, mask},
#include "tool/audit/binary/releases.def"
});

using Set = std::bitset<releases.size()>;

// ibv_exp_rereg_mr, whose slots are padding since 4.0.
constexpr bool is_rereg(int from_end) { return from_end == 368 || from_end == 376; }
constexpr std::size_t last_with_rereg = 5;

Set with_mask(const MaskComplaint &c) {
  Set out;
  bool known_verb = false;
  for (const KnownMask &k : known_masks) {
    if (k.verb != c.verb) continue;
    known_verb = true;
    if (k.mask == c.valid_mask)
      for (std::size_t i = k.first; i <= k.last; ++i) out.set(i);
  }
  return known_verb ? out : Set().set();
}

// Empty if the header is of no known release.
Set possible_releases(const Dispatch &dispatch) {
  Set possible;
  possible.set();
  bool old = false;
  int highest = 0;
  for (const SlotSite &s : dispatch.sites) {
    old = old || s.old_lookup;
    highest = std::max(highest, s.from_end);
    if (is_rereg(s.from_end))
      for (std::size_t i = last_with_rereg + 1; i < releases.size(); ++i) possible.reset(i);
  }
  for (std::size_t i = 0; i < releases.size(); ++i)
    if (releases[i].table_size < highest || (i == 0) != old) possible.reset(i);
  for (const MaskComplaint &c : dispatch.complaints) {
    const Set narrowed = possible & with_mask(c);
    if (narrowed.any()) possible = narrowed;  // otherwise the header is of no known release
  }
  return possible;
}

}  // namespace

std::string layout_release(const Dispatch &dispatch) {
  // What is read where only one release has it decides.
  int read_3x = 0, read_4x = 0;
  for (const LayoutSite &s : dispatch.layouts) {
    read_3x += s.release.name() == "3.x" ? 1 : 0;
    read_4x += s.release.name() == "4.x" ? 1 : 0;
  }
  if (read_3x != read_4x) return read_3x > read_4x ? "3.x" : "4.x";
  if (dispatch.sites.empty()) return {};
  const Set possible = possible_releases(dispatch);
  Set older;
  for (std::size_t i = 0; i < releases.size(); ++i) older[i] = releases[i].name < "4";
  if (possible.none()) return {};
  return (possible & ~older).none() ? "3.x" : (possible & older).none() ? "4.x" : "";
}

std::string header_release(const Dispatch &dispatch) {
  if (dispatch.sites.empty()) return {};
  const Set possible = possible_releases(dispatch);
  if (possible.none()) return "none of the MLNX_OFED releases";
  std::size_t first = 0, last = releases.size() - 1;
  while (!possible[first]) ++first;
  while (!possible[last]) --last;
  std::string out = "MLNX_OFED " + std::string(releases[first].name);
  if (first != last) {
    const std::string_view end = releases[last].name;
    const std::size_t to = end.rfind(' ');  // the last of a range
    out += " to " + std::string(to == std::string_view::npos ? end : end.substr(to + 1));
  }
  return out;
}

}  // namespace ibvexp::audit
