// Structures, their members and enumerations, of which the tables have rows at most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "table/compat.h"

namespace ibvexp::tool {

struct TypeInfo {
  enum class Kind : std::uint8_t { structure, member, enumeration };
  struct Part {
    std::string name;
    const Feature *row;  // null: it has none
    std::string modern;  // where there is no row: as below
  };

  std::string_view name;
  Kind kind;
  std::vector<std::string_view> taken_by, part_of;
  std::string modern;       // what ibvexp migrate writes; empty: nothing, or the same name
  std::vector<Part> parts;  // members of a structure, or values
};

constexpr std::string_view name_of(TypeInfo::Kind kind) {
  return kind == TypeInfo::Kind::structure ? "structure"
         : kind == TypeInfo::Kind::member  ? "member"
                                           : "enumeration";
}

// NAME is ibv_exp_x, or ibv_exp_x.member, of which the latter may have a row, too.
std::optional<TypeInfo> find_type(std::string_view name);

// A member of a member has two names, ibv_exp_device_attr.ooo_caps.rc_caps and
// ibv_exp_ooo_caps.rc_caps: that which has a row, else the latter. Other names as they are.
std::string name_in_matrix(std::string_view name);

// All names that it finds.
std::vector<std::string> type_names();

// The structures that have a member of that name, which may be a path.
std::vector<std::string_view> structures_with(std::string_view member);

}  // namespace ibvexp::tool
