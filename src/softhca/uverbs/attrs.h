// The RDMA_VERBS_IOCTL message: a header and an array of attributes, checked
// against the specification of the method before its handler runs.
//
// Every rule here is that of the kernel (core/uverbs_ioctl.c): lengths,
// trailing zeros, unknown and duplicate attributes, object handles. All
// pointers belong to the application: they are read and written through
// model/memory.h only, so a bad one gives EFAULT.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <cerrno>
#include <span>
#include <type_traits>
#include <vector>

#include "base/types.h"
#include "uverbs/objects.h"

namespace softhca {
class File;
}

namespace softhca::uverbs {

// What one attribute of a method must look like.
struct AttrSpec {
  enum class Kind : u8 {
    in,          // data from the application; up to 8 bytes travel inline
    out,         // buffer of the application
    object,      // handle of an existing object
    destroyed,   // handle of the object to destroy
    created,     // receives the handle of a new object
    channel_fd,  // a descriptor of this file, of that kind
    created_fd,  // receives a new descriptor
  };
  u16 id = 0;
  Kind kind = Kind::in;
  u16 min = 0;
  u16 max = 0xffff;
  bool zero_tail = false;  // may be longer than `max` if the rest is zero
  bool mandatory = true;
  ObjectClass object_class = ObjectClass::none;
  ChannelKind channel_kind{};

  constexpr AttrSpec optional() const {
    AttrSpec s = *this;
    s.mandatory = false;
    return s;
  }
};

// The kernel's spelling of each is named behind it.
template <class T>
constexpr AttrSpec in(u16 id) {  // UVERBS_ATTR_TYPE
  return {id, AttrSpec::Kind::in, sizeof(T), sizeof(T)};
}
template <class T>
constexpr AttrSpec in_struct(u16 id, u16 min) {  // UVERBS_ATTR_STRUCT
  return {id, AttrSpec::Kind::in, min, sizeof(T), true};
}
constexpr AttrSpec in_bytes(u16 id, u16 min) {  // UVERBS_ATTR_MIN_SIZE
  return {id, AttrSpec::Kind::in, min};
}
constexpr AttrSpec constant(u16 id) {  // UVERBS_ATTR_CONST_IN
  return {id, AttrSpec::Kind::in, 0, 8};
}
constexpr AttrSpec flags(u16 id) {  // UVERBS_ATTR_FLAGS_IN
  return {id, AttrSpec::Kind::in, 4, 8, false, false};
}
template <class T>
constexpr AttrSpec out(u16 id) {
  return {id, AttrSpec::Kind::out, sizeof(T), sizeof(T)};
}
template <class T>
constexpr AttrSpec out_struct(u16 id, u16 min) {
  return {id, AttrSpec::Kind::out, min, sizeof(T), true};
}
constexpr AttrSpec out_bytes(u16 id, u16 min) { return {id, AttrSpec::Kind::out, min}; }
constexpr AttrSpec object(u16 id, ObjectClass c) {
  return {id, AttrSpec::Kind::object, 0, 0, false, true, c};
}
constexpr AttrSpec destroyed(u16 id, ObjectClass c) {
  return {id, AttrSpec::Kind::destroyed, 0, 0, false, true, c};
}
constexpr AttrSpec created(u16 id) { return {id, AttrSpec::Kind::created, 0, 0}; }
constexpr AttrSpec channel_of(u16 id, ChannelKind kind) {
  return {id, AttrSpec::Kind::channel_fd, 0, 0, false, true, ObjectClass::none, kind};
}
constexpr AttrSpec channel_fd(u16 id) { return channel_of(id, ChannelKind::completion).optional(); }
constexpr AttrSpec async_fd(u16 id) { return channel_of(id, ChannelKind::async).optional(); }
constexpr AttrSpec created_fd(u16 id) { return {id, AttrSpec::Kind::created_fd, 0, 0}; }

#define SOFTHCA_END_OF(type, member) \
  static_cast<::softhca::u16>(offsetof(type, member) + sizeof(type::member))

// ib_uverbs_ioctl_hdr without the array behind it.
struct MessageHeader {
  u16 length, object_id, method_id, num_attrs;
  u64 reserved1;
  u32 driver_id, reserved2;
};
static_assert(sizeof(MessageHeader) == offsetof(ib_uverbs_ioctl_hdr, attrs));

// One received message. Accessors of optional attributes: an absent input
// leaves the value alone and returns ENOENT, an absent output is a success.
class Attrs {
 public:
  // Copies header and attributes in. 0, EFAULT, EINVAL or EPROTONOSUPPORT.
  int load(const ib_uverbs_ioctl_hdr *from);
  // Checks them against `specs`; objects are looked up in `file`.
  int bind(File &file, std::span<const AttrSpec> specs, bool driver_data);

  const MessageHeader &header() const { return header_; }
  bool has(u16 id) const { return find(id) != nullptr; }
  u32 length(u16 id) const;

  // Input; `value` is zero-filled behind what the application gave.
  template <class T>
  int in(u16 id, T &value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T copy{};
    const int error = read(id, &copy, sizeof copy);
    if (error == 0) value = copy;
    return error;
  }
  // What travels inline cannot fail to be read; absent: 0.
  template <class T>
  T value(u16 id) const {
    static_assert(std::is_unsigned_v<T>);
    T value = 0;
    in(id, value);
    return value;
  }
  int constant(u16 id, u64 &value) const;
  // EINVAL for bits outside `allowed`. Absent: 0 and success.
  int flags(u16 id, u32 allowed, u32 &value) const;
  // The first `limit` bytes.
  int bytes(u16 id, std::vector<u8> &value, size_t limit = 0xffff) const;
  // Whether everything from `offset` on is zero.
  bool cleared_from(u16 id, u32 offset) const;

  // nullptr when absent. The class was checked by bind().
  template <class T>
  T *object(u16 id) const {
    return static_cast<T *>(find_object(id));
  }
  EventChannel *channel(u16 id) const;

  // Output. Copies what fits; clears the rest of a longer buffer.
  template <class T>
  int out(u16 id, const T &value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return write(id, &value, sizeof value);
  }
  int write(u16 id, const void *value, u32 size) const;
  // Lets the application know that there is output. Absent: success.
  int mark_written(u16 id) const;
  // As the application gave it; nullptr when absent.
  const ib_uverbs_attr *wire(u16 id) const;
  // Returns a handle or descriptor in the attribute itself.
  int publish(u16 id, i64 value) const;

 private:
  struct Attr {
    ib_uverbs_attr wire{};
    u64 user = 0;  // address of the attribute in the application
    Object *object = nullptr;
    EventChannel *channel = nullptr;
    bool known = false;  // part of the method
  };
  const Attr *find(u16 id) const;
  Object *find_object(u16 id) const;
  int read(u16 id, void *to, u32 size) const;
  int check(File &file, Attr &attr, const AttrSpec &spec);
  bool tail_is_zero(const Attr &attr, u32 offset) const;

  MessageHeader header_{};
  std::vector<Attr> attrs_;
};

// A method of an ioctl object. Handlers return 0 or an errno.
struct Method {
  u16 object;
  u16 method;
  const char *name;  // "QP/CREATE", see fault/faults.h
  int (*handler)(File &, Attrs &);
  std::span<const AttrSpec> specs;
  bool driver_data = false;  // takes UVERBS_ATTR_UHW_IN and _OUT
};

// A command of the older write() interface, carried by DEVICE/INVOKE_WRITE.
// Its request and response are the attributes CORE_IN and CORE_OUT.
struct WriteCommand {
  u32 number;        // with IB_USER_VERBS_CMD_FLAG_EXTENDED
  const char *name;  // "WRITE/REG_MR"
  u16 min_in;
  u16 min_out;
  int (*handler)(File &, Attrs &);
};

// Request of a write command: zero-filled when shorter, EOPNOTSUPP when longer
// with a non-zero rest (uverbs_request).
int read_request(const Attrs &, void *to, u32 size);
template <class T>
int request(const Attrs &attrs, T &value) {
  return read_request(attrs, &value, sizeof value);
}
int write_response(const Attrs &, const void *from, u32 size);
template <class T>
int respond(const Attrs &attrs, const T &value) {
  return write_response(attrs, &value, sizeof value);
}
// The response_length of an extended reply (uverbs_response_length).
u32 response_length(const Attrs &, u32 size);

// Driver data. `minimum` bytes are required; a non-zero rest is `tail_error`.
int read_driver_data(const Attrs &, void *to, u32 size, u32 minimum, int tail_error);
template <class T>
int driver_request(const Attrs &attrs, T &value, u32 minimum, int tail_error = EINVAL) {
  return read_driver_data(attrs, &value, sizeof value, minimum, tail_error);
}
template <class T>
int driver_respond(const Attrs &attrs, const T &value) {
  constexpr u16 uhw_out = 0x1001;  // UVERBS_ATTR_UHW_OUT
  return attrs.out(uhw_out, value);
}
u32 driver_response_room(const Attrs &);

}  // namespace softhca::uverbs
