// RSS: what the creation of a QP needs to know of it.
#pragma once

#include "uverbs/attrs.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

// Reads and checks the driver data of an RSS QP on `table`; fills in hash and
// offloads.
int read_rss(const File &, const Attrs &, const IndirectionTable &table, EthQp &out);

}  // namespace softhca::uverbs
