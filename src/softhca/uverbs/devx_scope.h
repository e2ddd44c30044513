// What the numbers in a program's firmware commands stand for: the objects of its context.
#pragma once

#include <deque>

#include "firmware/scope.h"
#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

// What an object of a firmware command needs as long as it lives.
struct Needs {
  std::deque<Hold> objects;
  Hold rings;
};

class DevxScope : public Scope {
 public:
  DevxScope(const File &f, Needs &n) : Scope(f.device()), file_(f), needs_(n) {}
  bool of_driver() const override { return false; }
  bool use_pd(u32 number) override;
  Cq *use_cq(u32 number) override;
  Srq *use_srq(u32 number) override;
  bool use_xrcd(u32 number) override;
  bool uar_exists(u32 page) const override;
  bool eq_exists(u32 number) const override;
  bool find_schedule(u32 number, std::shared_ptr<ScheduleElement> &) const override;
  Status use_ring(const RingPlace &, u64 bytes, RingUse, u8 *&at) override;
  Status use_record(const RecordPlace &, u32 *&record) override;

 private:
  template <class T>
  T *use(const ByNumber<T> &, u32 number);
  const File &file_;
  Needs &needs_;
};

}  // namespace softhca::uverbs
