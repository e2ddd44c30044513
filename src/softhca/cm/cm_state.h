// The connection manager's objects: event channels (open files), ids and the
// multicast groups that ids join. The rules are those of the kernel's ucma.c,
// cma.c and cm.c, which keep the same things in three layers.
//
// Everything here is protected by the device lock.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "cm/cm_address.h"
#include "cm/message.h"
#include "cm/registry.h"
#include "cm/station.h"
#include "wire/packet.h"

namespace softhca::cm {

struct Id;

// Numbers of enum rdma_cm_event_type, which no uapi header has.
enum class EventType : u32 {
  addr_resolved,
  addr_error,
  route_resolved,
  route_error,
  connect_request,
  connect_response,
  connect_error,
  unreachable,
  rejected,
  established,
  disconnected,
  device_removal,
  multicast_join,
  multicast_error,
  addr_change,
  timewait_exit,
  addrinfo_resolved,
  addrinfo_error,
  user,      // written by the application
  internal,  // written by librdmacm
};

// Values of enum ib_qp_type.
constexpr u8 qp_rc = 2, qp_uc = 3, qp_ud = 4, qp_xrc_ini = 9, qp_xrc_tgt = 10;

struct Multicast {
  u32 number = 0;
  u64 uid = 0;
  Id *id = nullptr;
  u32 events_reported = 0;
};

struct Event {
  rdma_ucm_event_resp resp{};
  Id *id = nullptr;          // whose events_reported it counts in
  Id *connection = nullptr;  // CONNECT_REQUEST: the new id
  Multicast *multicast = nullptr;
};

// One open /dev/infiniband/rdma_cm.
class Channel {
 public:
  bool open = false;                // false: on the free list
  std::atomic<u32> incarnation{0};  // counts how often it was opened
  std::set<int> descriptors;
  std::deque<Event> events;
  int own_end = -1;  // duplicate of the application's descriptor
  int device_end = -1;

  void post(const Event &);  // makes the descriptor readable
  void update();             // makes it unreadable when no event is left
  void remove_events_of(const Id *);
  void remove_events_of(const Multicast *);
};

// Life of an id (enum rdma_cm_state).
enum class IdState : u8 {
  idle,
  bound,
  address_resolved,
  route_resolved,
  connect,
  disconnect,
  listen,
};
// And of its connection (enum ib_cm_state).
enum class LinkState : u8 {
  idle,
  req_sent,
  req_received,
  rep_sent,
  rep_received,
  established,
  dreq_sent,
  dreq_received,
  timewait,
  sidr_req_sent,
  sidr_req_received,
};

struct Connection {
  bool exists = false;  // there is a CM id below the RDMA CM id
  LinkState state = LinkState::idle;
  Party peer;
  u32 peer_comm_id = 0;
  u32 remote_qpn = 0;
  u32 send_psn = 0;
  u8 responder_resources = 0;
  u8 initiator_depth = 0;
  u8 retry_count = 0;
  u8 rnr_retry_count = 0;
  u8 ack_timeout = 0;
  Message last;         // what is sent again until it is answered
  u64 deadline_ns = 0;  // 0: no timer runs
  u64 interval_ns = 0;
  u32 retries_left = 0;
  u64 seek_until_ns = 0;  // no listener has been found yet
};

struct Id {
  u32 number = 0;
  u32 comm_id = 0;  // unlike the number never used again soon
  u64 uid = 0;
  Channel *channel = nullptr;
  u16 port_space = 0;
  u8 qp_type = 0;
  IdState state = IdState::idle;
  Address source, destination;
  const Station *port = nullptr;  // of this host; nullptr: no device yet
  Station remote;                 // behind `destination`
  Path path;
  bool has_path = false;
  Binding binding;
  bool has_port = false;  // `binding` is in the registry
  bool reuse = false;
  bool family_only = false, family_only_set = false;
  bool tos_set = false, timeout_set = false;
  u8 tos = 0, timeout = 0;
  u32 backlog = 0;
  u32 events_reported = 0;
  u32 qpn = 0, qkey = 0, starting_psn = 0;
  bool srq = false;
  Connection link;
  std::vector<std::unique_ptr<Multicast>> groups;

  bool ud() const { return qp_type == qp_ud; }
};

struct Manager {
  std::vector<Channel *> channels;  // used again, never freed
  std::map<u32, std::unique_ptr<Id>> ids;
  std::unordered_map<u32, Id *> by_comm_id;
  std::map<u32, Multicast *> groups;
  u32 next_comm_id = 0;
  u64 next_scan_ns = 0, next_check_ns = 0;

  Id *with_comm_id(u32 comm_id) const;
};
Manager &manager();

// --- ids (id.cpp) ---
Id *create_id(Channel &, u16 port_space, u8 qp_type, u64 uid);
// `refuse` false: a waiting peer gets no answer, and will try again.
void destroy_id(Id *, bool refuse = true);
// An id of this channel: ENOENT, EINVAL when it is another channel's.
Id *find_id(const Channel &, u32 number, int &error);
void forget_all_ids();  // in a forked child

// --- events (events.cpp) ---
// Queues an event of `id` unless its owner has not set a context yet.
void post_event(Id &, EventType, i32 status);
void post_written_event(Id &, u32 type, u32 status, u64 argument);
void post_conn_event(Id &, EventType, i32 status, const rdma_ucm_conn_param &,
                     const rdma_ucm_ece &ece = {});
void post_ud_event(Id &, EventType, i32 status, const rdma_ucm_ud_param &);
void post_request_event(Id &listener, Id &connection, const Message &);
void post_multicast_event(Multicast &, EventType, i32 status, const rdma_ucm_ud_param &);
// A refusal or a failure of a connection, in the form of its kind of id.
void post_failure(Id &, EventType, i32 status, const u8 *data, u32 length, u32 reported_length);

// --- addresses and routes (resolve.cpp); 0 or errno ---
int bind_id(Id &, const Address &);
int resolve_address(Id &, const Address &source, const Address &destination);
int resolve_route(Id &);
int set_path(Id &, const Path &);
// The address handle for a path from a port; index of its source GID.
ib_uverbs_ah_attr address_handle(const Station &, const Path &);
u8 gid_index(const Station &, const Ip &gid);
// The Q_Key of the id, chosen on first use; EINVAL when it has another.
int set_qkey(Id &, u32 qkey);

// --- connections (connect.cpp); 0 or errno ---
struct ConnectParameters {
  rdma_ucm_conn_param conn{};
  rdma_ucm_ece ece{};
};
int listen(Id &, i32 backlog);
int connect(Id &, const ConnectParameters &);
int accept(Id &, const ConnectParameters *, u64 uid);  // nullptr: finish as the active side
int reject(Id &, u8 reason, const u8 *data, u32 length);
int disconnect(Id &);
int notify(Id &, u32 event);
void seek_listener(Id &);
void send_reject(Id &, u8 reason, const u8 *data, u32 length);
void send_disconnect_reply(Id &);
void enter_timewait(Id &);
void stop_timer(Id &);

// --- what arrives (receive.cpp) ---
void receive(const PacketHeader &, const u8 *payload);
bool tick(u64 now_ns);
// When tick() has something to do next, if nothing happens before.
u64 due(u64 now_ns);

// --- multicast (multicast.cpp); 0 or errno ---
int join(Id &, const Address &, u64 uid, Multicast *&out);
Multicast *find_group(const Channel &, u32 number, int &error);
void leave(Multicast *);

// --- queries (query.cpp, qp_attr.cpp) ---
rdma_ucm_query_route_resp query_route(const Id &);
rdma_ucm_query_addr_resp query_addr(const Id &);
rdma_ucm_query_addr_resp query_gid(const Id &);
std::vector<u8> query_path(const Id &, u32 room);
bool unpack_path(const ib_path_rec_data &, Path &out);
int init_qp_attr(Id &, u32 qp_state, ib_uverbs_qp_attr &out);

// --- commands (commands.cpp) ---
// One write() on a channel: 0, errno, or no_event when there is none to fetch.
constexpr int no_event = -1;
// Whether a command fetches an event; false when it cannot be read.
bool fetches_event(u64 buffer, size_t length);
int command(Channel &, u64 buffer, size_t length);

}  // namespace softhca::cm
