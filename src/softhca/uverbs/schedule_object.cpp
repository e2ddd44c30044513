#include "uverbs/schedule_object.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include "firmware/schedule_fields.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

constexpr u32 id_at = 8;

struct ScheduleObject : DevxObject {
  ScheduleObject(File &f, u16 n, bool of_queues, ScheduleObject *above)
      : DevxObject(f),
        number(n),
        leaf(of_queues),
        above_held(above != nullptr ? above->held : nullptr),
        element(std::make_shared<ScheduleElement>(above != nullptr ? above->element : nullptr)) {}
  // How the kernel names firmware's BAD_RES_STATE. Queue pairs do not count: they keep
  // what they leave through.
  int can_destroy() const override { return held.use_count() > 1 ? EINVAL : 0; }
  const u16 number;
  const bool leaf;
  // Counts what is below; a file that is closed destroys its objects in any order.
  std::shared_ptr<bool> held = std::make_shared<bool>(), above_held;
  std::shared_ptr<ScheduleElement> element;
};

ScheduleObject *find(const File &file, u32 number) {
  for (const u32 handle : file.objects.handles(ObjectClass::devx_object)) {
    auto *o = dynamic_cast<ScheduleObject *>(file.objects.find(handle));
    if (o != nullptr && o->number == number) return o;
  }
  return nullptr;
}

// Send queues have 16 bits for it. 0: none is left.
u16 free_number(const File &file) {
  static u16 next = 0;
  for (u32 tries = 0; tries < 0x10000; ++tries)
    if (++next != 0 && find(file, next) == nullptr) return next;
  return 0;
}

}  // namespace

int schedule_create(File &file, Attrs &attrs, Command &c) {
  if (c.in.size() < schedule_end) return EINVAL;
  const u32 parent_number = load_be32(c.in.data() + schedule_parent_at);
  ScheduleObject *parent = parent_number != 0 ? find(file, parent_number) : nullptr;
  const bool leaf = schedule_leaf(c), root = parent_number == 0;
  if (!schedule_known(c) || (root && (leaf || schedule_selects(c))))
    return reply(attrs, c, Status::bad_param);
  if (!root && (parent == nullptr || parent->leaf)) return reply(attrs, c, Status::bad_resource);
  if (!root && parent->element->depth() == ScheduleElement::max_depth)
    return reply(attrs, c, Status::no_resources);
  const u16 number = free_number(file);
  if (number == 0) return reply(attrs, c, Status::no_resources);
  auto object = std::make_unique<ScheduleObject>(file, number, leaf, parent);
  schedule_apply(c, *object->element);
  store_be32(c.out.data() + id_at, object->number);
  if (const int error = reply(attrs, c, Status::ok); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, std::move(object));
}

int schedule_modify(const Attrs &attrs, Command &c, Object *o) {
  auto *object = dynamic_cast<ScheduleObject *>(o);
  if (object == nullptr || c.in.size() < schedule_end ||
      load_be32(c.in.data() + id_at) != object->number)
    return EINVAL;
  if (!schedule_known(c) || schedule_leaf(c) != object->leaf)
    return reply(attrs, c, Status::bad_param);
  schedule_apply(c, *object->element);
  return reply(attrs, c, Status::ok);
}

bool find_schedule(const File &file, u32 number, std::shared_ptr<ScheduleElement> &element) {
  const ScheduleObject *object = number != 0 ? find(file, number) : nullptr;
  if (number != 0 && (object == nullptr || !object->leaf)) return false;
  element = object != nullptr ? object->element : nullptr;
  return true;
}

}  // namespace softhca::uverbs
