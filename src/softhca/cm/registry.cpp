#include "cm/registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "model/device.h"
#include "wire/directory.h"
#include "wire/slot_file.h"

namespace softhca::cm {

namespace {

// How long a process waits for the table's lock: its holder needs it for a few records, and a
// holder that was stopped must not block the fabric.
constexpr int lock_max_wait_ms = 2000;
constexpr u32 table_version = 1;
// More than all ports of all slots: a longer file is damaged.
constexpr u64 max_records = 1u << 20;
// As net.ipv4.ip_local_port_range has it by default.
constexpr u16 first_ephemeral = 32768, last_ephemeral = 60999;

enum class Kind : u32 { free = 0, station, binding };

struct Record {
  Kind kind = Kind::free;
  u32 version = table_version;
  u64 incarnation = 0;
  u16 slot = 0;
  u16 host = 0;
  u16 port_space = 0;
  u16 port = 0;
  u32 owner = 0;
  u8 reuse = 0;
  u8 family_only = 0;
  u8 listening = 0;
  u8 reserved = 0;
  Station station;
  u8 address[sizeof(SockaddrIb)] = {};

  Party party() const { return {slot, incarnation}; }
  Address where() const { return Address(address, sizeof address); }
};
static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % 8 == 0);

Party g_self;

std::string directory() { return fabric_directory(config().fabric); }

// The table while it is locked. Changes are written one record at a time, so
// that a process killed in the middle leaves whole records behind.
class Table {
 public:
  Table() {
    const std::string path = directory() + "/cm";
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) {
      error_ = errno;
      return;
    }
    error_ = lock();
    if (error_ == 0) error_ = load();
    if (error_ != 0)
      SOFTHCA_LOG(error, "connection manager: %s: %s", path.c_str(), strerror(error_));
  }
  ~Table() {
    if (fd_ < 0) return;
    flock(fd_, LOCK_UN);  // a child forked meanwhile shares the lock: closing is not enough
    close(fd_);
  }
  Table(const Table &) = delete;
  Table &operator=(const Table &) = delete;

  int error() const { return error_; }
  std::vector<Record> &records() { return records_; }

  // Writes a changed record. 0 or errno.
  int put(const Record &r) {
    const auto at = static_cast<u64>(&r - records_.data()) * sizeof r;
    return write_all(fd_, &r, sizeof r, at);
  }
  int add(Record r) {
    const auto it = std::find_if(records_.begin(), records_.end(),
                                 [](const Record &x) { return x.kind == Kind::free; });
    if (it == records_.end()) {
      records_.push_back(r);
      return put(records_.back());
    }
    *it = r;
    return put(*it);
  }
  void drop(Record &r) {
    r = Record{};
    put(r);
  }
  // Whether the owner lives; the record is dropped if not.
  bool living(Record &r) {
    if (r.kind == Kind::free) return false;
    const u64 key = r.incarnation ^ u64 { r.slot } << 48;
    if (known_alive_.count(key) != 0) return true;
    if (!alive(r.party())) {
      drop(r);
      return false;
    }
    known_alive_.insert(key);
    return true;
  }

 private:
  int lock() {
    for (int ms = 0; ms < lock_max_wait_ms; ++ms) {
      if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return 0;
      if (errno != EWOULDBLOCK && errno != EINTR) return errno;
      const timespec one_ms{0, 1000000};
      nanosleep(&one_ms, nullptr);
    }
    return EBUSY;
  }
  int load() {
    struct stat st;
    if (fstat(fd_, &st) != 0) return errno;
    if (static_cast<u64>(st.st_size) > max_records * sizeof(Record)) return EPROTO;
    records_.resize(static_cast<size_t>(st.st_size) / sizeof(Record));
    const size_t bytes = records_.size() * sizeof(Record);
    if (bytes != 0 && pread(fd_, records_.data(), bytes, 0) != static_cast<ssize_t>(bytes))
      return EIO;
    for (const Record &r : records_)
      if (r.version != table_version) return EPROTO;
    return 0;
  }

  int fd_ = -1;
  int error_ = 0;
  std::vector<Record> records_;
  std::unordered_set<u64> known_alive_;
};

bool is_port(const Record &r, u16 port_space, u16 port) {
  return r.kind == Kind::binding && r.host == config().host && r.port_space == port_space &&
         r.port == port;
}

bool is_own(const Record &r, const Binding &b) {
  return r.kind == Kind::binding && r.owner == b.owner && r.party() == self();
}

// cma_check_port: whether `b` may have the port beside those who hold it.
int check_port(Table &table, const Binding &b, bool reuse) {
  for (Record &r : table.records()) {
    if (!is_port(r, b.port_space, b.port) || is_own(r, b) || !table.living(r)) continue;
    if (!r.listening && reuse && r.reuse) continue;
    const Address theirs = r.where();
    if (b.family_only && r.family_only && theirs.family() != b.address.family()) continue;
    if (theirs.any() || b.address.any()) return EADDRNOTAVAIL;
    if (theirs.family() == b.address.family() && theirs.host() == b.address.host())
      return EADDRINUSE;
  }
  return 0;
}

int free_port(Table &table, u16 port_space, u16 &port) {
  std::unordered_set<u16> taken;
  for (Record &r : table.records())
    if (r.kind == Kind::binding && r.host == config().host && r.port_space == port_space)
      taken.insert(r.port);
  constexpr u32 range = last_ephemeral - first_ephemeral + 1;
  static u32 next = static_cast<u32>(device_clock_ns() >> 10);
  for (u32 tries = 0; tries < range; ++tries) {
    const u16 candidate = static_cast<u16>(first_ephemeral + next++ % range);
    if (taken.count(candidate) != 0) continue;
    port = candidate;
    return 0;
  }
  return EADDRNOTAVAIL;
}

}  // namespace

Party self() {
  if (g_self.incarnation != 0 || process().fabric == nullptr) return g_self;
  FileIdentity identity;
  const u16 slot = process().fabric->slot();
  if (live_identity(directory(), slot, identity)) g_self = {slot, identity.inode};
  return g_self;
}

bool alive(const Party &party) {
  if (party.incarnation == 0) return false;
  if (party == g_self) return true;
  FileIdentity identity;
  return live_identity(directory(), party.slot, identity) && identity.inode == party.incarnation;
}

void registry_forked() { g_self = {}; }

int announce() {
  Table table;
  if (table.error() != 0) return table.error();
  // Remove records of dead processes when a process starts.
  for (Record &r : table.records())
    if (r.kind != Kind::free) table.living(r);
  const Party me = self();
  for (const Station &s : local_stations()) {
    Record r;
    r.kind = Kind::station;
    r.slot = me.slot;
    r.incarnation = me.incarnation;
    r.host = s.host;
    r.station = s;
    if (const int error = table.add(r); error != 0) return error;
  }
  return 0;
}

bool find_station(const Ip &ip, const Station &like, Station &out) {
  Table table;
  if (table.error() != 0) return false;
  for (Record &r : table.records()) {
    if (r.kind != Kind::station || !r.station.same_network(like)) continue;
    if ((r.station.ip != ip && r.station.gid != ip) || !table.living(r)) continue;
    out = r.station;
    return true;
  }
  return false;
}

int bind_port(Binding &b) {
  Table table;
  if (table.error() != 0) return table.error();
  const int error =
      b.port == 0 ? free_port(table, b.port_space, b.port) : check_port(table, b, b.reuse);
  if (error != 0) return error;
  const Party me = self();
  Record r;
  r.kind = Kind::binding;
  r.slot = me.slot;
  r.incarnation = me.incarnation;
  r.host = config().host;
  r.port_space = b.port_space;
  r.port = b.port;
  r.owner = b.owner;
  r.reuse = b.reuse;
  r.family_only = b.family_only;
  Address where = b.address;
  where.set_port(b.port);
  std::memcpy(r.address, where.data(), sizeof r.address);
  return table.add(r);
}

int listen_port(const Binding &b) {
  Table table;
  if (table.error() != 0) return table.error();
  if (const int error = check_port(table, b, false); error != 0) return error;
  for (Record &r : table.records()) {
    if (!is_own(r, b)) continue;
    r.listening = 1;
    return table.put(r);
  }
  return EINVAL;
}

void unbind_port(const Binding &b) {
  Table table;
  if (table.error() != 0) return;
  for (Record &r : table.records())
    if (is_own(r, b)) table.drop(r);
}

bool listener_takes(const Address &listening, bool family_only, const Address &to) {
  if ((listening.family() == family_ib) != (to.family() == family_ib)) return false;
  if (listening.family() == to.family()) return listening.any() || listening.host() == to.host();
  return !family_only && listening.any();  // an IPv6 wildcard takes IPv4 as well
}

bool find_listener(u16 host, u64 service, const Address &to, Listener &out) {
  Table table;
  if (table.error() != 0) return false;
  bool found = false;
  for (Record &r : table.records()) {
    if (r.kind != Kind::binding || !r.listening || r.host != host) continue;
    const Address where = r.where();
    if (where.service(r.port_space) != service) continue;
    if (!listener_takes(where, r.family_only, to) || !table.living(r)) continue;
    out = {r.party(), r.owner};
    found = true;
    if (!where.any()) break;  // wildcards need no better match
  }
  return found;
}

}  // namespace softhca::cm
