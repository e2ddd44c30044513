// The firmware of one PCI function: executes the commands of the driver above it, and keeps
// what they made. The same objects of the model stand behind it as behind a preloaded device.
//
// Every word of a command is a guest's: whatever it says, nothing but memory of the guest is
// touched. Device lock held.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "firmware/guest_memory.h"
#include "firmware/queues.h"
#include "firmware/subnet_administrator.h"
#include "model/paging.h"

namespace softhca::firmware {

// What the firmware reports to the function that it runs in.
class Interrupts {
 public:
  virtual void interrupt(u32 vector) = 0;
  // An internal error: no command is served any more until the driver starts again.
  virtual void fail() = 0;

 protected:
  ~Interrupts() = default;
};

enum class Kind : u8 {
  pd,
  uar,
  xrcd,
  transport_domain,
  counter,
  eq,
  cq,
  qp,
  dct,
  srq,
  mkey,
  psv,
  uctx,
  umem,
  rq,
  sq,
  tis,
  tir,
  rqt,
  flow_table,
  flow_group,
  flow_entry,
  memic,
  schedule,
  address_map,
  reserved_qpns,
};

// The user id whose objects all users may name, as those of the driver.
constexpr u16 shared_uid = 0xffff;

// What a command made. It may not be destroyed before what needs it.
struct Resource {
  Resource(Kind k, u32 n, u16 u) : kind(k), number(n), uid(u) {}
  virtual ~Resource();
  Resource(const Resource &) = delete;
  Resource &operator=(const Resource &) = delete;
  void need(Resource *);
  void need_instead(Resource *of_before, Resource *);
  void need_nothing();

  const Kind kind;
  u32 number;
  const u16 uid;  // whose it is
  u32 users = 0;
  std::vector<Resource *> needs;
};

// The entry of an event queue, from its type on.
struct EventEntry {
  u8 type = 0, subtype = 0;
  std::array<u8, 28> data{};
};

class Hca {
 public:
  Hca(Device &, GuestMemory &, Interrupts &);
  ~Hca();

  // Executes `c` and puts the answer into its output box.
  void execute(Command &c);
  // Commands of these slots are done: an event, once there is a queue for it.
  void commands_done(u32 slots);
  // Whether there is one: software polls for the command that makes the queue.
  bool commands_have_events() const;

  // Doorbells.
  void ring_queue(u32 number);
  void arm_cq(u32 cqn, u32 word);  // as it stands in the register
  void consume_events(u32 eqn, u32 consumer, bool arm);

  // Events of the device, for the queue that takes them.
  void raise(const EventEntry &);
  void raise_completion(u32 eqn, u32 cqn);
  // False: no queue takes it.
  bool raise_page_fault(u32 qpn, const PageFault &, PageSide);
  // Forgets the page faults of a queue pair that no longer waits for any.
  void forget_page_faults(u32 qpn);

  // Memory of the device behind those bytes of BAR 0; nullptr: not all of it is.
  static constexpr u64 memic_at = 32u << 20;
  u8 *device_memory(u64 address, u64 bytes);

  // As after power-on.
  void reset();

  // What a guest can make a function keep: objects, and translations of its keys.
  static constexpr size_t most_objects = 1 << 20;
  static constexpr u64 most_translations = 1 << 24;  // of 16 bytes
  u64 translations = 0;

  Device &device;
  GuestMemory &memory;
  SubnetAdministrator administrator;

  template <class T>
  T *find(Kind kind, u32 number) const {
    const auto it = resources_.find({kind, number});
    return it == resources_.end() ? nullptr : static_cast<T *>(it->second.get());
  }
  // One that a command of `uid` may name.
  template <class T>
  T *find(Kind kind, u32 number, u16 uid) const {
    T *r = find<T>(kind, number);
    const bool common = r != nullptr && (r->uid == 0 || r->uid == shared_uid);
    return r != nullptr && (common || uid == 0 || r->uid == uid) ? r : nullptr;
  }

 private:
  struct Eq;
  struct Handler;
  static const Handler *handler_of(u16 opcode);

  Status setup_issi(Command &);
  Status query_issi(Command &);
  Status query_pages(Command &);
  Status manage_pages(Command &);
  Status query_cap(Command &);
  Status set_cap(Command &);
  Status query_adapter(Command &);
  Status nothing(Command &);
  Status special_contexts(Command &);

  Status alloc(Command &);
  Status alloc_counter(Command &);
  Status query_counter(Command &);
  Status destroy(Command &);
  Status destroy(Kind, Command &);

  Status eq_create(Command &);
  Status eq_query(Command &);
  Status cq_create(Command &);
  Status cq_modify(Command &);
  Status cq_query(Command &);
  Status qp_create(Command &);
  Status qp_modify(Command &);
  Status qp_query(Command &);
  Status dct_create(Command &);
  Status dct_drain(Command &);
  Status dct_query(Command &);
  Status dct_arm(Command &);
  Status rmp_create(Command &);
  Status rmp_modify(Command &);
  Status rmp_query(Command &);
  Status xrq_create(Command &);
  Status xrq_query(Command &);
  Status xrq_arm(Command &);
  Status xrc_srq_create(Command &);
  Status xrc_srq_query(Command &);
  Status xrc_srq_arm(Command &);

  Status rq_create(Command &);
  Status rq_modify(Command &);
  Status rq_query(Command &);
  Status sq_create(Command &);
  Status sq_modify(Command &);
  Status sq_query(Command &);
  Status tis_create(Command &);
  Status tis_modify(Command &);
  Status tis_query(Command &);
  Status tir_create(Command &);
  Status tir_modify(Command &);
  Status tir_query(Command &);
  Status rqt_create(Command &);
  Status rqt_modify(Command &);
  Status rqt_query(Command &);
  Status fill_rqt(const Command &, Resource &owner, IndirectionTable &);

  Status flow_table_create(Command &);
  Status flow_table_destroy(Command &);
  Status flow_table_modify(Command &);
  Status flow_root_set(Command &);
  Status flow_group_create(Command &);
  Status flow_group_destroy(Command &);
  Status flow_entry_set(Command &);
  Status flow_entry_delete(Command &);
  Status vxlan_port(Command &);
  Status rate_set(Command &);

  Status mkey_create(Command &);
  Status mkey_query(Command &);
  Status page_fault_resume(Command &);
  Status psv_create(Command &);
  Status uctx_create(Command &);
  Status uctx_destroy(Command &);
  Status umem_create(Command &);
  Status memic_alloc(Command &);
  Status memic_free(Command &);

  Status general_object_create(Command &);
  Status general_object_modify(Command &);
  Status general_object_destroy(Command &);
  Status reserve_qpns(Command &);
  Status schedule_create(Command &);
  Status map_address(Command &);

  Status nic_vport_context(Command &);
  Status nic_vport_modify(Command &);
  Status vport_context(Command &);
  Status vport_modify(Command &);
  Status vport_gid(Command &);
  Status vport_pkey(Command &);
  Status vport_state(Command &);
  Status vport_counter(Command &);
  Status access_register(Command &);
  Status mad_interface(Command &);
  Status roce_address(Command &);
  Status multicast(Command &);
  void count_multicast();
  void enable_port(bool);
  void raise_port(u32 port, EventType);

  // A number that no object of that kind has; 0: none is left.
  u32 fresh(Kind);
  // The same of those that count with the model's, for programs on the host have them too.
  u32 fresh(Kind, u32 &counter) const;
  void post(Eq &, const EventEntry &);
  bool has_taker(u8 type) const;
  void flush(Eq &);

  using Key = std::pair<Kind, u32>;
  std::map<Key, std::unique_ptr<Resource>> resources_;
  std::map<Kind, u32> next_;
  std::vector<u64> pages_;                       // that the driver lent us
  std::map<u32, std::vector<u8>> capabilities_;  // as the driver set them, by page
  struct Rate {
    u32 kbps = 0, burst_bytes = 0;
  };
  std::map<u32, Rate> rates_;  // of send queues, by the index that they name
  static constexpr u32 ordinary_frame = 1522;
  u32 frame_bytes_ = ordinary_frame;  // that the driver wants on an Ethernet port
  std::vector<u8> nic_vport_;         // its context, as far as the driver set it
  std::vector<u8> memic_;             // memory of the device
  u32 port_capabilities_ = 0;         // of an InfiniBand port
  bool port_enabled_ = true;          // by the driver
  struct Waiting {
    u32 qpn;
    PageSide side;
  };
  std::map<u32, Waiting> page_faults_;  // by token
  u32 next_token_ = 0;
  Interrupts &interrupts_;
};

}  // namespace softhca::firmware
