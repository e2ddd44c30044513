// Who called a function that this library puts in front of rdma-core.
#pragma once

namespace ibvexp {

// A return address inside libibverbs or libmlx5, which take their own objects from
// the verbs they call. librdmacm is not meant: it makes objects for programs.
bool is_of_rdma_core(const void *return_address) noexcept;

}  // namespace ibvexp
