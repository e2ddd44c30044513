/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints what the experimental queries say about every device: what it can do and
 * how much of it, its ports and their GIDs.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs_exp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int show_port(struct ibv_context *context, uint8_t number) {
  struct ibv_exp_port_attr port;
  int i;

  memset(&port, 0, sizeof(port));
  port.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;
  port.mask1 = IBV_EXP_QUERY_PORT_MASK;
  if (ibv_exp_query_port(context, number, &port)) return 1;
  printf("  port %d: state %d, lid %d, %s\n", number, port.state, port.lid,
         port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
  for (i = 0; i < port.gid_tbl_len && i < 4; ++i) {
    struct ibv_exp_gid_attr gid;

    memset(&gid, 0, sizeof(gid));
    gid.comp_mask = IBV_EXP_QUERY_GID_ATTR_TYPE | IBV_EXP_QUERY_GID_ATTR_GID;
    if (ibv_exp_query_gid_attr(context, number, (unsigned)i, &gid)) return 1;
    printf("    gid %d: type %d, %016" PRIx64 "\n", i, gid.type,
           (uint64_t)be64toh(gid.gid.global.interface_id));
  }
  return 0;
}

static void show_limits(const struct ibv_exp_device_attr *attr) {
  printf("  %d queue pairs of %d requests, %d completion queues of %d entries\n", attr->max_qp,
         attr->max_qp_wr, attr->max_cq, attr->max_cqe);
  if (attr->comp_mask & IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK)
    printf("  time stamps: mask %" PRIx64 ", clock of %" PRIu64 " kHz\n",
           (uint64_t)attr->timestamp_mask, (uint64_t)attr->hca_core_clock);
  if (attr->exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT)
    printf("  dynamically connected transport\n");
  if (attr->comp_mask & IBV_EXP_DEVICE_ATTR_UMR) printf("  memory keys that requests fill\n");
  if (attr->comp_mask & IBV_EXP_DEVICE_ATTR_ODP)
    printf("  memory on demand: %" PRIx64 "\n", (uint64_t)attr->odp_caps.general_odp_caps);
  if (attr->comp_mask & IBV_EXP_DEVICE_ATTR_TSO_CAPS)
    printf("  segmentation of %u bytes\n", (unsigned)attr->tso_caps.max_tso);
  if ((attr->comp_mask & IBV_EXP_DEVICE_ATTR_RX_HASH) &&
      attr->rx_hash_caps.max_rwq_indirection_tables)
    printf("  %u tables of %u receive queues\n",
           (unsigned)attr->rx_hash_caps.max_rwq_indirection_tables,
           (unsigned)attr->rx_hash_caps.max_rwq_indirection_table_size);
  if ((attr->comp_mask & IBV_EXP_DEVICE_ATTR_MP_RQ) && attr->mp_rq_caps.supported_qps)
    printf("  receives of 2^%u to 2^%u strides of 2^%u to 2^%u bytes\n",
           attr->mp_rq_caps.min_single_wqe_log_num_of_strides,
           attr->mp_rq_caps.max_single_wqe_log_num_of_strides,
           attr->mp_rq_caps.min_single_stride_log_num_of_bytes,
           attr->mp_rq_caps.max_single_stride_log_num_of_bytes);
  if (attr->comp_mask & IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE)
    printf("  %" PRIu64 " bytes of device memory\n", (uint64_t)attr->max_dm_size);
  if (attr->comp_mask & IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS)
    printf("  pacing up to %u kbit/s\n", (unsigned)attr->packet_pacing_caps.qp_rate_limit_max);
}

static int show(struct ibv_device *device) {
  struct ibv_context *context = ibv_open_device(device);
  struct ibv_exp_device_attr attr;
  int error, port;

  if (!context) return 1;
  memset(&attr, 0, sizeof(attr));
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
  attr.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1;
  error = ibv_exp_query_device(context, &attr);
  if (!error) {
    printf("%s: firmware %s\n", ibv_get_device_name(device), attr.fw_ver);
    show_limits(&attr);
  }
  for (port = 1; !error && port <= attr.phys_port_cnt; ++port)
    error = show_port(context, (uint8_t)port);
  return ibv_close_device(context) || error;
}

int main(void) {
  int count, i, failed = 0;
  struct ibv_device **list = ibv_exp_get_device_list(&count);

  if (!list || !count) {
    fprintf(stderr, "exp_query: no device\n");
    return 1;
  }
  for (i = 0; i < count; ++i) failed |= show(list[i]);
  ibv_free_device_list(list);
  return failed;
}
