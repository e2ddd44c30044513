#include "translate/verbs/cross_channel.h"

#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <bit>
#include <cerrno>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "base/real.h"
#include "trace/diagnose.h"
#include "translate/queue/fronts.h"
#include "translate/queue/post.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_qp;
constexpr EntryId posting = EntryId::ibv_exp_post_task;

// ib_qp_create_flags of the kernel, which only its write() command takes.
constexpr std::uint32_t to_kernel_flags(std::uint32_t channel) {
  constexpr std::uint32_t cross_channel = 1 << 2, managed_send = 1 << 3, managed_receive = 1 << 4;
  return ((channel & IBV_EXP_QP_CREATE_CROSS_CHANNEL) != 0 ? cross_channel : 0) |
         ((channel & IBV_EXP_QP_CREATE_MANAGED_SEND) != 0 ? managed_send : 0) |
         ((channel & IBV_EXP_QP_CREATE_MANAGED_RECV) != 0 ? managed_receive : 0);
}

// A command of the kernel's write() interface, carried by an ioctl.
class Command {
 public:
  explicit Command(std::uint64_t number) {
    header()->object_id = UVERBS_OBJECT_DEVICE;
    header()->method_id = UVERBS_METHOD_INVOKE_WRITE;
    header()->driver_id = RDMA_DRIVER_MLX5;
    add(UVERBS_ATTR_WRITE_CMD, sizeof(number), number);
  }
  // Requests have more bytes than an attribute holds by itself.
  template <class Box>
  void carry(std::uint16_t id, Box &box) {
    add(id, sizeof(box), reinterpret_cast<std::uintptr_t>(&box));
  }
  Result<void> run(const ibv_context *context) {
    header()->length = static_cast<std::uint16_t>(sizeof(ib_uverbs_ioctl_hdr) +
                                                  header()->num_attrs * sizeof(ib_uverbs_attr));
    const KeepErrno keep;
    if (ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, message_) != 0) return keep.reason();
    return {};
  }

 private:
  ib_uverbs_ioctl_hdr *header() { return reinterpret_cast<ib_uverbs_ioctl_hdr *>(message_); }
  void add(std::uint16_t id, std::size_t bytes, std::uint64_t data) {
    ib_uverbs_attr &attr = header()->attrs[header()->num_attrs++];
    attr.attr_id = id;
    attr.len = static_cast<std::uint16_t>(bytes);
    attr.flags = UVERBS_ATTR_F_MANDATORY;
    attr.data = data;
  }

  alignas(8) std::uint8_t message_[sizeof(ib_uverbs_ioctl_hdr) + 5 * sizeof(ib_uverbs_attr)] = {};
};

// Handle and number of the kernel's second queue pair.
struct Second {
  std::uint32_t handle = 0, number = 0;
};

Result<Second> create_second(ibv_qp *made, const ModernQpInit &modern,
                             const mlx5dv_devx_uar &page) {
  const KeepErrno keep;
  const mlx5dv_qp facts = facts_of(made);
  if (facts.dbrec == nullptr) return keep.reason(EINVAL);

  ib_uverbs_ex_create_qp in{};
  in.user_handle = reinterpret_cast<std::uintptr_t>(made);
  in.pd_handle = made->pd->handle;
  in.send_cq_handle = made->send_cq->handle;
  in.recv_cq_handle = made->recv_cq->handle;
  in.srq_handle = made->srq != nullptr ? made->srq->handle : 0;
  in.is_srq = made->srq != nullptr;
  const ibv_qp_cap &cap = modern.attr.cap;
  in.max_send_wr = cap.max_send_wr;
  in.max_send_sge = cap.max_send_sge;
  in.max_inline_data = cap.max_inline_data;
  in.max_recv_wr = facts.rq.wqe_cnt != 0 ? cap.max_recv_wr : 0;
  in.max_recv_sge = facts.rq.wqe_cnt != 0 ? cap.max_recv_sge : 0;
  in.sq_sig_all = modern.attr.sq_sig_all != 0;
  in.qp_type = static_cast<std::uint8_t>(made->qp_type);
  in.create_flags = to_kernel_flags(modern.channel);

  mlx5_ib_create_qp driver{};
  // The receive queue stands in front.
  void *const rings = facts.rq.wqe_cnt != 0 ? facts.rq.buf : facts.sq.buf;
  driver.buf_addr = reinterpret_cast<std::uintptr_t>(rings);
  driver.db_addr = reinterpret_cast<std::uintptr_t>(facts.dbrec);
  driver.sq_wqe_count = facts.sq.wqe_cnt;
  driver.rq_wqe_count = facts.rq.wqe_cnt;
  if (facts.rq.wqe_cnt != 0)
    driver.rq_wqe_shift = static_cast<std::uint32_t>(std::countr_zero(facts.rq.stride));
  driver.uidx = queue::resource_before(made).number;
  driver.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
  if ((modern.dv.create_flags & MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE) != 0)
    driver.flags |= MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE;
  driver.bfreg_index = page.page_id;

  ib_uverbs_ex_create_qp_resp out{};
  mlx5_ib_create_qp_resp driver_out{};
  Command command(std::uint32_t{IB_USER_VERBS_CMD_FLAG_EXTENDED} | IB_USER_VERBS_EX_CMD_CREATE_QP);
  command.carry(UVERBS_ATTR_CORE_IN, in);
  command.carry(UVERBS_ATTR_CORE_OUT, out);
  command.carry(UVERBS_ATTR_UHW_IN, driver);
  command.carry(UVERBS_ATTR_UHW_OUT, driver_out);
  if (const auto done = command.run(made->context); !done) return done.failure();
  return Second{out.base.qp_handle, out.base.qpn};
}

Result<void> destroy_in_kernel(const ibv_context *context, std::uint32_t handle) {
  ib_uverbs_destroy_qp in{};
  ib_uverbs_destroy_qp_resp out{};
  in.qp_handle = handle;
  Command command(IB_USER_VERBS_CMD_DESTROY_QP);
  command.carry(UVERBS_ATTR_CORE_IN, in);
  command.carry(UVERBS_ATTR_CORE_OUT, out);
  return command.run(context);
}

bool may_be_managed(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

}  // namespace

// Linux makes no page for whole entries where writes are not combined, and masters need none.
Result<const mlx5dv_devx_uar *> channel_page(ContextState &state) {
  {
    const MutexGuard guard(state.mutex);
    if (state.channel_page != nullptr) return state.channel_page;
  }
  const KeepErrno keep;
  mlx5dv_devx_uar *fresh = mlx5dv_devx_alloc_uar(state.context, MLX5DV_UAR_ALLOC_TYPE_NC);
  if (fresh == nullptr) fresh = mlx5dv_devx_alloc_uar(state.context, MLX5DV_UAR_ALLOC_TYPE_BF);
  if (fresh == nullptr) return keep.reason();
  mlx5dv_devx_uar *spare = nullptr;
  {
    const MutexGuard guard(state.mutex);
    if (state.channel_page == nullptr) state.channel_page = fresh;
    else spare = fresh;
  }
  if (spare != nullptr) mlx5dv_devx_free_uar(spare);
  return state.channel_page;
}

Result<void *> join_channel(ContextState &state, ibv_qp *made, const ModernQpInit &modern) {
  const std::uint32_t asked = modern.channel;
  if (!may_be_managed(made->qp_type))
    return unsupported(creating, "exp_create_flags", asked, "for RC, UC and UD queue pairs only");
  const auto page = channel_page(state);
  const auto second = page ? create_second(made, modern, *page.value()) : page.failure();
  if (!second) {
    const int error = second.failure().code;
    if (error != EINVAL && error != EOPNOTSUPP) return second.failure();
    return unsupported(creating, "exp_create_flags", asked,
                       "the device or the kernel does not support cross-channel queue pairs");
  }
  if (const auto gone = destroy_in_kernel(state.context, made->handle); !gone) {
    (void)destroy_in_kernel(state.context, second.value().handle);
    return gone.failure();
  }
  made->handle = second.value().handle;
  made->qp_num = second.value().number;
  return page.value()->reg_addr;
}

// A second queue pair beside the first, for a try: both are unused.
int try_master(ContextState &state, ibv_pd *pd, ibv_cq *cq) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  const OwnedReal<ibv_qp> qp(real().ibv_create_qp(pd, &attr));
  if (qp == nullptr) return errno != 0 ? errno : EINVAL;
  ModernQpInit modern = to_modern(attr, pd);
  modern.channel = IBV_EXP_QP_CREATE_CROSS_CHANNEL;
  const auto page = channel_page(state);
  if (!page) return page.failure().code;
  const auto second = create_second(qp.get(), modern, *page.value());
  if (!second) return second.failure().code;
  (void)destroy_in_kernel(state.context, second.value().handle);
  return 0;
}

void free_channel_page(ContextState &state) noexcept {
  if (state.channel_page != nullptr) mlx5dv_devx_free_uar(state.channel_page);
}

Result<void> post_task(ContextState &state, ibv_context *, ibv_exp_task *task,
                       ibv_exp_task **bad_task) {
  const auto fails = [&](Error error) {
    if (bad_task != nullptr) *bad_task = task;
    return error;
  };
  for (; task != nullptr; task = task->next) {
    if (task->comp_mask != 0)
      return fails(invalid(posting, "comp_mask", task->comp_mask, "unknown bits"));
    ibv_qp *const qp = task->item.qp;
    if (qp == nullptr || qp->context != state.context)
      return fails(invalid(posting, "item.qp", 0, "not a queue pair of this context"));
    int error = 0;
    switch (task->task_type) {
      case IBV_EXP_TASK_SEND: {
        ibv_exp_send_wr *bad = nullptr;
        error = post_send(qp, task->item.send_wr, &bad).error();
        break;
      }
      case IBV_EXP_TASK_RECV: {
        ibv_recv_wr *bad = nullptr;
        error = positive(qp->context->ops.post_recv(qp, task->item.recv_wr, &bad));
        break;
      }
      default:
        return fails(invalid(posting, "task_type", static_cast<unsigned>(task->task_type),
                             "must be IBV_EXP_TASK_SEND or IBV_EXP_TASK_RECV"));
    }
    if (error != 0) return fails(Error{error});
  }
  return {};
}

}  // namespace ibvexp::translate
