#include "translate/verbs/xrc.h"

#include <fcntl.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/owned.h"
#include "base/real.h"
#include "trace/diagnose.h"
#include "translate/queue/fronts.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

namespace {

ibv_xrcd *modern(ibv_xrc_domain *domain) { return reinterpret_cast<ibv_xrcd *>(domain); }

// A receive queue pair that this process is registered with.
struct Receiver {
  const ibv_xrc_domain *domain;
  ibv_qp *qp;
  bool opened;  // not created by this process
};

// All domains that are open in the process, and their contexts: what was closed is freed memory.
struct Domains {
  Mutex mutex;
  std::unordered_map<const ibv_xrc_domain *, ibv_context *> open;
  std::unordered_multimap<std::uint32_t, Receiver> receivers;  // by number; once for each time
};
Domains &domains() {
  // Never destroyed: domains may be closed from destructors at exit.
  static auto *all = new Domains;
  return *all;
}

Error no_domain(EntryId entry, const ibv_xrc_domain *domain) {
  return invalid(entry, "xrc_domain", 0,
                 domain == nullptr ? "must not be null" : "not opened here, or closed");
}

// A queue pair that could not be opened.
Error not_opened(EntryId entry, std::uint32_t number, Error reason) {
  if (reason.code != EINVAL) return reason;
  return invalid(entry, "xrc_qp_num", number, "no such queue pair in the domain");
}

// The caller of these holds the mutex.

// The context; null: not open.
ibv_context *find(const Domains &all, const ibv_xrc_domain *domain) {
  const auto found = all.open.find(domain);
  return found != all.open.end() ? found->second : nullptr;
}

auto find(Domains &all, const ibv_xrc_domain *domain, std::uint32_t number) {
  const auto end = all.receivers.end();
  for (auto at = all.receivers.find(number); at != end && at->first == number; ++at)
    if (at->second.domain == domain) return at;
  return end;
}

// Those of a domain that is gone.
void forget_receivers(Domains &all, const ibv_xrc_domain *domain) {
  if (all.receivers.empty()) [[likely]]
    return;
  std::erase_if(all.receivers,
                [domain](const auto &known) { return known.second.domain == domain; });
}

// ibv_destroy_qp() of a queue pair from ibv_open_qp() makes libmlx5 free a
// doorbell record that it never had, and destroys its table of them (to v56 at
// least). So libibverbs's half is called, and the allocation freed, which begins with the resource
// in front of the object.
int destroy(Receiver receiver) {
  if (!receiver.opened || !mlx5dv_is_supported(receiver.qp->context->device))
    return positive(real().ibv_destroy_qp(receiver.qp));
  static auto *const in_kernel =
      reinterpret_cast<int (*)(ibv_qp *)>(find_real("ibv_cmd_destroy_qp", nullptr));
  if (in_kernel == nullptr) return ENOTSUP;
  const int error = positive(in_kernel(receiver.qp));
  if (error == 0)
    std::free(reinterpret_cast<std::uint8_t *>(receiver.qp) - sizeof(queue::legacy::Resource));
  return error;
}

// One handle on a receive queue pair, given back at the end of the scope unless
// it was handed on.
class Handle {
 public:
  Handle(const ibv_xrc_domain *domain, ibv_qp *qp, bool opened) : receiver_{domain, qp, opened} {}
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
  ~Handle() {
    if (receiver_.qp == nullptr || destroy(receiver_) == 0) return;
    // Tried twice: there is no later chance.
    if (const int error = destroy(receiver_); error != 0)
      log(LogLevel::error,
          "ibv_create_xrc_rcv_qp: cannot destroy the queue pair that was made: errno %d", error);
  }
  explicit operator bool() const { return receiver_.qp != nullptr; }
  ibv_qp *get() const { return receiver_.qp; }

  // Registers it with this process. Throws bad_alloc.
  Result<void> keep(EntryId entry) {
    Domains &all = domains();
    const MutexGuard guard(all.mutex);
    if (find(all, receiver_.domain) == nullptr) return no_domain(entry, receiver_.domain);
    all.receivers.emplace(receiver_.qp->qp_num, receiver_);
    receiver_.qp = nullptr;
    return {};
  }

 private:
  Receiver receiver_;
};

ibv_qp *open(ibv_xrc_domain *domain, std::uint32_t number) {
  ibv_qp_open_attr attr{};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = number;
  attr.xrcd = modern(domain);
  attr.qp_type = IBV_QPT_XRC_RECV;
  return queue::open_native(domain->context, attr);
}

// A process with the domain may change its queue pairs, registered or not: calls
// work(queue pair), which returns an errno value.
template <class Work>
Result<void> with(EntryId entry, ibv_xrc_domain *domain, std::uint32_t number, Work work) {
  ibv_qp *registered = nullptr;
  {
    Domains &all = domains();
    const MutexGuard guard(all.mutex);
    if (find(all, domain) == nullptr) return no_domain(entry, domain);
    const auto found = find(all, domain, number);
    if (found != all.receivers.end()) registered = found->second.qp;
  }
  KeepErrno keep;
  const Handle borrowed(domain, registered == nullptr ? open(domain, number) : nullptr, true);
  if (registered == nullptr && !borrowed) return not_opened(entry, number, keep.reason());
  return outcome(work(registered != nullptr ? registered : borrowed.get()));
}

}  // namespace

ibv_context *context_of_domain(const ibv_xrc_domain *domain) noexcept {
  Domains &all = domains();
  const MutexGuard guard(all.mutex);
  return find(all, domain);
}

void forget_domains(const ibv_context *context) noexcept {
  Domains &all = domains();
  const MutexGuard guard(all.mutex);
  std::erase_if(all.open, [&](const auto &known) {
    if (known.second != context) return false;
    forget_receivers(all, known.first);
    return true;
  });
}

Result<ibv_xrc_domain *> open_xrc_domain(ibv_context *context, int fd, int oflag) {
  constexpr EntryId opening = EntryId::ibv_open_xrc_domain;
  if (fd == -1 && (oflag & O_CREAT) == 0)
    return invalid(opening, "oflag", static_cast<unsigned>(oflag),
                   "a private domain (fd -1) needs O_CREAT");
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = fd;
  attr.oflags = oflag;
  KeepErrno keep;
  Owned<ibv_xrcd, ibv_close_xrcd> made(ibv_open_xrcd(context, &attr));
  if (!made) return keep.reason();
  auto *domain = reinterpret_cast<ibv_xrc_domain *>(made.get());
  // One of that address may have been closed without our seeing it.
  Domains &all = domains();
  const MutexGuard guard(all.mutex);
  all.open.insert_or_assign(domain, context);
  forget_receivers(all, domain);
  static_cast<void>(made.release());
  return domain;
}

Result<void> close_xrc_domain(ibv_xrc_domain *domain) {
  constexpr EntryId closing = EntryId::ibv_close_xrc_domain;
  Domains &all = domains();
  decltype(Domains::open)::node_type gone;
  bool has_receivers;
  {
    // Out first: of two threads that close it one finds nothing.
    const MutexGuard guard(all.mutex);
    gone = all.open.extract(domain);
    has_receivers = !all.receivers.empty();
  }
  if (!gone) return no_domain(closing, domain);
  KeepErrno keep;
  const auto closed = outcome(ibv_close_xrcd(modern(domain)));
  if (closed && !has_receivers) return closed;
  const MutexGuard guard(all.mutex);
  if (!closed) all.open.insert(std::move(gone));
  else if (find(all, domain) == nullptr) forget_receivers(all, domain);  // not opened again
  return closed;
}

Result<void> create_xrc_rcv_qp(ibv_qp_init_attr *attr, std::uint32_t *number) {
  constexpr EntryId creating = EntryId::ibv_create_xrc_rcv_qp;
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  if (number == nullptr) return invalid(creating, "xrc_rcv_qpn", 0, "must not be null");
  // Behind what the structures of both ages share.
  ibv_xrc_domain *domain = reinterpret_cast<ibvexp_xrc_qp_init_attr *>(attr)->xrc_domain;
  if (domain == nullptr) return invalid(creating, "xrc_domain", 0, "must not be null");
  // The request names no context that could have been attached on the way here.
  ibv_context *const context = context_of_domain(domain);
  if (context == nullptr || find_state(context) == nullptr) return no_domain(creating, domain);

  ibv_qp_init_attr_ex wanted{};
  wanted.qp_context = attr->qp_context;
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  wanted.xrcd = modern(domain);
  KeepErrno keep;
  Handle made(domain, queue::create_native(domain->context, wanted), false);
  if (!made) return keep.reason();
  const std::uint32_t known_by = made.get()->qp_num;
  if (const auto kept = made.keep(creating); !kept) return kept;
  *number = known_by;
  return {};
}

Result<void> modify_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number, ibv_qp_attr *attr,
                               int mask) {
  constexpr EntryId modifying = EntryId::ibv_modify_xrc_rcv_qp;
  if (attr == nullptr) return invalid(modifying, "attributes", 0, "must not be null");
  return with(modifying, domain, number,
              [&](ibv_qp *qp) { return real().ibv_modify_qp(qp, attr, mask); });
}

Result<void> query_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number, ibv_qp_attr *attr,
                              int mask, ibv_qp_init_attr *init) {
  constexpr EntryId querying = EntryId::ibv_query_xrc_rcv_qp;
  if (attr == nullptr) return invalid(querying, "attributes", 0, "must not be null");
  if (init == nullptr) return invalid(querying, "init_attr", 0, "must not be null");
  return with(querying, domain, number, [&](ibv_qp *qp) {
    ibv_qp_attr now{};
    ibv_qp_init_attr made{};
    const int error = real().ibv_query_qp(qp, &now, mask, &made);
    if (error != 0) return error;
    // The structure of the legacy age is the shorter one.
    std::memcpy(attr, &now, offsetof(ibv_qp_attr, rate_limit));
    *init = made;
    return 0;
  });
}

Result<void> reg_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number) {
  constexpr EntryId registering = EntryId::ibv_reg_xrc_rcv_qp;
  if (context_of_domain(domain) == nullptr) return no_domain(registering, domain);
  KeepErrno keep;
  Handle opened(domain, open(domain, number), true);
  if (!opened) return not_opened(registering, number, keep.reason());
  return opened.keep(registering);
}

Result<void> unreg_xrc_rcv_qp(ibv_xrc_domain *domain, std::uint32_t number) {
  constexpr EntryId leaving = EntryId::ibv_unreg_xrc_rcv_qp;
  decltype(Domains::receivers)::node_type gone;
  {
    Domains &all = domains();
    const MutexGuard guard(all.mutex);
    if (const auto found = find(all, domain, number); found != all.receivers.end())
      gone = all.receivers.extract(found);
    else if (find(all, domain) == nullptr) return no_domain(leaving, domain);
  }
  if (!gone) return invalid(leaving, "xrc_qp_num", number, "not registered by this process");
  KeepErrno keep;
  const int error = destroy(gone.mapped());
  if (error == 0) return {};
  Domains &all = domains();
  const MutexGuard guard(all.mutex);
  if (find(all, domain) != nullptr) all.receivers.insert(std::move(gone));
  return Error{error};
}

void show_xrc_receiver(ibv_async_event &event) noexcept {
  const ibv_qp *const qp = event.element.qp;
  const auto number = [&]() -> std::optional<std::uint32_t> {
    Domains &all = domains();
    const MutexGuard guard(all.mutex);
    for (const auto &[known_by, receiver] : all.receivers)
      if (receiver.qp == qp) return known_by;
    return {};
  }();
  if (!number) return;
  real().ibv_ack_async_event(&event);
  event.element.port_num = static_cast<int>(*number);  // element.xrc_qp_num
  event.event_type = static_cast<ibv_event_type>(static_cast<std::uint32_t>(event.event_type) |
                                                 IBV_XRC_QP_EVENT_FLAG);
}

}  // namespace ibvexp::translate
