// The version node under which the library shows an entry of the tables.
#pragma once

#include "table/compat.h"

namespace ibvexp {

inline const char *node_of(const Entry &entry) {
  switch (entry.node) {
    case Node::exp_1_0: return "IBVERBS_EXP_1.0";
    case Node::ibverbs_1_1: return "IBVERBS_1.1";
    case Node::rdmacm_1_0: return "RDMACM_1.0";
    case Node::none: break;
  }
  return "";
}

}  // namespace ibvexp
