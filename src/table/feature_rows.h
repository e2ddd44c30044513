// Rows of features whose id is known at run time only. The array of compat.h is for constant
// expressions: in a library each of its strings is a relocation, and the array nineteen pages
// that the dynamic linker writes to in every process.
#pragma once

#include "table/compat.h"

namespace ibvexp {

// Not for data paths.
Feature feature_row(FeatureId id) noexcept;

// Columns of a row that is known when this is compiled.
template <FeatureId id>
inline constexpr Answer answer_of = row(id).answer;
template <FeatureId id>
inline constexpr std::string_view name_of_feature = row(id).name;

}  // namespace ibvexp
