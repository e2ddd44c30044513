// Opening a context: what libmlx5 learns at open, the event descriptors, and
// the list of handles.
#include "uverbs/context.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "engine/callers.h"
#include "engine/doorbells.h"
#include "engine/engine.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

// The driver has one completion vector per CPU.
u32 completion_vectors() {
  static const u32 n = static_cast<u32>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return n;
}

namespace {

u32 log2_of(u64 n) { return static_cast<u32>(63 - __builtin_clzll(n)); }

mlx5_ib_alloc_ucontext_resp describe(const File &file) {
  const Device &device = file.device();
  const Capabilities &caps = device.caps;
  bool ethernet = false;
  for (u32 port = 1; port <= device.port_count(); ++port) ethernet |= device.ethernet(port);

  mlx5_ib_alloc_ucontext_resp r{};
  r.qp_tab_size = 1u << 18;
  r.bf_reg_size = 512;
  if (file.bfregs.in_use()) {  // else UARs are allocated one by one
    r.tot_bfregs = file.bfregs.total();
    r.num_dyn_bfregs = Bfregs::dynamic;
  }
  r.cache_line_size = 64;
  r.max_sq_desc_sz = 1024;
  r.max_rq_desc_sz = 512;
  r.max_send_wqebb = caps.max_qp_wr;
  r.max_recv_wr = caps.max_qp_wr;
  r.max_srq_recv_wr = caps.max_srq_wr + 1;  // the kernel reports 1 << log_max_srq_sz here
  r.num_ports = static_cast<u16>(device.port_count());
  r.comp_mask =
      MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG | MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_SQD2RTS;
  r.cqe_version = 1;
  r.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
  r.eth_min_inline = ethernet ? MLX5_USER_INLINE_MODE_NONE : MLX5_USER_INLINE_MODE_NA;
  if (caps.timestamps) {
    r.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
    r.hca_core_clock_offset = hca_core_clock_offset;
    r.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1;
  }
  if (caps.null_mkey) {
    r.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY;
    r.dump_fill_mkey = process().mkeys.null().key();
  }
  r.log_uar_size = log2_of(page_size);
  r.num_uars_per_page = 1;
  return r;
}

int report(const Attrs &attrs, const File &file, u16 vectors, u16 support, u16 driver) {
  const u32 n = completion_vectors();
  const u64 core_support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
  if (const int error = attrs.out(vectors, n); error != 0) return error;
  if (const int error = attrs.out(support, core_support); error != 0) return error;
  mlx5_ib_alloc_ucontext_resp resp = describe(file);
  resp.response_length = std::min<u32>(attrs.length(driver), sizeof resp);
  return attrs.out(driver, resp);
}

// Doorbell pages that are there from the beginning. libmlx5 maps each with write
// combining or, as MLX5_SHUT_UP_BF says, without.
void map_static_uars(const File &file) {
  for (u32 i = 0; i < file.bfregs.pages(); ++i) {
    u8 *combining = file.page(i), *uncached = file.page(uncached_page + i);
    doorbells_add(combining, uncached);
    doorbells_add(uncached, combining);
  }
}

// Kernel: mlx5_ib_alloc_ucontext. The request of the first ABI (8 bytes) is not
// offered.
int get_context(File &file, Attrs &attrs) {
  if (file.has_context) return EINVAL;
  mlx5_ib_alloc_ucontext_req_v2 req{};
  if (const int error =
          driver_request(attrs, req, offsetof(mlx5_ib_alloc_ucontext_req_v2, max_cqe_version));
      error != 0)
    return error;
  if ((req.flags & ~u32{MLX5_IB_ALLOC_UCTX_DEVX}) != 0 || req.comp_mask != 0 ||
      req.reserved0 != 0 || req.reserved1 != 0 || req.reserved2 != 0)
    return EOPNOTSUPP;
  const u32 total = static_cast<u32>(align_up(req.total_num_bfregs, 2));
  if (req.num_low_latency_bfregs > total - 1) return EINVAL;
  if (req.max_cqe_version < 1) {
    SOFTHCA_LOG(error, "this libmlx5 is too old: CQE version 1 is needed");
    return EOPNOTSUPP;
  }
  if ((req.lib_caps & MLX5_LIB_CAP_DYN_UAR) == 0)
    if (const int error = file.bfregs.open(total, req.num_low_latency_bfregs); error != 0)
      return error;

  if (const int error = process().start(); error != 0) {
    SOFTHCA_LOG(error, "the device does not start: errno %d", error);
    return error;
  }
  callers_find();
  if (const int error = report(attrs, file, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS,
                               UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_UHW_OUT);
      error != 0)
    return error;
  map_static_uars(file);
  file.has_context = true;
  file.devx = (req.flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0;
  engine_add_clock_page(file.bar + u64{core_clock_page} * page_size,
                        file.bar + u64{clock_info_page} * page_size);
  return 0;
}

int query_context(File &file, Attrs &attrs) {
  return report(attrs, file, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
                UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX);
}

int info_handles(File &file, Attrs &attrs) {
  u64 object = 0;
  attrs.constant(UVERBS_ATTR_INFO_OBJECT_ID, object);
  if (object == 0 || object > 0xffff) return EINVAL;
  const std::vector<u32> handles = file.objects.handles(static_cast<ObjectClass>(object));
  const u32 total = static_cast<u32>(handles.size());
  if (const int error = attrs.out(UVERBS_ATTR_INFO_TOTAL_HANDLES, total); error != 0) return error;
  const u32 room = attrs.length(UVERBS_ATTR_INFO_HANDLES_LIST) / sizeof(u32);
  return attrs.write(UVERBS_ATTR_INFO_HANDLES_LIST, handles.data(),
                     static_cast<u32>(std::min(room, total) * sizeof(u32)));
}

int async_event_alloc(File &file, Attrs &attrs) {
  EventChannel *channel = file.create_channel(ChannelKind::async);
  if (channel == nullptr) return errno;
  const int error =
      attrs.publish(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, channel->application_fd());
  if (error != 0) file.abandon_channel(channel);
  return error;
}

int create_comp_channel(File &file, Attrs &attrs) {
  ib_uverbs_create_comp_channel req{};
  if (const int error = request(attrs, req); error != 0) return error;
  EventChannel *channel = file.create_channel(ChannelKind::completion);
  if (channel == nullptr) return errno;
  const ib_uverbs_create_comp_channel_resp resp{static_cast<u32>(channel->application_fd())};
  const int error = respond(attrs, resp);
  if (error != 0) file.abandon_channel(channel);
  return error;
}

constexpr AttrSpec get_context_specs[] = {
    out<u32>(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS).optional(),
    out<u64>(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT).optional(),
};
constexpr AttrSpec query_context_specs[] = {
    out<u32>(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS).optional(),
    out<u64>(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT).optional(),
    out_struct<mlx5_ib_alloc_ucontext_resp>(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX,
                                            sizeof(mlx5_ib_alloc_ucontext_resp)),
};
constexpr AttrSpec info_handles_specs[] = {
    constant(UVERBS_ATTR_INFO_OBJECT_ID),
    out<u32>(UVERBS_ATTR_INFO_TOTAL_HANDLES),
    out_bytes(UVERBS_ATTR_INFO_HANDLES_LIST, sizeof(u32)).optional(),
};
constexpr AttrSpec async_specs[] = {created_fd(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)};

constexpr Method methods[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, "DEVICE/GET_CONTEXT", get_context,
     get_context_specs, true},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, "DEVICE/QUERY_CONTEXT", query_context,
     query_context_specs},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, "DEVICE/INFO_HANDLES", info_handles,
     info_handles_specs},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, "ASYNC_EVENT/ALLOC",
     async_event_alloc, async_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "WRITE/CREATE_COMP_CHANNEL",
     sizeof(ib_uverbs_create_comp_channel), sizeof(ib_uverbs_create_comp_channel_resp),
     create_comp_channel},
};

}  // namespace

constinit const Family context_family = {methods, commands};

}  // namespace softhca::uverbs
