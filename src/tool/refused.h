// What counts as a refusal.
#pragma once

#include <algorithm>
#include <string_view>

#include "table/compat.h"

namespace ibvexp::tool {

// Whether a row that was answered ENOTSUP so often was refused: for `ibvexp run --fail-on-refused`
// and for --fail-on of its trace. Bits that an answer leaves out are not.
inline bool was_refused(std::string_view row, std::uint64_t refusals) {
  const auto is_of_answer = [&](const Feature &f) {
    return f.name == row &&
           (f.kind == Kind::capability || f.owner.starts_with("ibv_exp_device_attr_comp_mask"));
  };
  return refusals != 0 && std::ranges::none_of(features, is_of_answer);
}

}  // namespace ibvexp::tool
