#include "firmware/subnet_administrator.h"

#include <unistd.h>

#include <algorithm>

#include "config/config.h"

namespace softhca {

namespace {

// Common MAD header, then RMPP, then the SA's.
constexpr u32 class_at = 1, method_at = 3, status_at = 4, attribute_at = 16, components_at = 48;
constexpr u32 data_at = 56;

constexpr u8 method_get = 0x01, method_set = 0x02, method_delete = 0x15;
constexpr u8 response = 0x80;
constexpr u16 attribute_member_record = 0x0038;

constexpr u16 ok = 0, unsupported = 0x000c;
constexpr u16 request_invalid = 0x0200, no_records = 0x0300, invalid_gid = 0x0500,
              insufficient_components = 0x0600;

// MCMemberRecord.
constexpr u32 mgid_at = 0, qkey_at = 32, mlid_at = 36, mtu_at = 38, pkey_at = 40, rate_at = 42,
              lifetime_at = 43;
constexpr u64 has_mgid = 1 << 0, has_port_gid = 1 << 1, has_qkey = 1 << 2, has_pkey = 1 << 7,
              has_join_state = 1 << 16;
constexpr u8 exactly = 2 << 6;  // selector in front of MTU, rate and life time
constexpr u8 mtu_4096 = 5, rate_100_gbps = 16, lifetime_2_s = 18;
constexpr u32 default_qkey = 0x0b1b;  // what subnet managers give to IPoIB
constexpr u16 default_pkey = 0xffff;

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

  Group group{default_qkey, default_pkey};
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

bool SubnetAdministrator::answer(const u8 *request, u8 *answer) {
  const u8 method = request[method_at];
  if (request[class_at] != mad_class_sa || (method & response) != 0) return false;
  std::memcpy(answer, request, mad_bytes);
  answer[method_at] = (method == method_set ? method_get : method) | response;
  const bool served = load_be16(request + attribute_at) == attribute_member_record &&
                      (method == method_get || method == method_set || method == method_delete);
  store_be16(answer + status_at,
             served ? member_record(method, load_be64(request + components_at), answer + data_at)
                    : unsupported);
  return true;
}

}  // namespace softhca
