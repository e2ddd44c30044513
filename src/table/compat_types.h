// Row types of the compatibility tables and the vocabulary of their columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ibvexp {

// Makes an enum and the names of its enumerators from one list.
#define IBVEXP_ENUMERATOR(name) name,
#define IBVEXP_ENUMERATOR_NAME(name) std::string_view(#name),
#define IBVEXP_NAMED_ENUM(Type, LIST)                                                   \
  enum class Type : std::uint8_t { LIST(IBVEXP_ENUMERATOR) };                           \
  inline constexpr std::string_view names_of_##Type[] = {LIST(IBVEXP_ENUMERATOR_NAME)}; \
  constexpr std::string_view name_of(Type v) {                                          \
    return names_of_##Type[static_cast<std::size_t>(v)];                                \
  }

// What becomes of a request or an answer.
//   native       rdma-core has the same feature
//   translated   done by other means, with the same result for the caller
//   partial      as translated, but some requests are refused: refusal and note
//   noop         accepted, and there is nothing to do
//   query_only   only ever reported, or deliberately never reported
//   beyond       refused unless IBVEXP_BEYOND switches it on
//   unsupported  refused
//   sentinel     a constant of validation or numbering, not a request
// clang-format off
#define IBVEXP_VERDICTS(X) \
  X(native) X(translated) X(partial) X(noop) X(query_only) X(beyond) X(unsupported) X(sentinel)
IBVEXP_NAMED_ENUM(Verdict, IBVEXP_VERDICTS)

// How a caller reaches an entry point, see entries.def.
#define IBVEXP_DOORS(X) X(slot_and_symbol) X(symbol) X(inline_only) X(absent)
IBVEXP_NAMED_ENUM(Door, IBVEXP_DOORS)

// Version node of an exported symbol.
#define IBVEXP_NODES(X) X(none) X(exp_1_0) X(ibverbs_1_1) X(rdmacm_1_0)
IBVEXP_NAMED_ENUM(Node, IBVEXP_NODES)

// How an entry point reports failure. The legacy API has no single convention, and
// compiled programs rely on the one of each verb. errno is set in every shape: programs
// print it whatever they were returned. A success leaves it alone.
//   positive      returns the errno value
//   positive_bad  as positive, and the bad_ argument points at the culprit
//   negative      returns the negated errno value
//   minus_one     returns -1
//   null_errno    returns NULL
//   null_status   returns NULL and sets *status
//   null          returns NULL
//   void_errno    returns nothing
//   zero          returns 0
//   no_symbol     cannot be called
#define IBVEXP_SHAPES(X)                                                                   \
  X(positive) X(positive_bad) X(negative) X(minus_one) X(null_errno) X(null_status) X(null) \
  X(void_errno) X(zero) X(no_symbol)
IBVEXP_NAMED_ENUM(Shape, IBVEXP_SHAPES)

// What a feature row describes.
//   capability   a bit the library reports
//   mask         a bit that says which members count
//   flag         a bit of a request
//   opcode       a work request or completion opcode
//   value        any other value of an enum or macro
//   limit        a constant of validation or numbering
//   field        a structure member
//   usage        one way to use a verb, with an answer of its own
//   environment  a variable that the legacy stack read
//   application  a program
//   modern       a name of rdma-core that the migration guide lists
#define IBVEXP_KINDS(X)                                                       \
  X(capability) X(mask) X(flag) X(opcode) X(value) X(limit) X(field) X(usage) \
  X(environment) X(application) X(modern)
IBVEXP_NAMED_ENUM(Kind, IBVEXP_KINDS)

// What a word of the operation table holds, see slots.def.
#define IBVEXP_FILLS(X) X(function) X(null) X(size)
IBVEXP_NAMED_ENUM(Fill, IBVEXP_FILLS)

#define IBVEXP_OPTION_TYPES(X) X(choice) X(path) X(boolean) X(list) X(text)
IBVEXP_NAMED_ENUM(OptionType, IBVEXP_OPTION_TYPES)

// Standing of an IBVEXP_BEYOND switch, see options.def.
#define IBVEXP_SWITCH_STATUSES(X) X(done) X(declined)
IBVEXP_NAMED_ENUM(SwitchStatus, IBVEXP_SWITCH_STATUSES)
// clang-format on

#undef IBVEXP_VERDICTS
#undef IBVEXP_DOORS
#undef IBVEXP_NODES
#undef IBVEXP_SHAPES
#undef IBVEXP_KINDS
#undef IBVEXP_FILLS
#undef IBVEXP_OPTION_TYPES
#undef IBVEXP_SWITCH_STATUSES
#undef IBVEXP_NAMED_ENUM
#undef IBVEXP_ENUMERATOR
#undef IBVEXP_ENUMERATOR_NAME

enum class Family : std::uint8_t {
#define IBVEXP_FAMILY(token, title, summary) token,
#include "table/families.def"
};

enum class Beyond : std::uint8_t {
  none,
  by_default,
#define IBVEXP_BEYOND_SWITCH(name, status, since, route, help) name,
#include "table/options.def"
};

struct FamilyInfo {
  std::string_view token;
  std::string_view title;
  std::string_view summary;
};

// The columns that every kind of row shares.
struct Answer {
  Verdict verdict;
  Beyond beyond;
  int min_core;             // first rdma-core release with the target, 0 = none needed
  int refusal;              // errno of what is refused, 0 = nothing is
  std::string_view target;  // modern counterpart
  std::string_view rows;    // ids in docs/migration-rows.md, separated by spaces
  std::string_view note;
};

struct Entry {
  std::string_view name;
  Family family;
  Door door;
  Node node;
  Shape shape;
  Answer answer;
};

struct Feature {
  std::string_view name;
  Family family;
  std::string_view owner;  // enum or structure it belongs to
  Kind kind;
  bool enumerator;  // an enumerator of the public header by that name
  Answer answer;
};

struct Slot {
  std::string_view name;
  Fill fill;
  std::string_view entry;  // name of the entry point, empty without a function
  std::string_view note;
};

struct Option {
  std::string_view name;
  OptionType type;
  std::string_view default_value;
  std::string_view allowed;  // separated by commas
  std::string_view help;
};

struct BeyondSwitch {
  std::string_view name;
  SwitchStatus status;
  int since;  // first rdma-core release with the route
  std::string_view route;
  std::string_view help;
};

}  // namespace ibvexp
