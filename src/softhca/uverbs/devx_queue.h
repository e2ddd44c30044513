// What the queues made by firmware commands have in common, and how commands
// find those that they are about.
#pragma once

#include "firmware/queues.h"
#include "uverbs/devx_scope.h"

namespace softhca::uverbs {

// A queue whose rings lie in umems. Its events go to those who subscribed.
class DevxQueue : public DevxObject, public EventListener {
 public:
  explicit DevxQueue(File &f) : DevxObject(f) {}
  void raise(QueueEvent) override;
  void subscribed(u8 event) override;

  u32 number = 0;
  Needs needs;

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
  Qp *queue_pair() const override { return qp; }
  Qp *qp = nullptr;
  u8 *thread_uar = nullptr;       // with old libraries
  std::array<u8, 232> context{};  // as it was created; not of a DCT
};

struct DevxSrq : DevxQueue {
  explicit DevxSrq(File &f) : DevxQueue(f) {}
  ~DevxSrq() override;
  Srq srq;
  WorkQueue work_queue{};
};

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
