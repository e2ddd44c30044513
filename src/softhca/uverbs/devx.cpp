// Firmware commands from user space (mlx5/devx.c): which method takes which
// command, and who executes it.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <algorithm>

#include "firmware/hca_caps.h"
#include "uverbs/context.h"
#include "uverbs/devx_queue.h"
#include "uverbs/devx_vport.h"
#include "uverbs/dispatch.h"
#include "uverbs/general_object.h"
#include "uverbs/psv.h"
#include "uverbs/schedule_object.h"
#include "uverbs/tis.h"

namespace softhca::uverbs {

namespace {

constexpr u32 mkc_offset = 16, mkc_bytes = 64, actual_octowords_offset = 96,
              translations_offset = 272;

template <size_t n>
bool contains(const u16 (&list)[n], u16 opcode) {
  return std::find(std::begin(list), std::end(list), opcode) != std::end(list);
}

// The firmware commands that each method accepts, whether they are served or not. Others are
// EINVAL.
bool creates(const Command &c) {
  static constexpr u16 commands[] = {0x200, 0x400, 0x500, 0x600, 0x700, 0x705, 0x710, 0x717,
                                     0x771, 0x782, 0x800, 0x806, 0x80e, 0x816, 0x827, 0x829,
                                     0x900, 0x904, 0x908, 0x90c, 0x912, 0x916, 0x930, 0x933,
                                     0x936, 0x939, 0x93d, 0x940, 0xa00};
  return contains(commands, c.opcode());
}

bool modifies(const Command &c) {
  static constexpr u16 commands[] = {0x403, 0x502, 0x503, 0x504, 0x505, 0x506, 0x507,
                                     0x50a, 0x50e, 0x703, 0x708, 0x714, 0x71a, 0x726,
                                     0x729, 0x72a, 0x785, 0x827, 0x829, 0x901, 0x905,
                                     0x909, 0x90d, 0x913, 0x917, 0x936, 0x93c, 0xa01};
  return contains(commands, c.opcode());
}

}  // namespace

bool is_query(const Command &c) {
  static constexpr u16 commands[] = {0x201, 0x402, 0x50b, 0x702, 0x707, 0x713, 0x719, 0x725, 0x727,
                                     0x773, 0x784, 0x82a, 0x903, 0x907, 0x90b, 0x90f, 0x915, 0x919,
                                     0x932, 0x935, 0x937, 0x93b, 0x93f, 0x942, 0xa02};
  return contains(commands, c.opcode());
}

namespace {

bool is_general(const Command &c) {
  constexpr u16 first = 0xb00, end = 0xf00;
  static constexpr u16 commands[] = {0x100, 0x101, 0x10a, 0x750, 0x752, 0x754, 0x760, 0x762,
                                     0x76f, 0x770, 0x80d, 0x814, 0x822, 0x824, 0x826, 0x842};
  return (c.opcode() >= first && c.opcode() < end) || contains(commands, c.opcode());
}

int other(File &file, Attrs &attrs) {
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, c);
      error != 0)
    return error;
  if (!is_general(c)) return EINVAL;
  switch (static_cast<Opcode>(c.opcode())) {
    case Opcode::nop: return reply(attrs, c, Status::ok);
    case Opcode::query_hca_vport_context: return vport_context_query(file, attrs, c);
    case Opcode::query_hca_cap: {
      const std::vector<u8> page = hca_caps(file.device(), c.op_mod() >> 1);
      if (page.empty()) return reply(attrs, c, Status::bad_param);
      std::copy_n(page.begin(), std::min(page.size(), c.out.size() - header_bytes),
                  c.out.begin() + header_bytes);
      return reply(attrs, c, Status::ok);
    }
    default: return reply(attrs, c, Status::bad_op);
  }
}

int mkey_create(File &file, Attrs &attrs, Command &c) {
  if (!file.caps().umr) return reply(attrs, c, Status::bad_op);
  if (c.in.size() < mkc_offset + mkc_bytes) return EINVAL;
  const u8 *mkc = c.in.data() + mkc_offset;
  const u32 octowords = c.in.size() >= actual_octowords_offset + 4
                            ? load_be32(c.in.data() + actual_octowords_offset)
                            : 0;
  auto object = std::make_unique<DevxMkey>(
      file, create_devx_mkey(process().mkeys, mkc, octowords, file.caps().signature));
  if (!object->key) return reply(attrs, c, Status::bad_param);
  // Those of a free key are for a UMR to write.
  if (octowords != 0 && !object->key->free) {
    if (c.in.size() < translations_offset + u64{octowords} * 16)
      return reply(attrs, c, Status::bad_input_length);
    if (!write_translations(*object->key.get(), 0, c.in.data() + translations_offset, octowords))
      return reply(attrs, c, Status::bad_param);
  }
  const u32 index = object->key->index;
  return created_with(file, attrs, c, index, std::move(object));
}

// A protection domain that no verb knows.
struct DevxPd : DevxObject {
  DevxPd(File &f, u32 n) : DevxObject(f), number(n) { f.pds.add(n, this, this); }
  ~DevxPd() override { file.pds.remove(number, this); }
  const u32 number;
};

int pd_create(File &file, Attrs &attrs, Command &c) {
  const u32 number = process().next_pdn++ & 0xffffff;
  return created_with(file, attrs, c, number, std::make_unique<DevxPd>(file, number));
}

int object_create(File &file, Attrs &attrs) {
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, c);
      error != 0)
    return error;
  if (!creates(c)) return EINVAL;
  switch (static_cast<Opcode>(c.opcode())) {
    case Opcode::create_general_object: return general_object_create(file, attrs, c);
    case Opcode::alloc_transport_domain: return transport_domain_create(file, attrs, c);
    case Opcode::create_tis: return tis_create(file, attrs, c);
    case Opcode::create_psv:
      if (!file.caps().signature) break;
      return psv_create(file, attrs, c);
    case Opcode::create_mkey: return mkey_create(file, attrs, c);
    case Opcode::alloc_pd: return pd_create(file, attrs, c);
    case Opcode::create_cq: return devx_cq_create(file, attrs, c);
    case Opcode::create_qp: return devx_qp_create(file, attrs, c);
    case Opcode::create_rmp: return devx_rmp_create(file, attrs, c);
    case Opcode::create_xrq: return devx_xrq_create(file, attrs, c);
    case Opcode::create_dct: return devx_dct_create(file, attrs, c);
    default: break;
  }
  return reply(attrs, c, Status::bad_op);
}

int object_destroy(File &file, Attrs &attrs) {
  return destroy_settled(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
}

}  // namespace

int execute_query(const Attrs &attrs, Command &c, Object *o) {
  switch (static_cast<Opcode>(c.opcode())) {
    case Opcode::query_tis: return tis_query(attrs, c, o);
    case Opcode::query_qp: return devx_qp_query(attrs, c, o);
    case Opcode::query_cq: return devx_cq_query(attrs, c, o);
    case Opcode::query_rmp: return devx_rmp_query(attrs, c, o);
    case Opcode::query_xrq: return devx_xrq_query(attrs, c, o);
    case Opcode::query_dct: return devx_dct_query(attrs, c, o);
    default: return reply(attrs, c, Status::bad_op);
  }
}

namespace {

int object_query(File &file, Attrs &attrs) {
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, c);
      error != 0)
    return error;
  if (!is_query(c)) return EINVAL;
  return execute_query(attrs, c, attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE));
}

int object_modify(File &file, Attrs &attrs) {
  Command c;
  if (const int error = read_command(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                                     MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, c);
      error != 0)
    return error;
  if (!modifies(c)) return EINVAL;
  auto *o = attrs.object<Object>(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE);
  switch (static_cast<Opcode>(c.opcode())) {
    case Opcode::modify_general_object: return schedule_modify(attrs, c, o);
    case Opcode::modify_sq: return devx_sq_modify(file, attrs, c, o);
    case Opcode::modify_cq: return devx_cq_modify(file, attrs, c, o);
    case Opcode::modify_rmp: return devx_rmp_modify(attrs, c, o);
    case Opcode::arm_xrq: return devx_srq_arm(attrs, c, o);
    case Opcode::arm_dct: return devx_dct_arm(attrs, c, o);
    case Opcode::rst2init_qp:
    case Opcode::init2rtr_qp:
    case Opcode::rtr2rts_qp:
    case Opcode::rts2rts_qp:
    case Opcode::sqerr2rts_qp:
    case Opcode::to_err_qp:
    case Opcode::to_rst_qp:
    case Opcode::init2init_qp: return devx_qp_modify(file, attrs, c, o);
    default: return reply(attrs, c, Status::bad_op);
  }
}

int query_eqn(File &file, Attrs &attrs) {
  const u32 vector = attrs.value<u32>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC);
  if (vector >= completion_vectors()) return EINVAL;
  const u32 eqn = first_completion_eqn + vector;
  return attrs.out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn);
}

// Dynamic UARs have one number. Without them the index is that of a register of
// thread domains, and pages count as they lie in the memory file.
int query_uar(File &file, Attrs &attrs) {
  u32 index = attrs.value<u32>(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX);
  if (file.bfregs.in_use()) {
    if (index >= Bfregs::dynamic) return EINVAL;
    index = thread_uar_page + index / Bfregs::per_page;
  } else if (file.uars.count(index) == 0) {
    return EINVAL;
  }
  return attrs.out(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, index);
}

constexpr AttrSpec other_specs[] = {
    in_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, header_bytes),
};
constexpr AttrSpec create_specs[] = {
    created(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE),
    in_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, header_bytes),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, ObjectClass::devx_object)};
constexpr AttrSpec modify_specs[] = {
    object(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, ObjectClass::any),
    in_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, header_bytes),
};
constexpr AttrSpec query_specs[] = {
    object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, ObjectClass::any),
    in_bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, header_bytes),
    out_bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, header_bytes),
};
constexpr AttrSpec eqn_specs[] = {
    in<u32>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC),
    out<u32>(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN),
};
constexpr AttrSpec uar_specs[] = {
    in<u32>(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX),
    out<u32>(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX),
};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "DEVX/OTHER", other, other_specs},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "DEVX/QUERY_EQN", query_eqn, eqn_specs},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, "DEVX/QUERY_UAR", query_uar, uar_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "DEVX_OBJ/CREATE", object_create,
     create_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "DEVX_OBJ/DESTROY", object_destroy,
     destroy_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "DEVX_OBJ/MODIFY", object_modify,
     modify_specs},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "DEVX_OBJ/QUERY", object_query,
     query_specs},
};

}  // namespace

constinit const Family devx_family = {methods, {}};

}  // namespace softhca::uverbs
