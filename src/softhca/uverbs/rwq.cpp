// Indirection tables of receive work queues, and the hash of RSS QPs
// (core/uverbs_cmd.c, mlx5_ib_create_rwq_ind_table, create_rss_raw_qp_tir).
#include "uverbs/rwq.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "uverbs/dispatch.h"
#include "uverbs/uverbs_limits.h"

namespace softhca::uverbs {

namespace {

int create_table(File &file, Attrs &attrs) {
  constexpr size_t header = sizeof(ib_uverbs_ex_create_rwq_ind_table);
  std::vector<u8> in;
  if (const int error = attrs.bytes(UVERBS_ATTR_CORE_IN, in); error != 0) return error;
  ib_uverbs_ex_create_rwq_ind_table req{};
  std::memcpy(&req, in.data(), header);
  if (req.comp_mask != 0) return EOPNOTSUPP;
  if (req.log_ind_tbl_size > IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE) return EINVAL;
  const u32 entries = 1u << req.log_ind_tbl_size;
  const size_t used = header + size_t{entries} * sizeof(u32);
  if (in.size() < used) return ENOSPC;
  if (!attrs.cleared_from(UVERBS_ATTR_CORE_IN, static_cast<u32>(used))) return EOPNOTSUPP;

  std::vector<WqObject *> wqs;
  for (u32 i = 0; i < entries; ++i) {
    u32 handle = 0;
    std::memcpy(&handle, in.data() + header + i * sizeof handle, sizeof handle);
    int error = 0;
    wqs.push_back(file.objects.get<WqObject>(handle, error));
    if (error != 0) return error;
  }
  if (!attrs.cleared_from(UVERBS_ATTR_UHW_IN, 0)) return EOPNOTSUPP;
  if (entries > file.caps().max_indirection_entries) return EINVAL;

  static u32 next_number = 1;
  ib_uverbs_ex_create_rwq_ind_table_resp resp{};
  resp.ind_tbl_handle = file.objects.reserve();
  resp.ind_tbl_num = next_number++ & 0xffffff;
  resp.response_length = response_length(attrs, sizeof resp);
  if (driver_response_room(attrs) != 0) {
    const mlx5_ib_create_rwq_ind_tbl_resp driver{sizeof driver, 0};
    if (const int error = driver_respond(attrs, driver); error != 0) return error;
  }
  if (const int error = respond(attrs, resp); error != 0) return error;
  file.objects.insert(resp.ind_tbl_handle, std::make_unique<IndTableObject>(file, std::move(wqs)));
  return 0;
}

int destroy_table(File &file, Attrs &attrs) {
  return destroy(file, attrs, UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE);
}

int destroy_table_write(File &file, Attrs &attrs) {
  ib_uverbs_ex_destroy_rwq_ind_table req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.comp_mask != 0) return EOPNOTSUPP;
  int error = 0;
  IndTableObject *object = file.objects.get<IndTableObject>(req.ind_tbl_handle, error);
  return object != nullptr ? file.objects.destroy(object) : error;
}

// One IP version and at most one kind of ports; no field at all only where
// there is nothing to choose from.
int check_fields(u64 fields, size_t entries) {
  if ((fields & ~u64{supported_hash_fields}) != 0) return EOPNOTSUPP;
  if ((fields & ~u64{hash_inner}) == 0) return entries == 1 ? 0 : EINVAL;
  if ((fields & hash_ipv4) != 0 && (fields & hash_ipv6) != 0) return EINVAL;
  return (fields & hash_tcp) != 0 && (fields & hash_udp) != 0 ? EINVAL : 0;
}

constexpr AttrSpec destroy_specs[] = {
    destroyed(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, ObjectClass::ind_table)};
constexpr Method methods[] = {
    {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, "RWQ_IND_TBL/DESTROY",
     destroy_table, destroy_specs},
};
constexpr u32 extended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr WriteCommand commands[] = {
    {extended | IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL, "WRITE/EX_CREATE_RWQ_IND_TBL",
     sizeof(ib_uverbs_ex_create_rwq_ind_table),
     SOFTHCA_END_OF(ib_uverbs_ex_create_rwq_ind_table_resp, ind_tbl_num), create_table},
    {extended | IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL, "WRITE/EX_DESTROY_RWQ_IND_TBL",
     sizeof(ib_uverbs_ex_destroy_rwq_ind_table), 0, destroy_table_write},
};

}  // namespace

int read_rss(const File &, const Attrs &attrs, const IndirectionTable &table, EthQp &out) {
  constexpr u32 known_flags = MLX5_QP_FLAG_TUNNEL_OFFLOADS | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC |
                              MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;
  mlx5_ib_create_qp_rss d{};
  if (const int error =
          driver_request(attrs, d, SOFTHCA_END_OF(mlx5_ib_create_qp_rss, flags), EOPNOTSUPP);
      error != 0)
    return error;
  if (driver_response_room(attrs) < SOFTHCA_END_OF(mlx5_ib_create_qp_resp, bfreg_index))
    return EINVAL;
  if (d.comp_mask != 0) return EOPNOTSUPP;
  if ((d.flags & ~known_flags) != 0) return EINVAL;
  out.offloads.tunnel = (d.flags & MLX5_QP_FLAG_TUNNEL_OFFLOADS) != 0;
  if ((d.rx_hash_fields_mask & hash_inner) != 0 && !out.offloads.tunnel) return EOPNOTSUPP;
  if (d.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ) return EOPNOTSUPP;
  if (d.rx_key_len != toeplitz_key_bytes) return EINVAL;
  if (const int error = check_fields(d.rx_hash_fields_mask, table.wqs.size()); error != 0)
    return error;
  out.rss = std::make_unique<Rss>();
  std::memcpy(out.rss->key.data(), d.rx_hash_key, toeplitz_key_bytes);
  out.rss->fields = static_cast<u32>(d.rx_hash_fields_mask);
  out.rss->table = &table;
  return 0;
}

constinit const Family rwq_family = {methods, commands};

}  // namespace softhca::uverbs
