#include "translate/verbs/qp_check.h"

#include "table/feature_rows.h"
#include "table/options.h"
#include "translate/convert/qp_convert.h"
#include "translate/convert/room.h"
#include "translate/verbs/device.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_qp;

// The types that rdma-core has, and the two whose numbers are the legacy API's.
Result<void> check_type(ibv_qp_type type) {
  static_assert(answer_of<FeatureId::qpt_dc_ini>.verdict != Verdict::unsupported &&
                answer_of<FeatureId::qpt_xrc>.verdict != Verdict::unsupported);
  switch (int{type}) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_EXP_QPT_DC_INI:
    case IBV_QPT_XRC: return {};
    default:
      return invalid(creating, "qp_type", static_cast<unsigned>(type),
                     "not a value of enum ibv_qp_type");
  }
}

// What makes a queue pair a receive-side scaling entry. It has no queues of its
// own.
Result<void> check_rx_hash(ContextState &state, const ibv_exp_qp_init_attr &attr) {
  const ibv_exp_rx_hash_conf *hash = attr.rx_hash_conf;
  if (hash == nullptr) return invalid(creating, "rx_hash_conf", 0, "must not be null");
  if (hash->rx_hash_function == IBV_EXP_RX_HASH_FUNC_XOR)
    return unsupported(creating, FeatureId::IBV_EXP_RX_HASH_FUNC_XOR,
                       "rx_hash_conf.rx_hash_function", hash->rx_hash_function);
  if (hash->rx_hash_function != IBV_EXP_RX_HASH_FUNC_TOEPLITZ)
    return invalid(creating, "rx_hash_conf.rx_hash_function", hash->rx_hash_function,
                   "must be IBV_EXP_RX_HASH_FUNC_TOEPLITZ");
  if (hash->rx_hash_key == nullptr)
    return invalid(creating, "rx_hash_conf.rx_hash_key", 0, "must not be null");
  if (const auto fields = check_bits(creating, "rx_hash_conf.rx_hash_fields_mask",
                                     hash->rx_hash_fields_mask & ~IBV_EXP_RX_HASH_INNER,
                                     bits_of<"ibv_exp_rx_hash_fields">());
      !fields)
    return fields;
  if (state.rwq_tables.find(hash->rwq_ind_tbl) == nullptr)
    return invalid(creating, "rx_hash_conf.rwq_ind_tbl", 0, "not a table of this context");
  if (attr.send_cq != nullptr || attr.recv_cq != nullptr || attr.srq != nullptr)
    return invalid(creating, "rx_hash_conf", 0, "an RSS queue pair has neither CQ nor SRQ");
  // rdma-core would look for the CQ of the sends.
  if (attr.cap.max_send_wr != 0)
    return invalid(creating, "cap.max_send_wr", attr.cap.max_send_wr,
                   "must be 0: an RSS queue pair does not send");
  return {};
}

// The flag and the number of pieces come together, as in the legacy provider.
Result<void> check_umr(const ibv_exp_qp_init_attr &attr) {
  const bool flag = (attr.comp_mask & IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
                    (attr.exp_create_flags & IBV_EXP_QP_CREATE_UMR) != 0;
  const bool has_pieces = (attr.comp_mask & IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS) != 0;
  if (flag != has_pieces)
    return invalid(creating, "exp_create_flags", attr.exp_create_flags,
                   "IBV_EXP_QP_CREATE_UMR and IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS need each other");
  if (!flag) return {};
  const std::uint32_t pieces = attr.max_inl_send_klms;
  if (pieces > most_inline_entries)
    return invalid(creating, "max_inl_send_klms", pieces, "must be at most 52");
  const ibv_qp_type type = to_modern_type(attr.qp_type);
  if (type != IBV_QPT_RC && type != IBV_QPT_DRIVER && type != IBV_QPT_XRC_SEND)
    return invalid(creating, "exp_create_flags", attr.exp_create_flags,
                   "IBV_EXP_QP_CREATE_UMR is for RC, XRC and DC");
  return {};
}

}  // namespace

Result<void> check(ContextState &state, const ibv_exp_qp_init_attr &attr, const QpQueues &queues) {
  const ibv_context *context = state.context;
  if (const auto bits = check_bits(creating, "comp_mask", attr.comp_mask,
                                   bits_of<"ibv_exp_qp_init_attr_comp_mask">());
      !bits)
    return bits;
  const auto has = [&](ibv_exp_qp_init_attr_comp_mask bit) { return (attr.comp_mask & bit) != 0; };

  if (has(IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS)) {
    if (const auto flags = check_bits(creating, "exp_create_flags", attr.exp_create_flags,
                                      bits_of<"ibv_exp_qp_create_flags">());
        !flags)
      return flags;
  }
  if (has(IBV_EXP_QP_INIT_ATTR_QPG) && attr.qpg.qpg_type != IBV_EXP_QPG_NONE) {
    for (const FeatureBit &b : bits_of<"ibv_exp_qpg_type">())
      if (b.bit == attr.qpg.qpg_type)
        return unsupported(creating, b.id, "qpg.qpg_type", attr.qpg.qpg_type);
    return invalid(creating, "qpg.qpg_type", attr.qpg.qpg_type,
                   "not a value of enum ibv_exp_qpg_type");
  }
  if (const auto asked = ask_device(state); !asked) return asked;
  if (const auto type = check_type(attr.qp_type); !type) return type;
  if (const auto umr = check_umr(attr); !umr) return umr;

  // XRC targets hang on their domain, all others on a protection domain.
  if (attr.qp_type == IBV_QPT_XRC_RECV) {
    if (!has(IBV_EXP_QP_INIT_ATTR_XRCD) || attr.xrcd == nullptr)
      return invalid(creating, "xrcd", 0, "an XRC target needs an XRC domain");
    if (attr.xrcd->context != context) return invalid(creating, "xrcd", 0, "of another context");
  } else {
    if (!has(IBV_EXP_QP_INIT_ATTR_PD) || attr.pd == nullptr)
      return invalid(creating, "pd", 0, "a queue pair needs a protection domain");
    if (attr.pd->context != context) return invalid(creating, "pd", 0, "of another context");
  }
  if (const auto checked = check_queues(creating, context, attr, queues); !checked) return checked;
  if (has(IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN) && attr.qp_type != IBV_QPT_UD)
    return invalid(creating, "associated_qpn", attr.associated_qpn, "for UD queue pairs only");
  // libmlx5 refuses it without a reason.
  if (has(IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER) && attr.max_tso_header != 0 &&
      attr.qp_type != IBV_QPT_RAW_PACKET)
    return invalid(creating, "max_tso_header", attr.max_tso_header,
                   "for RAW_PACKET queue pairs only");
  if (has(IBV_EXP_QP_INIT_ATTR_RX_HASH)) return check_rx_hash(state, attr);
  return {};
}

}  // namespace ibvexp::translate
