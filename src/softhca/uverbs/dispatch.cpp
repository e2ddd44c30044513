#include "uverbs/dispatch.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include <unordered_map>

#include "base/log.h"
#include "engine/engine.h"
#include "fault/faults.h"

namespace softhca::uverbs {

namespace {

const Family *const families[] = {
    &context_family,     &device_family,    &pd_family,        &mr_family,       &mw_family,
    &cq_family,          &qp_create_family, &qp_modify_family, &qp_query_family, &srq_family,
    &xrc_family,         &ah_family,        &mcast_family,     &dm_family,       &devx_family,
    &devx_events_family, &umem_family,      &uar_family,       &wq_family,       &rwq_family,
    &flow_family,        &matcher_family,   &pacing_family,    &refused_family,  &old_family,
};

constexpr u32 method_key(u32 object, u32 method) { return object << 16 | method; }

const Method *find_method(u16 object, u16 method) {
  static const auto &table = *[] {
    auto *t = new std::unordered_map<u32, const Method *>;
    for (const Family *f : families)
      for (const Method &m : f->methods) t->emplace(method_key(m.object, m.method), &m);
    return t;
  }();
  const auto it = table.find(method_key(object, method));
  return it != table.end() ? it->second : nullptr;
}

const WriteCommand *find_command(u32 number) {
  static const auto &table = *[] {
    auto *t = new std::unordered_map<u32, const WriteCommand *>;
    for (const Family *f : families)
      for (const WriteCommand &c : f->commands) t->emplace(c.number, &c);
    return t;
  }();
  const auto it = table.find(number);
  return it != table.end() ? it->second : nullptr;
}

constexpr AttrSpec invoke_write_specs[] = {
    in_bytes(UVERBS_ATTR_CORE_IN, 4).optional(),
    out_bytes(UVERBS_ATTR_CORE_OUT, 0).optional(),
    constant(UVERBS_ATTR_WRITE_CMD),
};

int finish(const char *name, int error) {
  if (error != 0) SOFTHCA_LOG(debug, "%s: errno %d", name, error);
  else SOFTHCA_LOG(trace, "%s", name);
  return error;
}

// What the configuration wants of a command: an error, or 0.
int fault(const char *name) {
  const int error = faults_configured() ? fault_command(name) : 0;
  return error != 0 ? finish(name, error) : 0;
}

int invoke_write(File &file, Attrs &attrs) {
  if (const int error = attrs.bind(file, invoke_write_specs, true); error != 0) return error;
  u64 number = 0;
  attrs.constant(UVERBS_ATTR_WRITE_CMD, number);
  constexpr u32 known_bits = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_COMMAND_MASK;
  if ((number & ~u64{known_bits}) != 0) return EINVAL;

  const WriteCommand *command = find_command(static_cast<u32>(number));
  if (command == nullptr) {
    SOFTHCA_LOG(warn, "unknown write command %#llx", static_cast<unsigned long long>(number));
    return EOPNOTSUPP;
  }
  // libibverbs probes for this method at open with no buffers at all, and
  // wants ENOSPC to believe in it.
  if (attrs.length(UVERBS_ATTR_CORE_IN) < command->min_in ||
      attrs.length(UVERBS_ATTR_CORE_OUT) < command->min_out)
    return ENOSPC;
  if (!file.has_context) return EINVAL;
  if (const int error = fault(command->name); error != 0) return error;
  return finish(command->name, command->handler(file, attrs));
}

}  // namespace

int commit(File &file, Attrs &attrs, u16 id, std::unique_ptr<Object> object) {
  const u32 handle = file.objects.reserve();
  if (const int error = attrs.publish(id, handle); error != 0) return error;
  file.objects.insert(handle, std::move(object));
  return 0;
}

void settle(const Object &object) {
  if (!object.inherited()) engine_settle(object.queue_pair());
}

int destroy_settled(File &file, Attrs &attrs, u16 id) {
  settle(*attrs.object<Object>(id));
  return destroy(file, attrs, id);
}

int destroy(File &file, Attrs &attrs, u16 id) {
  return file.objects.destroy(attrs.object<Object>(id));
}

int dispatch(File &file, const ib_uverbs_ioctl_hdr *message) {
  Attrs attrs;
  if (const int error = attrs.load(message); error != 0) return error;
  const MessageHeader &h = attrs.header();
  if (h.driver_id != RDMA_DRIVER_MLX5) return EINVAL;

  if (h.object_id == UVERBS_OBJECT_DEVICE && h.method_id == UVERBS_METHOD_INVOKE_WRITE)
    return invoke_write(file, attrs);
  const Method *method = find_method(h.object_id, h.method_id);
  if (method == nullptr) {
    SOFTHCA_LOG(warn, "unknown command: object %#x method %#x", h.object_id, h.method_id);
    return EPROTONOSUPPORT;
  }
  // Refused ones are refused whatever they carry, as by a kernel that does not have them.
  if (const int error = fault(method->name); error != 0) return error;
  if (method->handler == refuse) return finish(method->name, refuse(file, attrs));
  const bool opens =
      h.object_id == UVERBS_OBJECT_DEVICE && h.method_id == UVERBS_METHOD_GET_CONTEXT;
  if (!file.has_context && !opens) return EINVAL;
  if (const int error = attrs.bind(file, method->specs, method->driver_data); error != 0)
    return finish(method->name, error);
  return finish(method->name, method->handler(file, attrs));
}

}  // namespace softhca::uverbs
