#include "translate/verbs/scatter.h"

#include <cstdlib>
#include <cstring>

namespace ibvexp::translate {

namespace {

bool is(const char *variable, const char *value) {
  const char *set = std::getenv(variable);
  return set != nullptr && std::strcmp(set, value) == 0;
}

bool large() { return is("MLX5_CQE_SIZE", "128"); }
bool off() { return is("MLX5_SCATTER_TO_CQE", "0"); }

}  // namespace

std::uint32_t scatter_to_connected() { return off() ? 0 : large() ? 64 : 32; }
std::uint32_t scatter_to_dct(std::uint32_t entry_size) {
  const bool has_room = entry_size != 0 ? entry_size == 128 : large();
  return !off() && has_room ? 64 : 0;
}

}  // namespace ibvexp::translate
