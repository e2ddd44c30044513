// The objects of CREATE_GENERAL_OBJECT.
#pragma once

#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

// The object types of the programming interface that the device knows.
inline constexpr u32 object_type_reserved_qpn = 0x2c, object_type_av_qp_mapping = 0x3a,
                     object_type_scheduling_element = 0x26;

// DEVX_OBJ/CREATE of a general object.
int general_object_create(File &, Attrs &, Command &);

}  // namespace softhca::uverbs
