/* What fuzz_audit damages: a library of that time, with debug information. */
#include <infiniband/verbs_exp.h>

struct ibv_qp *fuzz_create(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_exp_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .pd = pd};

  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.exp_create_flags = IBV_EXP_QP_CREATE_CROSS_CHANNEL;
  return ibv_exp_create_qp(context, &attr);
}

int fuzz_post(struct ibv_qp *qp, struct ibv_sge *list) {
  struct ibv_exp_send_wr wr = {.sg_list = list, .num_sge = 1}, *bad;

  wr.exp_opcode = IBV_EXP_WR_SEND;
  return ibv_exp_post_send(qp, &wr, &bad);
}
