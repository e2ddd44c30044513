// Access flags of memory, legacy to modern. No calls.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

// (modern <- exp) The first five coincide. Left out: ALLOCATE_MR and RELAXED,
// which ask for nothing of rdma-core.
constexpr unsigned to_modern_access(std::uint64_t exp_access) {
  constexpr std::uint64_t common = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                                   IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC |
                                   IBV_EXP_ACCESS_MW_BIND;
  static_assert(common == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND));
  unsigned access = static_cast<unsigned>(exp_access & common);
  if ((exp_access & IBV_EXP_ACCESS_MW_ZERO_BASED) != 0) access |= IBV_ACCESS_ZERO_BASED;
  if ((exp_access & IBV_EXP_ACCESS_ON_DEMAND) != 0) access |= IBV_ACCESS_ON_DEMAND;
  if ((exp_access & IBV_EXP_ACCESS_RELAXED_ORDERING) != 0) access |= IBV_ACCESS_RELAXED_ORDERING;
  return access;
}

}  // namespace ibvexp::translate
