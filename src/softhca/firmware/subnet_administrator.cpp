#include "firmware/subnet_administrator.h"

#include <unistd.h>

#include <algorithm>

#include "config/config.h"
#include "config/identity.h"

namespace softhca {

namespace {

// Common MAD header, then RMPP, then the SA's.
constexpr u32 class_at = 1, method_at = 3, status_at = 4, attribute_at = 16, components_at = 48;
constexpr u32 data_at = 56;

constexpr u8 method_get = 0x01, method_set = 0x02, method_delete = 0x15;
constexpr u8 response = 0x80;
constexpr u16 attribute_class_port_info = 0x0001, attribute_path_record = 0x0035,
              attribute_member_record = 0x0038;

constexpr u16 ok = 0, unsupported = 0x000c;
constexpr u16 request_invalid = 0x0200, no_records = 0x0300, invalid_gid = 0x0500,
              insufficient_components = 0x0600;

// MCMemberRecord.
constexpr u32 mgid_at = 0, qkey_at = 32, mlid_at = 36, mtu_at = 38, pkey_at = 40, rate_at = 42,
              lifetime_at = 43;
constexpr u64 has_mgid = 1 << 0, has_port_gid = 1 << 1, has_qkey = 1 << 2, has_pkey = 1 << 7,
              has_join_state = 1 << 16;
// PathRecord.
constexpr u32 path_dgid_at = 8, path_sgid_at = 24, path_dlid_at = 40, path_slid_at = 42,
              path_flow_at = 44, path_class_at = 48, path_reversible_at = 49, path_pkey_at = 50,
              path_level_at = 52, path_mtu_at = 54, path_rate_at = 55, path_lifetime_at = 56;
constexpr u64 path_has_dgid = 1 << 2, path_has_sgid = 1 << 3, path_has_pkey = 1 << 13;
constexpr u8 reversible = 0x80;

constexpr u8 exactly = 2 << 6;  // selector in front of MTU, rate and life time
constexpr u8 mtu_4096 = 5, rate_100_gbps = 16, lifetime_2_s = 18;
constexpr u32 default_qkey = 0x0b1b;  // what subnet managers give to IPoIB

}  // namespace

u16 multicast_lid(const Mgid &gid) {
  constexpr u16 first = 0xc000, count = 0x3fff;  // 0xffff is the permissive LID
  u32 hash = 0x811c9dc5;                         // FNV-1a
  for (const u8 byte : gid) hash = (hash ^ byte) * 0x01000193;
  return static_cast<u16>(first + hash % count);
}

u16 SubnetAdministrator::member_record(u8 method, u64 components, u8 *record) {
  Mgid gid{};
  if ((components & has_mgid) != 0) std::copy_n(record + mgid_at, gid.size(), gid.begin());
  const bool named = gid != Mgid{};
  if (named && gid[0] != 0xff) return invalid_gid;
  const auto known = joined_.find(gid);

  if (method != method_set && known == joined_.end())
    return method == method_get ? no_records : request_invalid;
  if (method != method_get && (~components & (has_port_gid | has_join_state)) != 0)
    return insufficient_components;

  Group group{default_qkey, the_pkey};
  if (known != joined_.end()) {
    group = known->second;
    // What is asked for has to be what the group has.
    if ((components & has_qkey) != 0 && load_be32(record + qkey_at) != group.qkey)
      return request_invalid;
    if ((components & has_pkey) != 0 && load_be16(record + pkey_at) != group.pkey)
      return request_invalid;
  } else {
    if ((components & has_qkey) != 0) group.qkey = load_be32(record + qkey_at);
    if ((components & has_pkey) != 0) group.pkey = load_be16(record + pkey_at);
  }
  if (!named) {
    gid = {0xff, 0x12, 0xa0, 0x1c, 0xfe, 0x80};
    store_be16(gid.data() + 6, config().host);
    store_be32(gid.data() + 8, static_cast<u32>(getpid()));
    store_be32(gid.data() + 12, ++named_);
  }
  if (method == method_delete) {
    joined_.erase(known);
  } else {
    joined_[gid] = group;
  }
  std::copy(gid.begin(), gid.end(), record + mgid_at);
  store_be32(record + qkey_at, group.qkey);
  store_be16(record + mlid_at, multicast_lid(gid));
  record[mtu_at] = exactly | mtu_4096;
  store_be16(record + pkey_at, group.pkey);
  record[rate_at] = exactly | rate_100_gbps;
  record[lifetime_at] = exactly | lifetime_2_s;
  return ok;
}

// A port is found by its GUID, within the one subnet that there is.
u16 SubnetAdministrator::path_record(u64 components, u8 *record) {
  if ((components & path_has_dgid) == 0 || (components & path_has_sgid) == 0)
    return insufficient_components;
  const u16 to = lid_of_guid(config(), load_be64(record + path_dgid_at + 8)),
            from = lid_of_guid(config(), load_be64(record + path_sgid_at + 8));
  const bool other_key =
      (components & path_has_pkey) != 0 && load_be16(record + path_pkey_at) != the_pkey;
  if (to == 0 || from == 0 || other_key) return no_records;
  store_be16(record + path_dlid_at, to);
  store_be16(record + path_slid_at, from);
  store_be32(record + path_flow_at, 0);
  record[path_class_at] = 0;
  record[path_reversible_at] = reversible | 1;
  store_be16(record + path_pkey_at, the_pkey);
  store_be16(record + path_level_at, 0);
  record[path_mtu_at] = exactly | mtu_4096;
  record[path_rate_at] = exactly | rate_100_gbps;
  record[path_lifetime_at] = exactly | lifetime_2_s;
  return ok;
}

namespace {

u16 class_port_info(u8 *info) {
  constexpr u32 records = 200, response_time_at = 7;
  constexpr u8 base_version = 1, class_version = 2, response_time_1_s = 18;
  std::fill_n(info, records, u8{0});
  info[0] = base_version;
  info[1] = class_version;
  info[response_time_at] = response_time_1_s;
  return ok;
}

}  // namespace

bool SubnetAdministrator::answer(const u8 *request, u8 *answer) {
  const u8 method = request[method_at];
  if (request[class_at] != mad_class_sa || (method & response) != 0) return false;
  std::memcpy(answer, request, mad_bytes);
  answer[method_at] = (method == method_set ? method_get : method) | response;
  const u16 attribute = load_be16(request + attribute_at);
  const u64 components = load_be64(request + components_at);
  u8 *const data = answer + data_at;
  u16 status = unsupported;
  if (attribute == attribute_member_record &&
      (method == method_get || method == method_set || method == method_delete))
    status = member_record(method, components, data);
  else if (attribute == attribute_path_record && method == method_get)
    status = path_record(components, data);
  else if (attribute == attribute_class_port_info && method == method_get)
    status = class_port_info(data);
  store_be16(answer + status_at, status);
  return true;
}

}  // namespace softhca
