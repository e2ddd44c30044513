// Device attributes, modern to legacy. No calls.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include "table/feature_bits.h"

namespace ibvexp::translate {

// Everything that rdma-core reports about a device.
struct DeviceFacts {
  ibv_device_attr_ex attr;
  mlx5dv_context dv;  // zeros on other devices
  bool is_mlx5;
  bool engine;                        // it drives the queues, not libmlx5
  std::uint32_t masked_atomic_sizes;  // bit n: 1 << n bytes
  bool paces_bursts;
  bool unanswered;  // the query of one of these two failed: repeat it
  bool dc;          // an initiator can be created
  bool masters;     // of cross-channel can be created
  // Reads and atomics under way over DC; zeros before rdma-core v47.
  std::uint64_t max_dc_target_reads, max_dc_initiator_reads;
  bool indirect_keys;   // of the largest size; known if capabilities or UMR are asked for
  bool stride_queues;   // shared ones that match tags; known if multi-packet queues are asked for
  bool scatter_to_cqe;  // small receives may land in the completion
};

// Whether a row may be reported, under the options of the process; tests have their
// own.
using Reportable = bool (*)(FeatureId);

// Fills the head, and the members that to.comp_mask names, if they are known and
// may be reported. The masks return what was filled.
void to_legacy(const DeviceFacts &from, Reportable reportable, ibv_exp_device_attr &to);

// The capability word alone.
std::uint64_t exp_capabilities(const DeviceFacts &from, Reportable reportable);

}  // namespace ibvexp::translate
