// Operations in rdma-core's structures, which its inlines in other threads read
// without a lock.
#pragma once

namespace ibvexp {

// The inlines read with plain loads, which cannot be changed and which a sanitizer
// would call a race: of an aligned pointer x86-64 loads the old or the new value,
// and both serve every object that the reader may have.
template <class F>
[[gnu::no_sanitize_thread, gnu::noinline]] void replace(F *&operation, F *with) noexcept {
  __atomic_store_n(&operation, with, __ATOMIC_RELEASE);
}

}  // namespace ibvexp
