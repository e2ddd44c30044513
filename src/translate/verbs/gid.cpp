#include "translate/verbs/gid.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/keep_errno.h"
#include "base/real.h"
#include "base/uncancelled.h"
#include "trace/diagnose.h"
#include "translate/convert/port_convert.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId querying_gid = EntryId::ibv_exp_query_gid_attr;

// What the kernel wrote beside the table of GIDs. Entries without a GID have no
// type, nor does InfiniBand.
std::uint32_t type_in_sysfs(ibv_context *context, std::uint8_t port_num, unsigned index) {
  char name[IBV_SYSFS_PATH_MAX + 64];
  std::snprintf(name, sizeof(name), "%s/ports/%u/gid_attrs/types/%u", context->device->ibdev_path,
                port_num, index);
  const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(name, "re"), std::fclose);
  char line[32] = "";
  if (!file || std::fgets(line, sizeof(line), file.get()) == nullptr) return IBV_GID_TYPE_IB;
  return std::strncmp(line, "RoCE v2", 7) == 0 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
}

// By rdma-core before release 32, which has a query of both.
[[gnu::noinline, gnu::cold]] int query_each(ibv_context *context, std::uint8_t port_num,
                                            unsigned index, ibv_gid_entry &out) {
  const Uncancelled whole;
  // Gives no reason that means anything: it reads a file. The later query calls
  // it EINVAL too.
  if (ibv_query_gid(context, port_num, static_cast<int>(index), &out.gid) != 0) return EINVAL;
  out.gid_type = type_in_sysfs(context, port_num, index);
  return 0;
}
int query(ibv_context *context, std::uint8_t port_num, unsigned index, ibv_gid_entry &out) {
  const auto query_entry = real()._ibv_query_gid_ex;
  if (query_entry == nullptr) [[unlikely]]
    return query_each(context, port_num, index, out);
  return positive(query_entry(context, port_num, index, &out, 0, sizeof(out)));
}

}  // namespace

Result<void> query_gid_attr(ibv_context *context, std::uint8_t port_num, unsigned index,
                            ibv_exp_gid_attr *attr) {
  if (attr == nullptr) return invalid(querying_gid, "attributes", 0, "must not be null");
  if (const auto bits = check_bits(querying_gid, "comp_mask", attr->comp_mask,
                                   bits_of<"ibv_exp_query_gid_attr">());
      !bits)
    return bits;
  if (attr->comp_mask == 0) return {};
  const KeepErrno keep;
  ibv_gid_entry entry{};
  const int error = query(context, port_num, index, entry);
  // An entry of the table that holds no GID: sysfs, the source of the legacy
  // library, shows it as zeros of the first type. Programs walk the whole table
  // and take any other answer for a broken device.
  if (error != 0 && error != ENODATA) {
    // The legacy library read a file for the GID, and another one for the type first.
    const bool no_entry = error == EINVAL && (attr->comp_mask & IBV_EXP_QUERY_GID_ATTR_TYPE) == 0;
    return Error{no_entry ? ENOENT : error};
  }
  if ((attr->comp_mask & IBV_EXP_QUERY_GID_ATTR_TYPE) != 0)
    attr->type = to_legacy_gid_type(entry.gid_type);
  if ((attr->comp_mask & IBV_EXP_QUERY_GID_ATTR_GID) != 0) attr->gid = entry.gid;
  return {};
}

}  // namespace ibvexp::translate
