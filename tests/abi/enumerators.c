/* Names that were enumerators are labels of a switch, in C and in C++, and what arch.h and driver.h
   declared can be called: compiled with all warnings as errors. */
#include <infiniband/arch.h>
#include <infiniband/driver.h>
#include <string.h>

/* umad.h of rdma-core declares them where they are no macros. */
#if !defined(htonll) || !defined(ntohll)
#error "arch.h and umad.h cannot be included together"
#endif

static int event(enum ibv_event_type type) {
  switch (type) {
    case IBV_EXP_EVENT_DCT_KEY_VIOLATION: return 32;
    case IBV_EXP_EVENT_DCT_ACCESS_ERR: return 33;
    case IBV_EXP_EVENT_DCT_REQ_ERR: return 34;
    case IBV_EVENT_CQ_ERR: return 0;
    case IBV_EVENT_WQ_FATAL: return 19;
    default: return -1;
  }
}

static int transport(enum ibv_transport_type type) {
  switch (type) {
    case IBV_TRANSPORT_UNKNOWN: return -1;
    case IBV_TRANSPORT_IB: return 0;
    case IBV_TRANSPORT_IWARP: return 1;
    case IBV_EXP_TRANSPORT_SCIF: return 32;
    default: return -2;
  }
}

static int node(enum ibv_node_type type) {
  switch (type) {
    case IBV_NODE_UNKNOWN: return -1;
    case IBV_NODE_CA: return 1;
    case IBV_NODE_SWITCH: return 2;
    case IBV_EXP_NODE_MIC: return 32;
    default: return -2;
  }
}

static int queue_pair(enum ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC: return 2;
    case IBV_QPT_XRC: return 5;
    case IBV_QPT_RAW_ETH: return 8;
    case IBV_EXP_QPT_DC_INI: return 32;
    case IBV_QPT_DRIVER: return 255;
    default: return -1;
  }
}

static int layer(int link_layer) {
  switch (link_layer) {
    case IBV_LINK_LAYER_UNSPECIFIED: return 0;
    case IBV_LINK_LAYER_INFINIBAND: return 1;
    case IBV_LINK_LAYER_ETHERNET: return 2;
    case IBV_EXP_LINK_LAYER_SCIF: return 32;
    default: return -1;
  }
}

static int failed(void) {
  static char page[4096] __attribute__((aligned(4096)));
  enum ibv_qp_type type = IBV_EXP_QPT_DC_INI;
  const uint64_t swapped = htonll(0x0102030405060708);
  char line[16];

  if (event(IBV_EXP_EVENT_DCT_REQ_ERR) != 34 || event(IBV_EVENT_CQ_ERR) != 0) return 1;
  if (event(IBV_EXP_EVENT_DCT_KEY_VIOLATION) != 32 || event(IBV_EVENT_WQ_FATAL) != 19) return 2;
  if (transport(IBV_EXP_TRANSPORT_SCIF) != 32 || transport(IBV_TRANSPORT_IWARP) != 1) return 3;
  if (node(IBV_EXP_NODE_MIC) != 32 || node(IBV_NODE_SWITCH) != 2) return 4;
  if (queue_pair(type) != 32 || queue_pair(IBV_QPT_DRIVER) != 255) return 5;
  if (queue_pair(IBV_QPT_RAW_PACKET) != 8 || queue_pair(IBV_QPT_XRC) != 5) return 6;
  if (layer(IBV_LINK_LAYER_ETHERNET) != 2 || layer(IBV_EXP_LINK_LAYER_SCIF) != 32) return 7;
  if (IBV_REREG_MR_CHANGE_TRANSLATION != 1 || IBV_REREG_MR_KEEP_VALID != 8) return 8;
  if (IBV_FLOW_ATTR_FLAGS_DONT_TRAP != 2 || IBV_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK != 1) return 9;
  if (IBV_QP_INIT_ATTR_XRCD != 2 || IBV_PORT_VENDOR_CLASS != 1 << 24) return 10;

  if (ibv_read_sysfs_file("/proc/sys/kernel", "ostype", line, sizeof(line)) != 5) return 11;
  if (strcmp(line, "Linux") != 0) return 12;
  if (ibv_read_sysfs_file("/proc/sys/kernel", "no such file", line, sizeof(line)) != -1) return 13;
  if (ibv_get_sysfs_path() == NULL) return 14;
  if (ibv_dontfork_range(page, sizeof(page)) != 0) return 15;
  if (ibv_dofork_range(page, sizeof(page)) != 0) return 16;
  if (ntohll(htonll(0x0102030405060708)) != 0x0102030405060708) return 17;
  if (*(const char *)&swapped != 1) return 18;
  mb();
  rmb();
  wmb();
  wc_wmb();
  return 0;
}

int main(void) { return failed(); }
