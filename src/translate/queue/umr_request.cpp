#include "translate/queue/umr_request.h"

#include <cerrno>

#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/access_convert.h"

namespace ibvexp::queue {

namespace {

constexpr EntryId posting = EntryId::ibv_exp_post_send;

int check_access(std::uint64_t access) {
  const std::uint64_t others = access & ~translate::access_rights;
  if (others == 0) return 0;
  if (const auto known = check_bits(posting, "ext_op.umr.exp_access", others,
                                    bits_of<"ibv_exp_access_flags">(), ~std::uint64_t{0});
      !known)
    return known.error();
  ignored(posting, "ext_op.umr.exp_access", others, "not an access flag of a memory key");
  return 0;
}

int check_size(const Umr &umr) {
  constexpr auto id = FeatureId::IBV_EXP_UMR_MR_LIST_FIXED_SIZE;
  if (effective_now(answer_of<id>).verdict == Verdict::unsupported)
    return unsupported(posting, id, "ext_op.umr.umr_type", umr.umr_type).code;
  const ibv_exp_mem_region *pieces = umr.mem_list.mem_reg_list;
  for (std::uint32_t i = 1; pieces != nullptr && i < umr.num_mrs; ++i) {
    if (pieces[i].length != pieces[0].length)
      return invalid(posting, "ext_op.umr.mem_list.mem_reg_list.length", pieces[i].length,
                     "must be the length of the first piece")
          .code;
  }
  opened_by(Beyond::umr_fixed_size, name_of_feature<id>);
  return 0;
}

int check_type(const Umr &umr) {
  switch (umr.umr_type) {
    case IBV_EXP_UMR_MR_LIST:
    case IBV_EXP_UMR_REPEAT: return 0;
    case IBV_EXP_UMR_MR_LIST_FIXED_SIZE: return check_size(umr);
    default:
      return invalid(posting, "ext_op.umr.umr_type", umr.umr_type,
                     "must be IBV_EXP_UMR_MR_LIST or IBV_EXP_UMR_REPEAT")
          .code;
  }
}

}  // namespace

int judge_umr(ibv_context *context, const ibv_exp_send_wr &wr, std::uint32_t max_pieces,
              const IndirectKey *&key, UmrLayout &layout) {
  ContextState *state = find_state(context);
  if (state == nullptr) return EINVAL;
  // Queue pairs that were not created for it, datagrams among them.
  if (max_pieces == 0)
    return invalid(posting, "exp_opcode", static_cast<std::uint32_t>(wr.exp_opcode),
                   "the queue pair was not created with IBV_EXP_QP_CREATE_UMR")
        .code;
  const Umr &umr = wr.ext_op.umr;
  key = umr.modified_mr != nullptr ? find_key(state, umr.modified_mr) : nullptr;
  if (key == nullptr)
    return invalid(posting, "ext_op.umr.modified_mr", 0, "not made by ibv_exp_create_mr").code;
  layout = {};
  if (wr.exp_opcode == IBV_EXP_WR_UMR_INVALIDATE) return 0;

  if (const int fault = check_type(umr); fault != 0) return fault;
  if (const int fault = check_access(umr.exp_access); fault != 0) return fault;
  // The legacy provider's number for it, sign and all.
  if (umr.umr_type == IBV_EXP_UMR_REPEAT && umr.mem_list.rb.stride_dim != 1) {
    static_cast<void>(invalid(posting, "ext_op.umr.mem_list.rb.stride_dim",
                              umr.mem_list.rb.stride_dim, "must be 1"));
    return -ENOMEM;
  }
  if (measure(umr, key->mr.context, layout) != 0)
    return invalid(posting, "ext_op.umr", umr.num_mrs,
                   "a region, length or stride is null, too large or of another context")
        .code;
  if (layout.units > key->entries)
    return invalid(posting, "ext_op.umr.num_mrs", umr.num_mrs,
                   "more than max_klm_list_size of the key")
        .code;
  return 0;
}

}  // namespace ibvexp::queue
