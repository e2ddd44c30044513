// Small receives in the completion itself. The kernel does not say what it grants;
// it decides by the size of the completion, which the environment can double.
#pragma once

#include <cstdint>

namespace ibvexp::translate {

// Bytes: half a completion on connected queue pairs; on DC targets with large ones
// only.
std::uint32_t scatter_to_connected();
std::uint32_t scatter_to_dct(std::uint32_t entry_size);  // of the CQ; 0: not known

}  // namespace ibvexp::translate
