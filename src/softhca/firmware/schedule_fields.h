// The scheduling element of CREATE_GENERAL_OBJECT and MODIFY_GENERAL_OBJECT.
#pragma once

#include "firmware/command.h"
#include "model/schedule.h"

namespace softhca::firmware {

// sched_elem of mlx5_ifc.h behind the header, in bytes.
constexpr u32 schedule_parent_at = 56, schedule_end = 76;

// Whether it is one of the network card, with the one way to divide bandwidth that the
// device has. The box has schedule_end bytes at least, here and below.
bool schedule_known(const Command &);
// Whether the element is one of queues, with no element below.
bool schedule_leaf(const Command &);
// Whether the command selects any attribute.
bool schedule_selects(const Command &);
void schedule_apply(const Command &, ScheduleElement &);

}  // namespace softhca::firmware
