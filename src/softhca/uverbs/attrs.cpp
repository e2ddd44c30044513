#include "uverbs/attrs.h"

#include <rdma/ib_user_ioctl_cmds.h>

#include <algorithm>

#include "model/memory.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

namespace {

// The kernel limits the whole message to one page.
constexpr u32 max_message = page_size;
constexpr u32 inline_bytes = 8;

constexpr AttrSpec driver_specs[] = {
    in_bytes(UVERBS_ATTR_UHW_IN, 0).optional(),
    out_bytes(UVERBS_ATTR_UHW_OUT, 0).optional(),
};

const AttrSpec *find_spec(std::span<const AttrSpec> specs, u16 id) {
  for (const AttrSpec &s : specs)
    if (s.id == id) return &s;
  return nullptr;
}

u64 address_of(const void *p) { return reinterpret_cast<u64>(p); }

}  // namespace

int Attrs::load(const ib_uverbs_ioctl_hdr *from) {
  if (!read_application(address_of(from), &header_, sizeof header_)) return EFAULT;
  if (header_.length > max_message ||
      header_.length != sizeof header_ + header_.num_attrs * sizeof(ib_uverbs_attr))
    return EINVAL;
  if (header_.reserved1 != 0 || header_.reserved2 != 0) return EPROTONOSUPPORT;

  std::vector<ib_uverbs_attr> wire(header_.num_attrs);
  const u64 first = address_of(from) + sizeof header_;
  if (!wire.empty() && !read_application(first, wire.data(), wire.size() * sizeof wire[0]))
    return EFAULT;
  attrs_.resize(wire.size());
  for (size_t i = 0; i < wire.size(); ++i) {
    attrs_[i].wire = wire[i];
    attrs_[i].user = first + i * sizeof wire[0];
  }
  return 0;
}

int Attrs::bind(File &file, std::span<const AttrSpec> specs, bool driver_data) {
  for (size_t i = 0; i < attrs_.size(); ++i) {
    Attr &attr = attrs_[i];
    const AttrSpec *spec = find_spec(specs, attr.wire.attr_id);
    if (spec == nullptr && driver_data) spec = find_spec(driver_specs, attr.wire.attr_id);
    if (spec == nullptr) {
      // Software decides whether it can live without it.
      if ((attr.wire.flags & UVERBS_ATTR_F_MANDATORY) != 0) return EPROTONOSUPPORT;
      continue;
    }
    if (find(attr.wire.attr_id) != nullptr) return EINVAL;  // given twice
    if (const int error = check(file, attr, *spec); error != 0) return error;
    attr.known = true;
  }
  for (const AttrSpec &spec : specs)
    if (spec.mandatory && find(spec.id) == nullptr) return EINVAL;
  return 0;
}

int Attrs::check(File &file, Attr &attr, const AttrSpec &spec) {
  const ib_uverbs_attr &w = attr.wire;
  if (w.attr_data.reserved != 0) return EINVAL;
  switch (spec.kind) {
    case AttrSpec::Kind::in:
      if (spec.zero_tail && w.len > spec.max && !tail_is_zero(attr, spec.max)) return EOPNOTSUPP;
      [[fallthrough]];
    case AttrSpec::Kind::out:
      return w.len < spec.min || (!spec.zero_tail && w.len > spec.max) ? EINVAL : 0;
    case AttrSpec::Kind::object:
    case AttrSpec::Kind::destroyed: {
      if (w.len != 0) return EINVAL;
      if (w.data > 0xffffffff) return ENOENT;
      attr.object = file.objects.find(static_cast<u32>(w.data));
      if (spec.kind == AttrSpec::Kind::object) return check_use(attr.object, spec.object_class);
      if (attr.object == nullptr) return ENOENT;
      return attr.object->object_class == spec.object_class ? 0 : EINVAL;
    }
    case AttrSpec::Kind::channel_fd: {
      if (w.len != 0 || w.data_s64 != static_cast<int>(w.data_s64)) return EINVAL;
      attr.channel = file.channel(static_cast<int>(w.data_s64), spec.channel_kind);
      return attr.channel != nullptr ? 0 : EBADF;
    }
    case AttrSpec::Kind::created:
    case AttrSpec::Kind::created_fd: return w.len != 0 ? EINVAL : 0;
  }
  return EINVAL;
}

const Attrs::Attr *Attrs::find(u16 id) const {
  for (const Attr &a : attrs_)
    if (a.known && a.wire.attr_id == id) return &a;
  return nullptr;
}

Object *Attrs::find_object(u16 id) const {
  const Attr *a = find(id);
  return a != nullptr ? a->object : nullptr;
}

EventChannel *Attrs::channel(u16 id) const {
  const Attr *a = find(id);
  return a != nullptr ? a->channel : nullptr;
}

u32 Attrs::length(u16 id) const {
  const Attr *a = find(id);
  return a != nullptr ? a->wire.len : 0;
}

int Attrs::read(u16 id, void *to, u32 size) const {
  const Attr *a = find(id);
  if (a == nullptr) return ENOENT;
  const u32 n = std::min<u32>(size, a->wire.len);
  if (n == 0) return 0;
  if (a->wire.len <= inline_bytes) {
    std::memcpy(to, &a->wire.data, n);
    return 0;
  }
  return read_application(a->wire.data, to, n) ? 0 : EFAULT;
}

bool Attrs::tail_is_zero(const Attr &attr, u32 offset) const {
  if (attr.wire.len <= offset) return true;
  std::vector<u8> rest(attr.wire.len - offset);
  if (attr.wire.len <= inline_bytes)
    std::memcpy(rest.data(), reinterpret_cast<const u8 *>(&attr.wire.data) + offset, rest.size());
  else if (!read_application(attr.wire.data + offset, rest.data(), rest.size())) return false;
  return std::all_of(rest.begin(), rest.end(), [](u8 b) { return b == 0; });
}

bool Attrs::cleared_from(u16 id, u32 offset) const {
  const Attr *a = find(id);
  return a == nullptr || tail_is_zero(*a, offset);
}

int Attrs::constant(u16 id, u64 &value) const {
  // The value is in the attribute whatever `len` says: 0 for constants.
  const Attr *a = find(id);
  if (a == nullptr) return ENOENT;
  value = a->wire.data;
  return 0;
}

int Attrs::flags(u16 id, u32 allowed, u32 &value) const {
  value = 0;
  const Attr *a = find(id);
  if (a == nullptr) return 0;
  u64 wide = a->wire.data;
  if (a->wire.len == 4) wide &= 0xffffffff;
  else if (a->wire.len != 8) return EINVAL;
  if ((wide & ~u64{allowed}) != 0) return EINVAL;
  value = static_cast<u32>(wide);
  return 0;
}

int Attrs::bytes(u16 id, std::vector<u8> &value, size_t limit) const {
  value.assign(std::min<size_t>(length(id), limit), 0);
  return read(id, value.data(), static_cast<u32>(value.size()));
}

int Attrs::write(u16 id, const void *value, u32 size) const {
  const Attr *a = find(id);
  if (a == nullptr) return 0;
  const u32 n = std::min<u32>(size, a->wire.len);
  if (n != 0 && !write_application(a->wire.data, value, n)) return EFAULT;
  if (a->wire.len > n) {
    const std::vector<u8> zeros(a->wire.len - n);
    if (!write_application(a->wire.data + n, zeros.data(), zeros.size())) return EFAULT;
  }
  return mark_written(id);
}

const ib_uverbs_attr *Attrs::wire(u16 id) const {
  const Attr *a = find(id);
  return a != nullptr ? &a->wire : nullptr;
}

int Attrs::mark_written(u16 id) const {
  const Attr *a = find(id);
  if (a == nullptr) return 0;
  const u16 with_flag = a->wire.flags | UVERBS_ATTR_F_VALID_OUTPUT;
  return write_application(a->user + offsetof(ib_uverbs_attr, flags), &with_flag, sizeof with_flag)
             ? 0
             : EFAULT;
}

int Attrs::publish(u16 id, i64 value) const {
  const Attr *a = find(id);
  if (a == nullptr) return EINVAL;
  return write_application(a->user + offsetof(ib_uverbs_attr, data_s64), &value, sizeof value)
             ? 0
             : EFAULT;
}

namespace {

void copy_and_clear(const std::vector<u8> &from, void *to, u32 size) {
  std::memset(to, 0, size);
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

int read_request(const Attrs &attrs, void *to, u32 size) {
  std::vector<u8> data;
  if (const int error = attrs.bytes(UVERBS_ATTR_CORE_IN, data, size); error != 0 && error != ENOENT)
    return error;
  copy_and_clear(data, to, size);
  return attrs.cleared_from(UVERBS_ATTR_CORE_IN, size) ? 0 : EOPNOTSUPP;
}

int write_response(const Attrs &attrs, const void *from, u32 size) {
  return attrs.write(UVERBS_ATTR_CORE_OUT, from, size);
}

u32 response_length(const Attrs &attrs, u32 size) {
  return std::min(attrs.length(UVERBS_ATTR_CORE_OUT), size);
}

int read_driver_data(const Attrs &attrs, void *to, u32 size, u32 minimum, int tail_error) {
  if (attrs.length(UVERBS_ATTR_UHW_IN) < minimum) return EINVAL;
  std::vector<u8> data;
  if (const int error = attrs.bytes(UVERBS_ATTR_UHW_IN, data, size); error != 0 && error != ENOENT)
    return error;
  copy_and_clear(data, to, size);
  return attrs.cleared_from(UVERBS_ATTR_UHW_IN, size) ? 0 : tail_error;
}

u32 driver_response_room(const Attrs &attrs) { return attrs.length(UVERBS_ATTR_UHW_OUT); }

}  // namespace softhca::uverbs
