// Access flags of memory, legacy to modern. No calls.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

// Rights of regions, keys and windows, which coincide.
inline constexpr std::uint64_t access_rights =
    IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_REMOTE_READ |
    IBV_EXP_ACCESS_REMOTE_ATOMIC | IBV_EXP_ACCESS_MW_BIND;
static_assert(access_rights ==
              (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND));

// (modern <- exp) Of a window.
constexpr unsigned to_modern_window_access(std::uint64_t exp_access) {
  unsigned access = static_cast<unsigned>(exp_access & access_rights);
  if ((exp_access & IBV_EXP_ACCESS_MW_ZERO_BASED) != 0) access |= IBV_ACCESS_ZERO_BASED;
  return access;
}

// (exp <- modern) The way back.
constexpr std::uint64_t to_exp_window_access(unsigned access) {
  std::uint64_t exp = access & access_rights;
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) exp |= IBV_EXP_ACCESS_MW_ZERO_BASED;
  return exp;
}

// (modern <- exp) Of a region. Left out: ALLOCATE_MR and RELAXED, which ask for nothing of
// rdma-core.
constexpr unsigned to_modern_access(std::uint64_t exp_access) {
  if ((exp_access & ~access_rights) == 0) [[likely]]
    return static_cast<unsigned>(exp_access);
  unsigned access = to_modern_window_access(exp_access);
  if ((exp_access & IBV_EXP_ACCESS_ON_DEMAND) != 0) access |= IBV_ACCESS_ON_DEMAND;
  if ((exp_access & IBV_EXP_ACCESS_RELAXED_ORDERING) != 0) access |= IBV_ACCESS_RELAXED_ORDERING;
  // Only the processor uses the region: no remote access, no windows.
  if ((exp_access & IBV_EXP_ACCESS_NO_RDMA) != 0)
    access &= ~unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND};
  return access;
}

}  // namespace ibvexp::translate
