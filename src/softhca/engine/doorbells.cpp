#include "engine/doorbells.h"

#include <algorithm>
#include <vector>

#include "base/types.h"
#include "engine/traps.h"
#include "model/device.h"

namespace softhca {

namespace {

// Two registers of bf_reg_size (512) bytes, each of two buffers written in turn.
constexpr u32 first_register = 0x800, register_stride = 0x100;
constexpr size_t registers = 4;
// A context has five such pages, and one for every thread domain: they are
// looked at in turn, so that many cost no more than few.
constexpr size_t pages_per_step = 2;

struct alignas(64) Page {  // found by a shift
  const u8 *page;
  u64 seen[registers] = {};
};

std::vector<Page> &pages() {
  static auto &list = *new std::vector<Page>;
  return list;
}
size_t g_cursor;

u64 read_register(const u8 *page, size_t i) {
  return __atomic_load_n(reinterpret_cast<const u64 *>(page + first_register + i * register_stride),
                         __ATOMIC_RELAXED);
}

// What nearly every look finds, in as few instructions as it takes.
bool untouched(const Page &p) {
  static_assert(registers == 4);
  return ((read_register(p.page, 0) ^ p.seen[0]) | (read_register(p.page, 1) ^ p.seen[1]) |
          (read_register(p.page, 2) ^ p.seen[2]) | (read_register(p.page, 3) ^ p.seen[3])) == 0;
}

// Whether its doorbell record is already to be seen does not matter: the QP is
// looked at for a while.
void wake(u32 qpn, u64 now_ns) {
  const auto &qps = process().qps;
  const auto it = qps.find(qpn);
  if (it == qps.end()) return;
  if (it->second->hot) it->second->last_activity_ns = now_ns;
  else qp_wake(*it->second);
}

// What was written between the last look and the removal of the page is lost;
// the doorbell records are looked at behind it.
void fill(u8 *page) {
  for (Page &p : pages())
    if (p.page == page)
      for (size_t i = 0; i < registers; ++i) p.seen[i] = read_register(page, i);
}

}  // namespace

void doorbells_add(u8 *page, const u8 *instead) {
  pages().push_back({page});
  fill(page);
  traps_need(page, fill, instead);
}

void doorbells_remove(const u8 *page) {
  auto &list = pages();
  const auto it =
      std::find_if(list.begin(), list.end(), [&](const Page &p) { return p.page == page; });
  if (it != list.end()) list.erase(it);
  traps_need_not(page);
}

void doorbells_forget() { pages().clear(); }

void doorbells_look(u64 now_ns) {
  auto &list = pages();
  const size_t n = list.size();
  for (size_t left = std::min(n, pages_per_step); left > 0; --left) {
    if (++g_cursor >= n) g_cursor = 0;
    Page &p = list[g_cursor];
    if (untouched(p)) continue;
    for (size_t i = 0; i < registers; ++i) {
      const u64 raw = read_register(p.page, i);
      if (raw == p.seen[i]) continue;
      p.seen[i] = raw;
      wake(swap32(static_cast<u32>(raw >> 32)) >> 8, now_ns);
    }
  }
}

}  // namespace softhca
