#include "firmware/schedule_fields.h"

namespace softhca::firmware {

namespace {

enum ElementType : u8 { scheduler = 0, queue_group = 4 };
constexpr u8 nic_hierarchy = 3;
constexpr u64 select_share = 1, select_limit = 2;
constexpr u32 select_at = 16, hierarchy_at = 24, type_at = 48, tsar_type_at = 53, share_at = 68,
              limit_at = 72;

u64 selected(const Command &c) { return load_be64(c.in.data() + select_at); }

}  // namespace

bool schedule_known(const Command &c) {
  const u8 *in = c.in.data();
  return in[hierarchy_at] == nic_hierarchy &&
         (in[type_at] == scheduler || in[type_at] == queue_group) && in[tsar_type_at] == 0 &&
         (selected(c) & ~(select_share | select_limit)) == 0;
}

bool schedule_leaf(const Command &c) { return c.in[type_at] == queue_group; }
bool schedule_selects(const Command &c) { return selected(c) != 0; }

void schedule_apply(const Command &c, ScheduleElement &e) {
  if ((selected(c) & select_share) != 0) e.share = load_be32(c.in.data() + share_at);
  if ((selected(c) & select_limit) != 0) e.max_mbps = load_be32(c.in.data() + limit_at);
}

}  // namespace softhca::firmware
