#include "tool/matrix_types.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace ibvexp::tool {

namespace {

struct Member {
  std::string_view structure, path, type;
};
struct Takes {
  std::string_view verb, structure;
};
struct Modern {
  std::string_view type, path, modern;  // path: empty for the type itself
};

#define API_STRUCTURE(...)
#define API_MEMBER(...)
#define API_TAKES(...)

constexpr auto structures = std::to_array<std::string_view>({
#undef API_STRUCTURE
#define API_STRUCTURE(name) #name,
#include "api_structures.inc"
#undef API_STRUCTURE
#define API_STRUCTURE(...)
});

constexpr auto members = std::to_array<Member>({
#undef API_MEMBER
#define API_MEMBER(structure, path, type) {#structure, path, type},
#include "api_structures.inc"
#undef API_MEMBER
#define API_MEMBER(...)
});

constexpr auto takes = std::to_array<Takes>({
#undef API_TAKES
#define API_TAKES(verb, structure) {#verb, #structure},
#include "api_structures.inc"
});

constexpr auto moderns = std::to_array<Modern>({
#define MIGRATE_TYPE(type, modern) {#type, "", modern},
#define MIGRATE_MEMBER(type, path, modern) {#type, path, modern},
#include "tool/migrate/rules.def"
});

// What stands behind STRUCTURE.PATH in NAME: nothing if it is that member, else a dot and a
// member of it. Null if NAME does not begin so.
std::optional<std::string_view> rest_of(std::string_view name, const Member &m) {
  const std::size_t size = m.structure.size() + 1 + m.path.size();
  if (name.size() < size || !name.starts_with(m.structure) || name[m.structure.size()] != '.' ||
      name.substr(m.structure.size() + 1, m.path.size()) != m.path)
    return {};
  return name.substr(size);
}

bool is_structure(std::string_view type) {
  return std::ranges::find(structures, type) != structures.end();
}

// By the innermost structure that has a name: ibv_exp_ooo_caps.rc_caps for
// ibv_exp_device_attr.ooo_caps.rc_caps.
std::string innermost(std::string_view name) {
  for (const Member &m : members)
    if (const auto rest = rest_of(name, m); rest && rest->starts_with('.') && is_structure(m.type))
      return innermost(fmt::format("{}{}", m.type, *rest));
  return std::string(name);
}

template <class List, class Value>
void add_once(List &list, const Value &value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

std::string modern_of(std::string_view type, std::string_view path) {
  const auto rule = [&](std::string_view p) -> std::string_view {
    const auto found = std::ranges::find_if(
        moderns, [&](const Modern &m) { return m.type == type && m.path == p; });
    return found == moderns.end() ? "" : found->modern;
  };
  const std::string_view of_type = rule(""), of_member = path.empty() ? "" : rule(path);
  if (of_type.empty() || path.empty()) return std::string(of_type);
  return of_member.empty() ? std::string() : fmt::format("{}.{}", of_type, of_member);
}

std::vector<TypeInfo::Part> rows_owned_by(std::string_view owner) {
  std::vector<TypeInfo::Part> out;
  for (const Feature &f : features)
    if (f.owner == owner) out.push_back({std::string(f.name), &f, ""});
  return out;
}

// Members that have no row have one for each bit or value at most.
std::vector<TypeInfo::Part> parts_of(std::string_view structure) {
  std::vector<TypeInfo::Part> out = rows_owned_by(structure);
  for (const Member &m : members) {
    std::string name = fmt::format("{}.{}", structure, m.path);
    if (m.structure != structure || m.path.find('.') != m.path.npos ||
        std::ranges::any_of(out, [&](const TypeInfo::Part &p) {
          return p.name == name || p.name.starts_with(name + ".");
        }))
      continue;
    out.push_back({std::move(name), nullptr, modern_of(structure, m.path)});
  }
  return out;
}

TypeInfo structure_info(std::string_view name) {
  TypeInfo out{name, TypeInfo::Kind::structure, {}, {}, modern_of(name, ""), parts_of(name)};
  for (const Takes &t : takes)
    if (t.structure == name) out.taken_by.push_back(t.verb);
  for (const Member &m : members)
    if (m.type == name && m.structure != name) add_once(out.part_of, m.structure);
  return out;
}

}  // namespace

std::optional<TypeInfo> find_type(std::string_view name) {
  if (const auto s = std::ranges::find(structures, name); s != structures.end())
    return structure_info(*s);
  for (const Member &m : members) {
    if (rest_of(name, m) != "") continue;
    TypeInfo out = structure_info(m.structure);
    return TypeInfo{name,          TypeInfo::Kind::member,         std::move(out.taken_by),
                    {m.structure}, modern_of(m.structure, m.path), rows_owned_by(m.type)};
  }
  std::vector<TypeInfo::Part> values = rows_owned_by(name);
  if (values.empty()) return {};
  TypeInfo out{name, TypeInfo::Kind::enumeration, {}, {}, modern_of(name, ""), std::move(values)};
  for (const Member &m : members)
    if (m.type == name) add_once(out.part_of, m.structure);
  return out;
}

std::string name_in_matrix(std::string_view name) {
  if (std::ranges::find(features, name, &Feature::name) != std::end(features))
    return std::string(name);
  std::string inner = innermost(name);
  for (const Feature &f : features)
    if (innermost(f.name) == inner) return std::string(f.name);
  return inner;
}

std::vector<std::string> type_names() {
  std::vector<std::string> out(structures.begin(), structures.end());
  for (const Member &m : members) out.push_back(fmt::format("{}.{}", m.structure, m.path));
  for (const Feature &f : features) add_once(out, std::string(f.owner));
  return out;
}

std::vector<std::string_view> structures_with(std::string_view member) {
  std::vector<std::string_view> out;
  for (const Member &m : members)
    if (m.path == member) out.push_back(m.structure);
  return out;
}

}  // namespace ibvexp::tool
