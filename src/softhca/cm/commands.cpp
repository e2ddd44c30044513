// The write() interface of /dev/infiniband/rdma_cm (ABI 4, core/ucma.c): which
// commands there are, what they check in what order, how they answer.
#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/log.h"
#include "cm/cm_file.h"
#include "cm/cm_state.h"
#include "model/memory.h"

namespace softhca::cm {

namespace {

// Structures grew over time: what older user space sends or has room for ends
// before these members.
constexpr u32 connect_before_ece = offsetof(rdma_ucm_connect, ece);
constexpr u32 accept_before_ece = offsetof(rdma_ucm_accept, ece);
constexpr u32 event_before_ece = offsetof(rdma_ucm_event_resp, reserved);
constexpr u32 route_before_index = offsetof(rdma_ucm_query_route_resp, ibdev_index);
constexpr u32 addr_before_index = offsetof(rdma_ucm_query_addr_resp, ibdev_index);

struct Request {
  u64 body;     // address of what follows the header
  u32 in, out;  // lengths that the header gives
};

template <class T>
int fetch(const Request &r, T &to, u32 length = sizeof(T)) {
  return read_application(r.body, &to, length) ? 0 : EFAULT;
}

template <class T>
int respond(u64 address, const T &from, u32 length = sizeof(T)) {
  return write_application(address, &from, length) ? 0 : EFAULT;
}

// The id of a command that needs a device.
Id *find_attached(const Channel &c, u32 number, int &error) {
  Id *id = find_id(c, number, error);
  if (id == nullptr || id->port != nullptr) return id;
  error = EINVAL;
  return nullptr;
}

// --- ids -------------------------------------------------------------------

int qp_type_of(const rdma_ucm_create_id &cmd, u8 &type) {
  switch (cmd.ps) {
    case RDMA_PS_TCP: type = qp_rc; return 0;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB: type = qp_ud; return 0;
    case RDMA_PS_IB: type = cmd.qp_type; return 0;
    default: return EINVAL;
  }
}

int do_create_id(Channel &c, const Request &r) {
  rdma_ucm_create_id cmd;
  rdma_ucm_create_id_resp resp{};
  if (r.out < sizeof resp) return ENOSPC;
  if (const int error = fetch(r, cmd); error != 0) return error;
  u8 type = 0;
  if (const int error = qp_type_of(cmd, type); error != 0) return error;
  Id *id = create_id(c, cmd.ps, type, cmd.uid);
  resp.id = id->number;
  const int error = respond(cmd.response, resp);
  if (error != 0) destroy_id(id);
  return error;
}

int do_destroy_id(Channel &c, const Request &r) {
  rdma_ucm_destroy_id cmd;
  rdma_ucm_destroy_id_resp resp{};
  if (r.out < sizeof resp) return ENOSPC;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Id *id = find_id(c, cmd.id, error);
  if (id == nullptr) return error;
  resp.events_reported = id->events_reported;
  destroy_id(id);
  return respond(cmd.response, resp);
}

int do_migrate_id(Channel &c, const Request &r) {
  rdma_ucm_migrate_id cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Channel *from = channel_of(static_cast<int>(cmd.fd));
  if (from == nullptr) return EINVAL;
  Id *id = find_id(*from, cmd.id, error);
  if (id == nullptr) return error;
  if (from != &c) {
    // Their order stays, and nothing new can come in between.
    for (const Event &e : from->events)
      if (e.id == id) c.post(e);
    from->remove_events_of(id);
    id->channel = &c;
  }
  const rdma_ucm_migrate_resp resp{id->events_reported};
  return respond(cmd.response, resp);
}

// --- addresses -------------------------------------------------------------

int do_bind_ip(Channel &c, const Request &r) {
  rdma_ucm_bind_ip cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  const Address a(&cmd.addr, sizeof cmd.addr);
  if (a.size() == 0 || a.size() > sizeof cmd.addr) return EINVAL;
  Id *id = find_id(c, cmd.id, error);
  return id != nullptr ? bind_id(*id, a) : error;
}

int do_bind(Channel &c, const Request &r) {
  rdma_ucm_bind cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  const Address a(&cmd.addr, sizeof cmd.addr);
  if (cmd.reserved != 0 || cmd.addr_size == 0 || cmd.addr_size != a.size()) return EINVAL;
  Id *id = find_id(c, cmd.id, error);
  return id != nullptr ? bind_id(*id, a) : error;
}

int do_resolve_ip(Channel &c, const Request &r) {
  rdma_ucm_resolve_ip cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  const Address source(&cmd.src_addr, sizeof cmd.src_addr);
  const Address destination(&cmd.dst_addr, sizeof cmd.dst_addr);
  const auto fits = [](const Address &a) {
    return a.size() != 0 && a.size() <= sizeof cmd.dst_addr;
  };
  if ((source.family() != 0 && !fits(source)) || !fits(destination)) return EINVAL;
  Id *id = find_id(c, cmd.id, error);
  return id != nullptr ? resolve_address(*id, source, destination) : error;
}

int do_resolve_addr(Channel &c, const Request &r) {
  rdma_ucm_resolve_addr cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  const Address source(&cmd.src_addr, cmd.src_size != 0 ? sizeof cmd.src_addr : 0);
  const Address destination(&cmd.dst_addr, sizeof cmd.dst_addr);
  if (cmd.reserved != 0 || (cmd.src_size != 0 && cmd.src_size != source.size()) ||
      cmd.dst_size == 0 || cmd.dst_size != destination.size())
    return EINVAL;
  Id *id = find_id(c, cmd.id, error);
  return id != nullptr ? resolve_address(*id, source, destination) : error;
}

int do_resolve_route(Channel &c, const Request &r) {
  rdma_ucm_resolve_route cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Id *id = find_attached(c, cmd.id, error);
  return id != nullptr ? resolve_route(*id) : error;
}

// --- queries ---------------------------------------------------------------

int do_query_route(Channel &c, const Request &r) {
  rdma_ucm_query cmd;
  if (r.out < route_before_index) return ENOSPC;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  const Id *id = find_id(c, cmd.id, error);
  if (id == nullptr) return error;
  const rdma_ucm_query_route_resp resp = query_route(*id);
  return respond(cmd.response, resp, std::min<u32>(r.out, sizeof resp));
}

int respond_addr(const Request &r, u64 response, const rdma_ucm_query_addr_resp &resp) {
  if (r.out < addr_before_index) return ENOSPC;
  return respond(response, resp, std::min<u32>(r.out, sizeof resp));
}

int do_query(Channel &c, const Request &r) {
  rdma_ucm_query cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  const Id *id = find_id(c, cmd.id, error);
  if (id == nullptr) return error;
  switch (cmd.option) {
    case RDMA_USER_CM_QUERY_ADDR: return respond_addr(r, cmd.response, query_addr(*id));
    case RDMA_USER_CM_QUERY_GID: return respond_addr(r, cmd.response, query_gid(*id));
    case RDMA_USER_CM_QUERY_PATH: {
      if (r.out < sizeof(rdma_ucm_query_path_resp)) return ENOSPC;
      const std::vector<u8> bytes = query_path(*id, r.out);
      return write_application(cmd.response, bytes.data(), bytes.size()) ? 0 : EFAULT;
    }
    default: return ENOSYS;
  }
}

int do_init_qp_attr(Channel &c, const Request &r) {
  rdma_ucm_init_qp_attr cmd;
  ib_uverbs_qp_attr resp{};
  if (r.out < sizeof resp) return ENOSPC;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Id *id = find_attached(c, cmd.id, error);
  if (id == nullptr) return error;
  error = init_qp_attr(*id, cmd.qp_state, resp);
  return error != 0 ? error : respond(cmd.response, resp);
}

// --- connections -----------------------------------------------------------

int do_connect(Channel &c, const Request &r) {
  rdma_ucm_connect cmd{};
  if (r.in < connect_before_ece) return EINVAL;
  int error = fetch(r, cmd, std::min<u32>(r.in, sizeof cmd));
  if (error != 0) return error;
  if (!cmd.conn_param.valid) return EINVAL;
  Id *id = find_attached(c, cmd.id, error);
  return id != nullptr ? connect(*id, {cmd.conn_param, cmd.ece}) : error;
}

int do_listen(Channel &c, const Request &r) {
  rdma_ucm_listen cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Id *id = find_id(c, cmd.id, error);
  return id != nullptr ? listen(*id, static_cast<i32>(cmd.backlog)) : error;
}

int do_accept(Channel &c, const Request &r) {
  rdma_ucm_accept cmd{};
  if (r.in < accept_before_ece) return EINVAL;
  int error = fetch(r, cmd, std::min<u32>(r.in, sizeof cmd));
  if (error != 0) return error;
  Id *id = find_attached(c, cmd.id, error);
  if (id == nullptr) return error;
  const ConnectParameters p{cmd.conn_param, cmd.ece};
  return accept(*id, cmd.conn_param.valid ? &p : nullptr, cmd.uid);
}

int do_reject(Channel &c, const Request &r) {
  rdma_ucm_reject cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  if (cmd.reason == 0) cmd.reason = reject_consumer;
  if (cmd.reason != reject_consumer && cmd.reason != reject_vendor_option) return EINVAL;
  Id *id = find_attached(c, cmd.id, error);
  return id != nullptr ? reject(*id, cmd.reason, cmd.private_data, cmd.private_data_len) : error;
}

int do_disconnect(Channel &c, const Request &r) {
  rdma_ucm_disconnect cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Id *id = find_attached(c, cmd.id, error);
  return id != nullptr ? disconnect(*id) : error;
}

int do_notify(Channel &c, const Request &r) {
  rdma_ucm_notify cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Id *id = find_attached(c, cmd.id, error);
  return id != nullptr ? notify(*id, cmd.event) : error;
}

int do_get_event(Channel &c, const Request &r) {
  rdma_ucm_get_event cmd;
  if (r.out < event_before_ece) return ENOSPC;
  if (const int error = fetch(r, cmd); error != 0) return error;
  if (c.events.empty()) return no_event;
  const Event event = c.events.front();
  c.events.pop_front();
  c.update();
  if (event.connection != nullptr) {
    ++event.id->backlog;
    event.connection->channel = &c;  // the listener may have migrated
  }
  if (const int error = respond(cmd.response, event.resp, std::min<u32>(r.out, sizeof event.resp));
      error != 0) {
    // The program did not get the number of the new id: remove it.
    if (event.connection != nullptr) destroy_id(event.connection);
    return error;
  }
  ++event.id->events_reported;
  if (event.multicast != nullptr) ++event.multicast->events_reported;
  return 0;
}

// --- options ---------------------------------------------------------------

int set_id_option(Id &id, u32 name, const std::vector<u8> &value) {
  const auto is_int = [&] { return value.size() == sizeof(i32); };
  const auto as_bool = [&] {
    return std::any_of(value.begin(), value.end(), [](u8 byte) { return byte != 0; });
  };
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (value.size() != 1) return EINVAL;
      id.tos = value[0];
      id.tos_set = true;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (!is_int()) return EINVAL;
      // Taking it back is too late once there is an address.
      if (!as_bool() && id.state != IdState::idle) return EINVAL;
      id.reuse = as_bool();
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      if (!is_int()) return EINVAL;
      if (id.state != IdState::idle && id.state != IdState::bound) return EINVAL;
      id.family_only = as_bool();
      id.family_only_set = true;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (value.size() != 1) return EINVAL;
      if (id.qp_type != qp_rc && id.qp_type != qp_xrc_ini) return EINVAL;
      id.timeout = value[0];
      id.timeout_set = true;
      return 0;
    default: return ENOSYS;
  }
}

int set_ib_path(Id &id, const std::vector<u8> &value) {
  if (value.size() % sizeof(ib_path_rec_data) != 0 || id.port == nullptr) return EINVAL;
  for (size_t at = 0; at < value.size(); at += sizeof(ib_path_rec_data)) {
    ib_path_rec_data data;
    std::memcpy(&data, value.data() + at, sizeof data);
    Path path;
    if (unpack_path(data, path)) return set_path(id, path);
  }
  return EINVAL;
}

int do_set_option(Channel &c, const Request &r) {
  rdma_ucm_set_option cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  if (cmd.optlen > page_size) return EINVAL;
  Id *id = find_id(c, cmd.id, error);
  if (id == nullptr) return error;
  std::vector<u8> value(cmd.optlen);
  if (!value.empty() && !read_application(cmd.optval, value.data(), value.size())) return EFAULT;
  if (cmd.level == RDMA_OPTION_ID) return set_id_option(*id, cmd.optname, value);
  if (cmd.level == RDMA_OPTION_IB && cmd.optname == RDMA_OPTION_IB_PATH)
    return set_ib_path(*id, value);
  return ENOSYS;
}

// --- multicast -------------------------------------------------------------

int join_group(Channel &c, u32 out, u64 response, u64 uid, u32 number, const Address &a,
               u16 flags) {
  rdma_ucm_create_id_resp resp{};
  if (out < sizeof resp) return ENOSPC;
  if (flags != RDMA_MC_JOIN_FLAG_FULLMEMBER && flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
    return EINVAL;
  int error = 0;
  Id *id = find_attached(c, number, error);
  if (id == nullptr) return error;
  Multicast *group = nullptr;
  error = join(*id, a, uid, group);
  if (error != 0) return error;
  resp.id = group->number;
  error = respond(response, resp);
  if (error != 0) leave(group);
  return error;
}

int do_join_ip_mcast(Channel &c, const Request &r) {
  rdma_ucm_join_ip_mcast cmd;
  if (const int error = fetch(r, cmd); error != 0) return error;
  const Address a(&cmd.addr, sizeof cmd.addr);
  if (a.size() == 0 || a.size() > sizeof cmd.addr) return EINVAL;
  return join_group(c, r.out, cmd.response, cmd.uid, cmd.id, a, RDMA_MC_JOIN_FLAG_FULLMEMBER);
}

int do_join_mcast(Channel &c, const Request &r) {
  rdma_ucm_join_mcast cmd;
  if (const int error = fetch(r, cmd); error != 0) return error;
  const Address a(&cmd.addr, sizeof cmd.addr);
  if (cmd.addr_size == 0 || cmd.addr_size != a.size()) return EINVAL;
  return join_group(c, r.out, cmd.response, cmd.uid, cmd.id, a, cmd.join_flags);
}

int do_leave_mcast(Channel &c, const Request &r) {
  rdma_ucm_destroy_id cmd;
  rdma_ucm_destroy_id_resp resp{};
  if (r.out < sizeof resp) return ENOSPC;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  Multicast *group = find_group(c, cmd.id, error);
  if (group == nullptr) return error;
  resp.events_reported = group->events_reported;
  leave(group);
  return respond(cmd.response, resp);
}

// --- events of the application itself ---------------------------------------

// RDMA_USER_CM_CMD_WRITE_CM_EVENT and its structure, which headers of Linux have since 6.17.
constexpr u32 write_cm_event_command = 24;
struct WriteCmEvent {
  u32 id;
  u32 reserved;
  u32 event;
  u32 status;
  union {
    rdma_ucm_conn_param conn;
    rdma_ucm_ud_param ud;
    u64 argument;
  };
};

// librdmacm resolves names on a thread of its own and says so by an event.
int do_write_cm_event(Channel &c, const Request &r) {
  WriteCmEvent cmd;
  int error = fetch(r, cmd);
  if (error != 0) return error;
  if (cmd.event != static_cast<u32>(EventType::user) &&
      cmd.event != static_cast<u32>(EventType::internal))
    return EINVAL;
  Id *id = find_id(c, cmd.id, error);
  if (id == nullptr) return error;
  post_written_event(*id, cmd.event, cmd.status, cmd.argument);
  return 0;
}

using Handler = int (*)(Channel &, const Request &);

constexpr Handler handlers[] = {
    /* 0 CREATE_ID */ do_create_id,
    /* 1 DESTROY_ID */ do_destroy_id,
    /* 2 BIND_IP */ do_bind_ip,
    /* 3 RESOLVE_IP */ do_resolve_ip,
    /* 4 RESOLVE_ROUTE */ do_resolve_route,
    /* 5 QUERY_ROUTE */ do_query_route,
    /* 6 CONNECT */ do_connect,
    /* 7 LISTEN */ do_listen,
    /* 8 ACCEPT */ do_accept,
    /* 9 REJECT */ do_reject,
    /* 10 DISCONNECT */ do_disconnect,
    /* 11 INIT_QP_ATTR */ do_init_qp_attr,
    /* 12 GET_EVENT */ do_get_event,
    /* 13 GET_OPTION */ nullptr,
    /* 14 SET_OPTION */ do_set_option,
    /* 15 NOTIFY */ do_notify,
    /* 16 JOIN_IP_MCAST */ do_join_ip_mcast,
    /* 17 LEAVE_MCAST */ do_leave_mcast,
    /* 18 MIGRATE_ID */ do_migrate_id,
    /* 19 QUERY */ do_query,
    /* 20 BIND */ do_bind,
    /* 21 RESOLVE_ADDR */ do_resolve_addr,
    /* 22 JOIN_MCAST */ do_join_mcast,
    /* 23 RESOLVE_IB_SERVICE */ nullptr,
    /* 24 WRITE_CM_EVENT */ do_write_cm_event,
};
static_assert(std::size(handlers) == write_cm_event_command + 1);

}  // namespace

bool fetches_event(u64 buffer, size_t length) {
  rdma_ucm_cmd_hdr header;
  return length >= sizeof header && read_application(buffer, &header, sizeof header) &&
         header.cmd == RDMA_USER_CM_CMD_GET_EVENT;
}

int command(Channel &channel, u64 buffer, size_t length) {
  rdma_ucm_cmd_hdr header;
  if (length < sizeof header) return EINVAL;
  if (!read_application(buffer, &header, sizeof header)) return EFAULT;
  if (header.cmd >= std::size(handlers) || header.in + sizeof header > length) return EINVAL;
  const Handler handler = handlers[header.cmd];
  if (handler == nullptr) return ENOSYS;
  const int error = handler(channel, {buffer + sizeof header, header.in, header.out});
  if (error > 0) SOFTHCA_LOG(debug, "connection manager: command %u: errno %d", header.cmd, error);
  return error;
}

}  // namespace softhca::cm
