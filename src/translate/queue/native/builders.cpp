#include "translate/queue/native/builders.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/real.h"
#include "trace/diagnose.h"
#include "translate/convert/legacy_grants.h"
#include "translate/convert/wr_convert.h"
#include "translate/queue/native/hooks.h"
#include "translate/queue/native/post.h"
#include "translate/queue/send_refusal.h"
#include "translate/queue/umr_request.h"

namespace ibvexp::native {

namespace {

using translate::most_pieces;

constexpr EntryId posting = EntryId::ibv_exp_post_send;

// What is between wr_start and wr_complete: holds the lock of the send queue.
class Batch {
 public:
  explicit Batch(Builders &builders) : builders_(builders) {}
  Batch(const Batch &) = delete;
  Batch &operator=(const Batch &) = delete;
  ~Batch() { close(); }

  // Room for one more request. Without it builders go on writing, into the last entry of the
  // batch before.
  bool has_room() {
    if (!open_) {
      ibv_wr_start(builders_.ex);
      open_ = true;
      first_ = builders_.log.position();
    }
    return !builders_.log.full();
  }

  std::uint32_t size() const { return count_; }

  void record(const ibv_exp_send_wr &wr) {
    builders_.log.push(wr.wr_id,
                       builders_.signal_all || (wr.exp_send_flags & IBV_EXP_SEND_SIGNALED) != 0);
    ++count_;
  }

  // 0, or an errno value: then nothing of the batch was posted. What was judged
  // before fails for the state of the queue pair only.
  int close() {
    if (!open_) return 0;
    open_ = false;
    const std::uint32_t count = std::exchange(count_, 0);
    if (count == 0) {
      ibv_wr_abort(builders_.ex);
      return 0;
    }
    const int error = ibv_wr_complete(builders_.ex);
    if (error != 0) [[unlikely]]
      builders_.log.cancel_since(first_, count);
    return error < 0 ? -error : error;
  }

 private:
  Builders &builders_;
  bool open_ = false;
  std::uint32_t first_ = 0, count_ = 0;
};

// Basic requests. A builder that finds a fault takes the whole batch back, so they are judged
// before.

// 0, or what the legacy provider answered.
int judge(const Builders &builders, const ibv_exp_send_wr &wr, ibv_wr_opcode opcode) {
  if (translate::has_data(opcode)) {
    if (const int fault = translate::judge_pieces(wr); fault != 0) [[unlikely]]
      return fault;
    if (static_cast<std::uint32_t>(wr.num_sge) > builders.max_send_sge) [[unlikely]]
      return ENOMEM;
    if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0 &&
        translate::inline_bytes(wr) > builders.max_inline_data) [[unlikely]]
      return ENOMEM;
    if (builders.initiator && wr.dc.ah == nullptr) [[unlikely]]
      return EINVAL;
  }
  if (opcode == IBV_WR_BIND_MW) [[unlikely]] {
    if (builders.no_windows) return EINVAL;
    if (wr.bind_mw.mw == nullptr) return EINVAL;
    if (wr.bind_mw.mw->type != IBV_MW_TYPE_2)
      return unsupported(posting, "bind_mw.mw: type", wr.bind_mw.mw->type,
                         "libmlx5's builders bind windows of type 2 only")
          .code;
    if (wr.bind_mw.bind_info.mr == nullptr && wr.bind_mw.bind_info.length != 0) return EINVAL;
    if (wr.bind_mw.bind_info.length > std::uint64_t{1} << 31) return EOPNOTSUPP;
  }
  return 0;
}

void set_data(ibv_qp_ex *ex, const ibv_exp_send_wr &wr, bool atomic) {
  if (wr.num_sge != 0 && (wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0 && !atomic) {
    ibv_data_buf pieces[most_pieces];
    for (int i = 0; i < wr.num_sge; ++i)
      pieces[i] = {reinterpret_cast<void *>(wr.sg_list[i].addr), wr.sg_list[i].length};
    ibv_wr_set_inline_data_list(ex, static_cast<std::size_t>(wr.num_sge), pieces);
  } else if (atomic && wr.num_sge == 1) {
    // The answer has 8 bytes, whatever the piece says.
    const ibv_sge &piece = wr.sg_list[0];
    ibv_wr_set_sge(ex, piece.lkey, piece.addr, piece.length != 0 ? 8 : 0);
  } else {
    ibv_wr_set_sge_list(ex, static_cast<std::size_t>(wr.num_sge), wr.sg_list);
  }
}

// After judge(), and with a free entry in the send queue.
void build(Builders &builders, const ibv_exp_send_wr &wr, ibv_wr_opcode opcode) {
  ibv_qp_ex *ex = builders.ex;
  ex->wr_id = wr.wr_id;
  ex->wr_flags = translate::to_modern_send_flags(wr.exp_send_flags);

  bool atomic = false;
  switch (opcode) {
    case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr); break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, wr.ex.imm_data);
      break;
    case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr); break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      ibv_wr_atomic_cmp_swp(ex, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr,
                            wr.wr.atomic.compare_add, wr.wr.atomic.swap);
      atomic = true;
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(ex, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr,
                              wr.wr.atomic.compare_add);
      atomic = true;
      break;
    case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, wr.ex.imm_data); break;
    case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(ex, wr.ex.invalidate_rkey); break;
    case IBV_WR_LOCAL_INV:
      // Complete as they are: neither destination nor data.
      ibv_wr_local_inv(ex, wr.ex.invalidate_rkey);
      return;
    case IBV_WR_BIND_MW: {
      ibv_mw_bind_info info{};
      info.mr = wr.bind_mw.bind_info.mr;
      info.addr = wr.bind_mw.bind_info.addr;
      info.length = wr.bind_mw.bind_info.length;
      info.mw_access_flags =
          translate::to_modern_window_access(wr.bind_mw.bind_info.exp_mw_access_flags);
      ibv_wr_bind_mw(ex, wr.bind_mw.mw, wr.bind_mw.rkey, &info);
      return;
    }
    default: ibv_wr_send(ex); break;
  }

  if (builders.initiator)
    mlx5dv_wr_set_dc_addr(builders.dv, wr.dc.ah, wr.dc.dct_number, wr.dc.dct_access_key);
  set_data(ex, wr, atomic);
}

int add_basic(Builders &builders, const ibv_exp_send_wr &wr, ibv_wr_opcode opcode, Batch &batch) {
  if (const int fault = judge(builders, wr, opcode); fault != 0) [[unlikely]]
    return fault;
  if (!batch.has_room()) [[unlikely]]
    return ENOMEM;
  build(builders, wr, opcode);
  batch.record(wr);
  return 0;
}

// Filling indirect keys.

int refuse_key_change(const char *field, std::uint64_t value, const char *why) {
  return unsupported(posting, field, value, why).code;
}

// What libmlx5 has no builder for, of a request that is good otherwise.
int check_key_change(const ibv_exp_send_wr &wr) {
  const auto &umr = wr.ext_op.umr;
  if (wr.exp_opcode == IBV_EXP_WR_UMR_INVALIDATE)
    return refuse_key_change("exp_opcode", static_cast<std::uint32_t>(wr.exp_opcode),
                             "libmlx5 has no builder that invalidates an indirect key");
  if (umr.base_addr != 0)
    return refuse_key_change("ext_op.umr.base_addr", umr.base_addr,
                             "keys that libmlx5's builders fill begin at 0");
  if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) == 0)
    return refuse_key_change("exp_send_flags", wr.exp_send_flags,
                             "libmlx5's builders take the pieces of a key inline only");
  return 0;
}

constexpr std::uint32_t rights_of(std::uint64_t exp_access) {
  return static_cast<std::uint32_t>(exp_access & translate::access_rights &
                                    ~std::uint64_t{IBV_EXP_ACCESS_MW_BIND});
}

// 0, or why not.
int build_list(Builders &builders, const queue::Umr &umr, mlx5dv_mkey *key, Batch &batch) {
  ibv_sge pieces[most_pieces];
  std::uint16_t count = 0;
  for (std::uint32_t i = 0; i < umr.num_mrs; ++i) {
    const ibv_exp_mem_region &piece = umr.mem_list.mem_reg_list[i];
    if (piece.length == 0) continue;
    if (piece.length == queue::largest_piece)
      return refuse_key_change("ext_op.umr.mem_list: length", piece.length,
                               "libmlx5's builders take no piece of 2 GiB");
    pieces[count++] = {piece.base_addr, static_cast<std::uint32_t>(piece.length), piece.mr->lkey};
  }
  if (!batch.has_room()) return ENOMEM;
  mlx5dv_wr_mr_list(builders.dv, key, rights_of(umr.exp_access), count, pieces);
  return 0;
}

int build_pattern(Builders &builders, const queue::Umr &umr, mlx5dv_mkey *key, Batch &batch) {
  mlx5dv_mr_interleaved blocks[most_pieces];
  for (std::uint32_t i = 0; i < umr.num_mrs; ++i) {
    const ibv_exp_mem_repeat_block &block = umr.mem_list.rb.mem_repeat_block_list[i];
    const auto bytes = static_cast<std::uint32_t>(block.byte_count[0]);
    if (block.stride[0] < bytes)
      return refuse_key_change("ext_op.umr.mem_list.rb: stride", block.stride[0],
                               "libmlx5's builders take no stride shorter than its block");
    blocks[i] = {block.base_addr, bytes, static_cast<std::uint32_t>(block.stride[0]) - bytes,
                 block.mr->lkey};
  }
  if (!batch.has_room()) return ENOMEM;
  mlx5dv_wr_mr_interleaved(builders.dv, key, rights_of(umr.exp_access),
                           static_cast<std::uint32_t>(umr.mem_list.rb.repeat_count[0]),
                           static_cast<std::uint16_t>(umr.num_mrs), blocks);
  return 0;
}

int add_key_change(Builders &builders, const ibv_exp_send_wr &wr, Batch &batch) {
  const IndirectKey *key = nullptr;
  queue::UmrLayout layout;
  if (const int fault =
          queue::judge_umr(builders.ex->qp_base.context, wr, builders.max_umr_pieces, key, layout);
      fault != 0)
    return fault;
  if (const int fault = check_key_change(wr); fault != 0) return fault;
  const auto &umr = wr.ext_op.umr;
  if (umr.num_mrs > builders.max_umr_pieces)
    return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs, "more than max_inl_send_klms").code;
  builders.ex->wr_id = wr.wr_id;
  builders.ex->wr_flags = translate::to_modern_send_flags(wr.exp_send_flags);
  const int fault = umr.umr_type == IBV_EXP_UMR_REPEAT
                        ? build_pattern(builders, umr, key->mkey, batch)
                        : build_list(builders, umr, key->mkey, batch);
  if (fault == 0) batch.record(wr);
  return fault;
}

int add_other(Builders &builders, const ibv_exp_send_wr &wr, Batch &batch) {
  if (wr.exp_opcode == IBV_EXP_WR_UMR_FILL || wr.exp_opcode == IBV_EXP_WR_UMR_INVALIDATE)
    return add_key_change(builders, wr, batch);
  return refuse_other(wr.exp_opcode);
}

// The request in the legacy layout.
const ibv_exp_send_wr &as_exp(const ibv_exp_send_wr &wr, ibv_exp_send_wr &) { return wr; }

const ibv_exp_send_wr &as_exp(const ibv_send_wr &wr, ibv_exp_send_wr &scratch) {
  // The two coincide up to the flags' place and the window.
  std::memcpy(static_cast<void *>(&scratch), &wr, offsetof(ibv_exp_send_wr, task));
  scratch.exp_send_flags = translate::to_modern_send_flags(wr.send_flags);
  if (wr.opcode == IBV_WR_BIND_MW) {
    scratch.bind_mw.mw = wr.bind_mw.mw;
    scratch.bind_mw.rkey = wr.bind_mw.rkey;
    scratch.bind_mw.bind_info.mr = wr.bind_mw.bind_info.mr;
    scratch.bind_mw.bind_info.addr = wr.bind_mw.bind_info.addr;
    scratch.bind_mw.bind_info.length = wr.bind_mw.bind_info.length;
    scratch.bind_mw.bind_info.exp_mw_access_flags =
        translate::to_exp_window_access(wr.bind_mw.bind_info.mw_access_flags);
  }
  return scratch;
}

// One request. 0, or why it is refused.
template <class Wr>
int add(Builders &builders, const Wr &wr, std::uint64_t refused, Batch &batch) {
  ibv_exp_send_wr scratch;
  const ibv_exp_send_wr &exp = as_exp(wr, scratch);
  if ((exp.exp_send_flags & refused) != 0) [[unlikely]]
    return translate::refuse_send_flags(exp.exp_send_flags, refused);
  const auto opcode = translate::to_modern_opcode(exp.exp_opcode, builders.ex->qp_base.qp_type);
  if (opcode.handling == translate::Handling::illegal) [[unlikely]]
    return EINVAL;
  if (opcode.handling != translate::Handling::other)
    return add_basic(builders, exp, opcode.modern, batch);
  return std::is_same_v<Wr, ibv_send_wr> ? EINVAL : add_other(builders, exp, batch);
}

template <class Wr>
int add_chain(Builders &builders, Wr *wr, std::uint64_t refused, Wr *&bad) {
  // libmlx5 looks at the state itself since release 40.
  if (wr != nullptr && builders.ex->qp_base.state < IBV_QPS_RTS) [[unlikely]] {
    bad = wr;
    return EINVAL;
  }
  Batch batch(builders);
  Wr *const first = wr;
  int fault = 0;
  while (wr != nullptr && (fault = add(builders, *wr, refused, batch)) == 0) wr = wr->next;
  const int error = batch.close();
  if (error != 0 || fault != 0) [[unlikely]]
    bad = error != 0 ? first : wr;
  return error != 0 ? error : fault;
}

}  // namespace

void open(ContextState &state, QpState &known, ibv_qp *qp, const translate::ModernQpInit &modern) {
  Builders &builders = known.builders;
  builders.ex = nullptr;
  ibv_qp_ex *ex = real().ibv_qp_to_qp_ex(qp);
  if (ex == nullptr) return;
  builders.log.open(modern.attr.cap.max_send_wr);
  builders.dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
  builders.start = ex->wr_start;
  builders.initiator = qp->qp_type == IBV_QPT_DRIVER;
  builders.signal_all = modern.attr.sq_sig_all != 0;
  builders.no_windows = known.no_windows;
  builders.max_send_sge = modern.attr.cap.max_send_sge;
  builders.max_inline_data = known.max_inline_data;
  builders.max_umr_pieces = modern.max_umr_pieces;
  builders.ex = ex;
  install_hooks(state);
}

int build_chain(Builders &builders, ibv_exp_send_wr *wr, std::uint64_t refused,
                ibv_exp_send_wr *&bad) {
  return add_chain(builders, wr, refused, bad);
}

int build_chain(Builders &builders, ibv_send_wr *wr, ibv_send_wr *&bad) {
  if (builders.initiator) {
    bad = wr;
    return EINVAL;
  }
  return add_chain(builders, wr, 0, bad);
}

}  // namespace ibvexp::native
