// The test is not linked with libibverbs; these stand in for the few base
// verbs that inlines fall back to.
#include "dispatch.h"

namespace base {
int calls;
const void *argument;
ibv_pd *pd;
ibv_qp qp;
ibv_context *opened;
int port_result;
int closed;

void reset() {
  calls = closed = port_result = 0;
  argument = nullptr;
  pd = nullptr;
  opened = nullptr;
}
}  // namespace base

extern "C" {
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
  ++base::calls;
  base::pd = pd;
  base::argument = attr;
  return &base::qp;
}
int(ibv_query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *attr) {
  ++base::calls;
  base::argument = attr;
  return base::port_result;
}
struct ibv_context *ibv_open_device(struct ibv_device *) {
  ++base::calls;
  return base::opened;
}
int ibv_close_device(struct ibv_context *) {
  ++base::closed;
  errno = EIO;  // must not hide the reason
  return 0;
}
}
