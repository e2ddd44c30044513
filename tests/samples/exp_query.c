/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints what the experimental queries say about every device: which
 * attributes came back, the capability word, ports and GID types.
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

static int show(struct ibv_device *device) {
  struct ibv_context *context = ibv_open_device(device);
  struct ibv_exp_device_attr attr;
  int error, port;

  if (!context) return 1;
  memset(&attr, 0, sizeof(attr));
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
  attr.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1;
  error = ibv_exp_query_device(context, &attr);
  printf("%s: ibv_exp_query_device %d, comp_mask %08x %" PRIx64 ", capabilities %016" PRIx64
         ", firmware %s\n",
         ibv_get_device_name(device), error, attr.comp_mask, attr.comp_mask_2,
         attr.exp_device_cap_flags, attr.fw_ver);
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
