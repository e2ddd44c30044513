// Network interfaces of the machine, for ports whose packets they carry.
#pragma once

#include <array>
#include <string>

#include "base/types.h"

namespace softhca {

struct Interface {
  std::string name, ipv4;
  std::array<u8, 6> mac{};  // all 0: none
  u32 mtu = 0;
  // The largest of RoCE that fits, with its headers. At least 256.
  u32 roce_mtu() const;
};

// The interface that is meant: by its name, by its address, or with neither that
// of the default route, or else the first that is up, has an IPv4 address and is not
// the loopback interface. An address that the interface has beside others is
// taken as it is. False with what is wrong and what there is.
bool find_interface(const std::string &name, const std::string &ipv4, Interface &out,
                    std::string &error);

}  // namespace softhca
