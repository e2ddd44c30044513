// What legacy programs are refused, from the specification (unit/facts/refused.def)
// and not from the tables under test.
#pragma once

#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>

#include <cstdint>
#include <string_view>

#include "table/compat_types.h"

namespace refused {

struct Call {
  std::string_view name;
  ibvexp::Shape shape;
};

inline constexpr Call calls[] = {
#define REFUSED_CALL(name, shape) {#name, ibvexp::Shape::shape},
#define REFUSED_VALUE(owner, name)
#include "../unit/facts/refused.def"
#undef REFUSED_CALL
#undef REFUSED_VALUE
};

struct Value {
  std::string_view owner, name;
  std::uint64_t value;
};

inline constexpr Value values[] = {
#define REFUSED_CALL(name, shape)
#define REFUSED_VALUE(owner, name) {#owner, #name, static_cast<std::uint64_t>(name)},
#include "../unit/facts/refused.def"
#undef REFUSED_CALL
#undef REFUSED_VALUE
};

constexpr const Call *find_call(std::string_view name) {
  for (const Call &call : calls)
    if (call.name == name) return &call;
  return nullptr;
}

constexpr const Value *find_value(std::string_view name) {
  for (const Value &value : values)
    if (value.name == name) return &value;
  return nullptr;
}

}  // namespace refused
