// The scheduling elements of CREATE_GENERAL_OBJECT (mlx5dv_sched_node, mlx5dv_sched_leaf).
#pragma once

#include "model/schedule.h"
#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

int schedule_create(File &, Attrs &, Command &);
int schedule_modify(const Attrs &, Command &, Object *);
// The leaf of that number; nullptr for 0. False: there is none.
bool find_schedule(const File &, u32 number, std::shared_ptr<ScheduleElement> &);

}  // namespace softhca::uverbs
