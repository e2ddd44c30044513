#include "table/feature_rows.h"

#include <cstddef>

namespace ibvexp {

namespace {

// All strings one behind the other, each in a member of its own.
struct Texts {
#define IBVEXP_TEXTS(id, name, owner, target, rows, note)                                \
  char id##_name[sizeof(name)], id##_owner[sizeof(#owner)], id##_target[sizeof(target)], \
      id##_rows[sizeof(rows)], id##_note[sizeof(note)];
#define IBVEXP_CONSTANT(name, family, owner, kind, verdict, beyond, min_core, refusal, target, \
                        rows, note)                                                            \
  IBVEXP_TEXTS(name, #name, owner, target, rows, note)
#define IBVEXP_FEATURE(id, name, family, owner, kind, verdict, beyond, min_core, refusal, target, \
                       rows, note)                                                                \
  IBVEXP_TEXTS(id, name, owner, target, rows, note)
#include "table/features.def"
#undef IBVEXP_TEXTS
};

constexpr Texts texts = {
#define IBVEXP_CONSTANT(name, family, owner, kind, verdict, beyond, min_core, refusal, target, \
                        rows, note)                                                            \
#name, #owner, target, rows, note,
#define IBVEXP_FEATURE(id, name, family, owner, kind, verdict, beyond, min_core, refusal, target, \
                       rows, note)                                                                \
  name, #owner, target, rows, note,
#include "table/features.def"
};

// Where in texts a string is.
struct Place {
  std::uint32_t at;
  std::uint16_t length;
  std::string_view view() const noexcept {
    return {reinterpret_cast<const char *>(&texts) + at, length};
  }
};

struct Compact {
  Place name, owner, target, rows, note;
  Family family;
  Kind kind;
  bool enumerator;
  Verdict verdict;
  Beyond beyond;
  std::uint8_t min_core, refusal;
};

#define IBVEXP_PLACE(member) \
  { offsetof(Texts, member), sizeof(Texts::member) - 1 }
#define IBVEXP_COMPACT(id, family, kind, enumerator, verdict, beyond, min_core, refusal) \
  {IBVEXP_PLACE(id##_name),                                                              \
   IBVEXP_PLACE(id##_owner),                                                             \
   IBVEXP_PLACE(id##_target),                                                            \
   IBVEXP_PLACE(id##_rows),                                                              \
   IBVEXP_PLACE(id##_note),                                                              \
   Family::family,                                                                       \
   Kind::kind,                                                                           \
   enumerator,                                                                           \
   Verdict::verdict,                                                                     \
   Beyond::beyond,                                                                       \
   min_core,                                                                             \
   refusal},
constexpr Compact compact[] = {
#define IBVEXP_CONSTANT(name, family, owner, kind, verdict, beyond, min_core, refusal, ...) \
  IBVEXP_COMPACT(name, family, kind, true, verdict, beyond, min_core, refusal)
#define IBVEXP_FEATURE(id, name, family, owner, kind, verdict, beyond, min_core, refusal, ...) \
  IBVEXP_COMPACT(id, family, kind, false, verdict, beyond, min_core, refusal)
#include "table/features.def"
};
#undef IBVEXP_COMPACT
#undef IBVEXP_PLACE

static_assert(std::size(compact) == features.size());

}  // namespace

Feature feature_row(FeatureId id) noexcept {
  const Compact &c = compact[static_cast<std::size_t>(id)];
  return {
      c.name.view(),
      c.family,
      c.owner.view(),
      c.kind,
      c.enumerator,
      {c.verdict, c.beyond, c.min_core, c.refusal, c.target.view(), c.rows.view(), c.note.view()}};
}

}  // namespace ibvexp
