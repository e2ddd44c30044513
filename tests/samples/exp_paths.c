/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Automatic path migration: a connection gets a second path, is armed by traffic, and moves there
 * when one end says so. The other end follows, and both hear of it. The second path is on the last
 * port of the device, which may be the only one. It has another time-out, and the sample looks at
 * that to see which path is in use.
 */
#include "loopback.h"

static uint64_t outgoing, incoming;
static struct ibv_mr *from, *to;
static uint8_t last_port;

static struct ibv_qp_attr query(struct ibv_qp *of) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;

  check(ibv_query_qp(of, &attr, IBV_QP_PATH_MIG_STATE | IBV_QP_TIMEOUT | IBV_QP_PORT, &init),
        "ibv_query_qp");
  return attr;
}

static void load(struct ibv_qp *of) {
  struct ibv_exp_qp_attr attr = {0};
  struct ibv_port_attr port;

  check(ibv_query_port(context, last_port, &port), "ibv_query_port");
  attr.alt_ah_attr.port_num = attr.alt_port_num = last_port;
  attr.alt_ah_attr.dlid = port.lid;
  attr.alt_timeout = 13;
  attr.path_mig_state = IBV_MIG_REARM;
  check(ibv_exp_modify_qp(of, &attr, IBV_EXP_QP_ALT_PATH | IBV_EXP_QP_PATH_MIG_STATE),
        "the second path");
}

static void transfer_all(void) {
  ++outgoing;
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)&outgoing, sizeof(outgoing), from->lkey,
                  (uintptr_t)&incoming, to->rkey) == IBV_WC_SUCCESS,
         "the write failed");
  expect(incoming == outgoing, "the data is not there");
}

static void hear(struct ibv_qp *of) {
  struct ibv_async_event event;

  check(ibv_get_async_event(context, &event), "ibv_get_async_event");
  expect(event.event_type == IBV_EVENT_PATH_MIG && event.element.qp == of,
         "another event than that of the migration");
  ibv_ack_async_event(&event);
}

int main(int argc, char **argv) {
  struct ibv_exp_device_attr device = {0};
  struct ibv_exp_qp_attr move = {0};

  start(argc, argv);
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  check(ibv_exp_query_device(context, &device), "ibv_exp_query_device");
  if (!(device.exp_device_cap_flags & IBV_EXP_DEVICE_AUTO_PATH_MIG)) {
    printf("the device has no path migration\n");
    return 77;
  }
  last_port = device.phys_port_cnt;
  from = reg(&outgoing, sizeof(outgoing), 0);
  to = reg(&incoming, sizeof(incoming), 0);
  create_pair(0);
  load(qp);
  load(peer);
  expect(query(qp).path_mig_state == IBV_MIG_REARM, "the path is not loaded");
  transfer_all();
  expect(query(qp).path_mig_state == IBV_MIG_ARMED, "the path is not armed");
  printf("armed\n");

  move.path_mig_state = IBV_MIG_MIGRATED;
  check(ibv_exp_modify_qp(qp, &move, IBV_EXP_QP_PATH_MIG_STATE), "the migration");
  hear(qp);
  transfer_all();
  hear(peer);
  expect(query(qp).timeout == 13 && query(peer).timeout == 13, "an end is on its first path");
  expect(query(qp).port_num == last_port && query(peer).port_num == last_port, "on another port");
  printf("migrated to port %d\n", last_port);

  destroy_pair();
  check(ibv_dereg_mr(from), "ibv_dereg_mr");
  check(ibv_dereg_mr(to), "ibv_dereg_mr");
  stop();
  printf("all bytes verified\n");
  return 0;
}
