// What the engine keeps in each object of ours; see front.h for where it lies.
#pragma once

namespace ibvexp::queue {

struct QpEngine {};
struct CqEngine {};
struct SrqEngine {};
struct WqEngine {};

}  // namespace ibvexp::queue
