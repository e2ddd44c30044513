// What the queues made by firmware commands have in common, and how commands
// find those that they are about.
#pragma once

#include "uverbs/devx_umem.h"
#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

// Commands of the programming interface.
enum class Opcode : u16 {
  query_hca_cap = 0x100,
  create_mkey = 0x200,
  create_cq = 0x400,
  query_cq = 0x402,
  modify_cq = 0x403,
  create_qp = 0x500,
  rst2init_qp = 0x502,
  init2rtr_qp = 0x503,
  rtr2rts_qp = 0x504,
  rts2rts_qp = 0x505,
  sqerr2rts_qp = 0x506,
  to_err_qp = 0x507,
  to_rst_qp = 0x50a,
  query_qp = 0x50b,
  init2init_qp = 0x50e,
  create_psv = 0x600,
  arm_rq = 0x703,
  create_dct = 0x710,
  query_dct = 0x713,
  arm_dct = 0x714,
  create_xrq = 0x717,
  query_xrq = 0x719,
  arm_xrq = 0x71a,
  query_hca_vport_context = 0x762,
  alloc_pd = 0x800,
  nop = 0x80d,
  alloc_transport_domain = 0x816,
  modify_sq = 0x905,
  create_rmp = 0x90c,
  modify_rmp = 0x90d,
  query_rmp = 0x90f,
  create_tis = 0x912,
  query_tis = 0x915,
  create_general_object = 0xa00,
  modify_general_object = 0xa01,
};

constexpr u32 number_at = 8;  // of an object, in 24 bits
inline u32 number_in(const Command &c) { return load_be32(c.in.data() + number_at) & 0xffffff; }

// A queue whose rings lie in umems. Its events go to those who subscribed.
class DevxQueue : public DevxObject, public EventListener {
 public:
  explicit DevxQueue(File &f) : DevxObject(f) {}
  void raise(QueueEvent) override;
  void subscribed(u8 event) override;

  u32 number = 0;
  Hold pd, rings, record;

 protected:
  virtual void completions_wanted() {}
};

struct DevxCq : DevxQueue {
  explicit DevxCq(File &f) : DevxQueue(f) {}
  ~DevxCq() override;
  void completions_wanted() override;
  Cq cq;
  std::array<u8, 64> context{};  // as it was created
};

struct DevxQp : DevxQueue {
  explicit DevxQp(File &f) : DevxQueue(f) {}
  ~DevxQp() override;
  Qp *qp = nullptr;
  Hold send_cq, recv_cq, srq;
  u8 *thread_uar = nullptr;       // with old libraries
  std::array<u8, 232> context{};  // as it was created; not of a DCT
};

struct DevxSrq : DevxQueue {
  explicit DevxSrq(File &f) : DevxQueue(f) {}
  ~DevxSrq() override;
  Srq srq;
  Hold cq;
  std::array<u8, 64> work_queue{};  // the beginning of its context
};

// Whether it is one of the pages through which the context rings.
bool uar_exists(const File &, u32 page);

// Answers with the number of what was made, and its handle.
int created_with(File &, Attrs &, Command &, u32 number, std::unique_ptr<DevxObject>);

// What command `c` through the handle of `o` is about: the number in it must be that of
// the object (devx_is_valid_obj_id). Else nullptr.
Cq *cq_of(Object *o, const Command &c);
Qp *qp_of(Object *o, const Command &c);  // no DCT
Qp *dct_of(Object *o, const Command &c);
DevxSrq *srq_of(Object *o, const Command &c);

// Commands that DEVX_OBJ/QUERY takes, and what executes them.
bool is_query(const Command &);
int execute_query(const Attrs &, Command &, Object *);

// DEVX_OBJ/CREATE, /MODIFY and /QUERY of each.
int devx_cq_create(File &, Attrs &, Command &);
int devx_cq_modify(File &, const Attrs &, Command &, Object *);
int devx_cq_query(const Attrs &, Command &, Object *);
int devx_qp_create(File &, Attrs &, Command &);
int devx_qp_modify(File &, const Attrs &, Command &, Object *);
int devx_qp_query(const Attrs &, Command &, Object *);
int devx_sq_modify(const File &, const Attrs &, Command &, Object *);
int devx_rmp_create(File &, Attrs &, Command &);
int devx_rmp_modify(const Attrs &, Command &, Object *);
int devx_rmp_query(const Attrs &, Command &, Object *);
int devx_xrq_create(File &, Attrs &, Command &);
int devx_xrq_query(const Attrs &, Command &, Object *);
int devx_srq_arm(const Attrs &, Command &, Object *);
int devx_dct_create(File &, Attrs &, Command &);
int devx_dct_query(const Attrs &, Command &, Object *);
int devx_dct_arm(const Attrs &, Command &, Object *);

}  // namespace softhca::uverbs
