// Port and device events that the configuration injects: they go to the async
// channel of every open context.
#include <string_view>

#include "base/log.h"
#include "engine/clock.h"
#include "fault/faults.h"
#include "model/device.h"
#include "model/path_migration.h"

namespace softhca {

namespace {

struct Row {
  std::string_view name;
  EventType type;
};
constexpr Row rows[] = {
    {"DEVICE_FATAL", EventType::device_fatal},
    {"PORT_ACTIVE", EventType::port_active},
    {"PORT_ERR", EventType::port_err},
    {"LID_CHANGE", EventType::lid_change},
    {"PKEY_CHANGE", EventType::pkey_change},
    {"SM_CHANGE", EventType::sm_change},
    {"CLIENT_REREGISTER", EventType::client_reregister},
    {"GID_CHANGE", EventType::gid_change},
};

}  // namespace

void raise_injected_events(u64 now_ns) {
  Process &p = process();
  for (;;) {
    const EventFault due = fault_event(now_ns, p.open_ns);
    if (due.name == nullptr) return;
    for (const Row &row : rows) {
      if (row.name != due.name) continue;
      const u64 element = row.type == EventType::device_fatal ? 0 : due.port;
      SOFTHCA_LOG(info, "injected event %s on port %u", due.name, due.port);
      for (EventChannel *channel : p.context_channels) channel->post_async(element, row.type);
      if (row.type == EventType::port_err || row.type == EventType::port_active)
        set_port(due.port, row.type == EventType::port_active);
      if (p.port_listener) p.port_listener(due.port, row.type);
    }
  }
}

}  // namespace softhca
