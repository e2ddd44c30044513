// The origin of a command: the context of a program, which names queues' memory by umems, or the
// driver of a kernel, which lists pages. The scope resolves the numbers and addresses in a command;
// what the command does is the same for both.
#pragma once

#include <memory>

#include "firmware/command.h"
#include "model/device.h"
#include "model/schedule.h"

namespace softhca::firmware {

// Where a command says that a ring lies.
struct RingPlace {
  bool umem_valid = false;  // else in the pages that the command lists
  u32 umem = 0;
  u64 umem_offset = 0;
  const u8 *pages = nullptr;  // big-endian addresses
  size_t pages_bytes = 0;     // of the command, from there to its end
  u32 log_page = 12;
  u64 offset = 0;  // of the ring, behind the beginning of the umem's part or the first page
};

// The same of a doorbell record.
struct RecordPlace {
  bool umem_valid = false;
  u32 umem = 0;
  u64 address = 0;  // or the offset in the umem
};

enum class RingUse : bool { read, write };  // by the device

class Scope {
 public:
  explicit Scope(Device &d) : device(d) {}
  Device &device;
  const Capabilities &caps() const { return device.caps; }

  // True for a kernel's driver, which makes queue pairs that programs cannot: for the keys of its
  // memory, of the management ports, of XRC.
  virtual bool of_driver() const = 0;

  // Objects that a new one needs, which may not be destroyed before it. nullptr or false:
  // there is none of that number, or it is another's.
  virtual bool use_pd(u32 number) = 0;
  virtual Cq *use_cq(u32 number) = 0;
  virtual Srq *use_srq(u32 number) = 0;
  virtual bool use_xrcd(u32 number) = 0;
  virtual bool uar_exists(u32 page) const = 0;
  virtual bool eq_exists(u32 number) const = 0;
  // The leaf of that number, nullptr for 0.
  virtual bool find_schedule(u32 number, std::shared_ptr<ScheduleElement> &) const = 0;

  // The counter set of that number; null for one that is not there, as for queues without one.
  virtual std::shared_ptr<CounterSet> find_counters(u32) const { return nullptr; }

  virtual Status use_ring(const RingPlace &, u64 bytes, RingUse, u8 *&at) = 0;
  virtual Status use_record(const RecordPlace &, u32 *&record) = 0;

 protected:
  ~Scope() = default;
};

// Boxes that name a ring have these at the same place: where in them, in bytes.
struct RingFields {
  u32 umem_offset_at, umem_id_at, umem_valid_bit, pages_at;
};
RingPlace ring_place(const Command &, const RingFields &, u32 log_page_size, u32 page_offset);

// Whether a queue pair on `av.port` can have that route: 0 or EINVAL; ENODATA: the source GID
// is not there.
int check_route(const Device &, const AddressVector &av);

}  // namespace softhca::firmware
