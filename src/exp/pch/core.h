// Precompiled for the library: what many of its sources include. Sources still
// include what they use.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <infiniband/verbs_exp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <vector>

#include "trace/diagnose.h"
#include "translate/state/context_state.h"
