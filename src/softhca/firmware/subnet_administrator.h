// The subnet administrator (InfiniBand specification, 15.2): finds paths and admits ports to
// multicast groups. Each process has its own; the parameters of a group follow
// from its GID, so that all processes of a fabric agree.
#pragma once

#include <array>
#include <map>

#include "base/prm.h"
#include "base/types.h"

namespace softhca {

using Mgid = std::array<u8, 16>;

// The multicast LID of a group.
u16 multicast_lid(const Mgid &);

inline constexpr u8 mad_class_sa = 3;

class SubnetAdministrator {
 public:
  // Answers a request. False for what is no request.
  bool answer(const u8 *request, u8 *answer);

 private:
  u16 member_record(u8 method, u64 components, u8 *record);
  static u16 path_record(u64 components, u8 *record);

  struct Group {
    u32 qkey;
    u16 pkey;
  };
  std::map<Mgid, Group> joined_;
  u32 named_ = 0;  // groups that got their GID here
};

}  // namespace softhca
