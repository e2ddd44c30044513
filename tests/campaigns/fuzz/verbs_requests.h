// Structures for calls, by their recorded layouts: objects where objects are named, numbers
// of any size, and now and then something else in either place.
#pragma once

#include <memory>

#include "layouts.h"
#include "request_seeds.h"
#include "verbs_objects.h"

namespace fuzz {

struct Shape;

struct Field {
  enum What : std::uint8_t {
    value,
    count,
    mask,
    address,
    object,
    any_object,
    request,
    queues,
    numbers,
    bytes,
    opaque
  };
  std::uint32_t offset, size;
  What what;
  bool over_pointer;  // a pointer of another member of the union lies there
  Kind kind;          // of objects
  const Shape *to;    // of requests
  std::string path;
};

struct Shape {
  std::size_t size = 0;
  std::vector<Field> fields;
  std::vector<std::vector<std::pair<const Field *, std::uint64_t>>> starts;
  std::size_t behind = 0;  // room that belongs to it
};

class Shapes {
 public:
  explicit Shapes(const char *file) : layouts_(file) {}

  // What is in no list of layouts is room that is not looked at.
  const Shape &of(const std::string &name) {
    const auto known = shapes_.find(name);
    if (known != shapes_.end()) return known->second;
    Shape &shape = shapes_[name];
    const Layout *layout = layouts_.find(name);
    if (layout == nullptr) {
      shape.size = 1024;
      return shape;
    }
    shape.size = layout->size;
    if (name == "ibv_exp_flow_attr") shape.behind = 1024;
    // Programs of today have a few more members.
    if (name.rfind("ibv_exp_", 0) != 0) shape.behind = 64;
    for (const Leaf &leaf : layout->leaves) shape.fields.push_back(field(leaf, *layout));
    shape.starts.emplace_back();
    for (const Seed &seed : seeds) {
      if (name != seed.structure) continue;
      auto &start = shape.starts.emplace_back();
      for (const auto &[path, value] : seed.members)
        for (const Field &field : shape.fields)
          if (field.path == path) start.emplace_back(&field, value);
    }
    return shape;
  }

 private:
  static bool ends(const std::string &text, const char *with) {
    const std::size_t size = std::strlen(with);
    return text.size() >= size && text.compare(text.size() - size, size, with) == 0;
  }
  static Field::What what_of(const Leaf &leaf) {
    const std::string name = leaf.path.substr(leaf.path.rfind('.') + 1);
    if (leaf.pointee == "*") return Field::queues;
    if (leaf.pointee == "size_t") return Field::numbers;
    if (leaf.pointee == "void") {
      if (name == "obj") return Field::any_object;
      return name == "addr" ? Field::address : Field::opaque;
    }
    if (!leaf.pointee.empty()) return Field::bytes;
    if (name.rfind("num", 0) == 0 || ends(name, "_dim") || ends(name, "log_ind_tbl_size"))
      return Field::count;
    if (ends(name, "mask") || ends(name, "flags") || ends(name, "access")) return Field::mask;
    if (ends(name, "addr") && leaf.size == 8) return Field::address;
    return Field::value;
  }
  Field field(const Leaf &leaf, const Layout &layout) {
    Field made{static_cast<std::uint32_t>(leaf.offset),
               static_cast<std::uint32_t>(leaf.size),
               what_of(leaf),
               false,
               Kind::none,
               nullptr,
               leaf.path};
    if (const Kind kind = kind_named(leaf.pointee); kind != Kind::none) {
      made.what = Field::object;
      made.kind = kind;
    } else if (made.what == Field::bytes && layouts_.find(leaf.pointee) != nullptr) {
      made.what = Field::request;
      made.to = &of(leaf.pointee);
    }
    for (const Leaf &other : layout.leaves)
      made.over_pointer |= leaf.pointee.empty() && !other.pointee.empty() &&
                           other.offset < leaf.offset + leaf.size &&
                           leaf.offset < other.offset + other.size;
    return made;
  }

  Layouts layouts_;
  std::map<std::string, Shape> shapes_;
};

// What one call is made with. Memory of each structure's own size, which goes after the
// call: it must not be read later, nor beyond its end.
class Request {
 public:
  // strict: nothing but good objects. followed: an inline has followed the first pointers.
  Request(Bytes &in, World &world, int side, bool strict)
      : in_(in), world_(world), side_(side), strict_(strict) {}

  bool followed = false;
  bool is_read = false;                      // addresses lead to what is there
  bool ending = false;                       // the call ends what it names
  static constexpr std::size_t longest = 8;  // lists

  std::uint8_t *room(std::size_t size) {
    blocks_.push_back(std::make_unique<std::uint8_t[]>(size));
    return blocks_.back().get();
  }

  // An object, mostly one that is as it should be.
  void *object(Kind kind, bool not_null = false, bool may_be_stale = true) {
    const std::uint8_t how = in_.take<std::uint8_t>();
    const bool ends = ending && fuzz::number(kind) < fuzz::number(Kind::ibv_context);
    void *good = ends ? world_.transient(kind, side_, how & 7) : world_.good(kind, side_, how & 7);
    if (strict_ || how < 224) return good;
    if (how < 232) return not_null ? good : nullptr;
    if (how < 244)
      return ends ? world_.transient(kind, 1 - side_, how & 7)
                  : world_.good(kind, 1 - side_, how & 7);
    void *gone = is_own(kind) || (has_front(kind) && may_be_stale) ? world_.stale(kind) : nullptr;
    if (is_own(kind) && (gone == nullptr || how > 250)) return world_.nobodys(side_);
    return gone != nullptr ? gone : good;
  }

  // Below 2^30, or so far up that nothing is there.
  std::uint64_t number(std::size_t size) {
    const unsigned bits = static_cast<unsigned>(size) * 8;
    const std::uint64_t largest = ~std::uint64_t{0} >> (64 - bits);
    switch (in_.take<std::uint8_t>() % 8) {
      case 0: return largest;
      case 1: return largest / 2 + in_.take<std::uint8_t>() % 2;
      case 2: return std::uint64_t{1} << in_.take<std::uint8_t>() % std::min(bits, 30u);
      case 3: return in_.take<std::uint32_t>() & largest & 0x3fffffff;
      case 4: return name_of_something() & largest;
      default: return in_.take<std::uint8_t>() % 16;
    }
  }
  // Of a list that has that many, or of none.
  std::uint64_t count(std::size_t size) {
    const std::uint8_t how = in_.take<std::uint8_t>();
    const std::uint64_t largest = ~std::uint64_t{0} >> (64 - size * 8);
    if (how < 240 || size == 1) return how % (longest + 1);
    return how < 248 ? largest : largest / 2;
  }

  std::uint8_t *structure(const Shape &shape, int depth, bool first = false, std::size_t many = 1) {
    std::uint8_t *at = room(shape.size * many + shape.behind);
    for (std::size_t i = 0; i < many; ++i) fill(at + i * shape.size, shape, depth, first);
    return at;
  }

  std::uint64_t address() {
    const std::uint8_t how = in_.take<std::uint8_t>();
    if (how < 8 && !is_read) return number(8);
    return reinterpret_cast<std::uintptr_t>(world_.buffer) + (how < 128 ? 0 : in_.below(4096));
  }

  std::uint64_t *list_of_numbers() {
    auto *list = reinterpret_cast<std::uint64_t *>(room(longest * sizeof(std::uint64_t)));
    for (std::size_t i = 0; i < longest; ++i) list[i] = number(8);
    return list;
  }
  template <class T>
  T *good() {
    return world_.good<T>(side_, in_.take<std::uint8_t>());
  }

  template <class T>
  static void put(std::uint8_t *at, std::size_t offset, T value) {
    std::memcpy(at + offset, &value, sizeof(value));
  }

 private:
  // Numbers of queue pairs, keys of memory.
  std::uint32_t name_of_something() {
    if (in_.take<std::uint8_t>() % 2 != 0) {
      const auto *mr = world_.good<::ibv_mr>(side_, in_.take<std::uint8_t>());
      return mr != nullptr ? mr->rkey : 0;
    }
    const auto *qp = world_.good<::ibv_qp>(side_, in_.take<std::uint8_t>());
    return qp != nullptr ? qp->qp_num : 0;
  }

  std::uint64_t pointer(const Field &field, int depth, bool first) {
    const bool is_followed = followed && first && (field.path == "pd" || field.path == "mw");
    switch (field.what) {
      case Field::object:
        return reinterpret_cast<std::uintptr_t>(object(field.kind, is_followed, !is_followed));
      case Field::any_object: {
        static constexpr Kind any[] = {Kind::ibv_qp, Kind::ibv_cq, Kind::ibv_exp_wq, Kind::ibv_mr,
                                       Kind::ibv_pd};
        return reinterpret_cast<std::uintptr_t>(object(any[in_.below(5)]));
      }
      case Field::request:
        if (depth == 0 || in_.take<std::uint8_t>() > 250) return 0;
        return reinterpret_cast<std::uintptr_t>(
            structure(*field.to, depth - 1, false, is_list(field) ? longest : 1));
      case Field::queues: {
        // As many as a table may have at most; all but a few are missing.
        auto *list = reinterpret_cast<void **>(room(sizeof(void *) << 16));
        for (std::size_t i = 0; i < longest; ++i) list[i] = object(Kind::ibv_exp_wq);
        return reinterpret_cast<std::uintptr_t>(list);
      }
      case Field::numbers: return reinterpret_cast<std::uintptr_t>(list_of_numbers());
      case Field::address: return address();
      case Field::bytes:
      case Field::opaque: return reinterpret_cast<std::uintptr_t>(world_.buffer);
      default: return 0;
    }
  }
  static bool is_list(const Field &field) {
    return field.path.find("list") != std::string::npos ||
           field.path.find("blocks") != std::string::npos;
  }

  void fill(std::uint8_t *at, const Shape &shape, int depth, bool first) {
    for (const Field &field : shape.fields)
      if ((field.what >= Field::object || field.what == Field::address) && field.size == 8 &&
          field.path != "next")
        put(at, field.offset, pointer(field, depth, first));
    const std::uint8_t start = in_.take<std::uint8_t>();
    if (!shape.starts.empty())
      for (const auto &[field, value] : shape.starts[start % shape.starts.size()])
        std::memcpy(at + field->offset, &value, field->size);
    if (shape.fields.empty()) return;
    for (int changes = in_.take<std::uint8_t>() % 6; changes != 0; --changes) {
      const Field &field = shape.fields[in_.below(static_cast<std::uint32_t>(shape.fields.size()))];
      if (field.path == "next" || field.over_pointer || field.what >= Field::object) continue;
      std::uint64_t value = 0;
      switch (field.what) {
        case Field::count: value = count(field.size); break;
        case Field::mask:
          std::memcpy(&value, at + field.offset, field.size);
          value ^= std::uint64_t{1} << in_.take<std::uint8_t>() % (field.size * 8);
          break;
        case Field::address: value = address(); break;
        default: value = number(field.size); break;
      }
      std::memcpy(at + field.offset, &value, field.size);
    }
  }

  Bytes &in_;
  World &world_;
  int side_;
  bool strict_;
  std::vector<std::unique_ptr<std::uint8_t[]>> blocks_;
};

}  // namespace fuzz
