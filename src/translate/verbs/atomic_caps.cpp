#include "translate/verbs/atomic_caps.h"

#include <infiniband/mlx5dv.h>

#include <array>

namespace ibvexp::translate {

std::uint32_t masked_atomic_sizes(ibv_context *context) {
  // QUERY_HCA_CAP, page of atomics, current values.
  constexpr std::uint32_t query_hca_cap = 0x100, atomics = 3, current = 1;
  constexpr std::size_t header = 4;  // words in front of the page
  constexpr std::uint32_t extended_compare_swap = 4, extended_fetch_add = 8;
  // What a request can express: 4 to 32 bytes.
  constexpr std::uint32_t expressible = 0x3c;

  std::array<__be32, 4> in{htobe32(query_hca_cap << 16), htobe32(atomics << 1 | current)};
  std::array<__be32, header + 1024> out{};
  if (mlx5dv_devx_general_cmd(context, in.data(), sizeof(in), out.data(), sizeof(out)) != 0)
    return 0;
  const std::uint32_t operations = be32toh(out[header + 4]);
  const std::uint32_t connected = be32toh(out[header + 5]), dc = be32toh(out[header + 6]);
  if ((operations & extended_compare_swap) == 0 || (operations & extended_fetch_add) == 0) return 0;
  return connected & dc & expressible;
}

}  // namespace ibvexp::translate
