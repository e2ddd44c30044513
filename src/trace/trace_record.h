// A process's image as the JSON object that stands for it in a trace.
#pragma once

#include <cstddef>
#include <string_view>

#include "trace/trace_image.h"

namespace ibvexp::trace {

// Enough for any image.
inline constexpr std::size_t record_bytes = 8 << 20;

// Returns the length, 0 if there was no room. Neither allocates nor locks.
std::size_t write_record(const Image &image, std::string_view state, char *out,
                         std::size_t size) noexcept;

}  // namespace ibvexp::trace
