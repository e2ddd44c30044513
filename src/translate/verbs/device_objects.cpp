#include "translate/verbs/device_objects.h"

#include <cerrno>
#include <map>
#include <optional>
#include <string>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "base/real.h"
#include "translate/convert/umr_limits.h"
#include "translate/verbs/cross_channel.h"
#include "translate/verbs/hca_caps.h"
#include "translate/verbs/indirect_key.h"
#include "translate/verbs/qp_make.h"

namespace ibvexp::translate {

namespace {

struct Known {
  std::optional<bool> dc, largest_key, masters;
};

// By the device's name.
struct Devices {
  Mutex mutex;
  std::map<std::string, Known> known;
};
Devices &devices() {
  static Devices &all = *new Devices;
  return all;
}

void free_cq(ibv_cq *cq) { real().ibv_destroy_cq(cq); }
void free_qp(ibv_qp *qp) { real().ibv_destroy_qp(qp); }

int errno_or(int otherwise) { return errno != 0 ? errno : otherwise; }

// 0, or why not.
int make_initiator(ContextState &state) {
  const Owned<ibv_pd, ibv_dealloc_pd> pd(ibv_alloc_pd(state.context));
  const Owned<ibv_cq, free_cq> cq(
      pd != nullptr ? real().ibv_create_cq(state.context, 1, nullptr, nullptr, 0) : nullptr);
  if (cq == nullptr) return errno_or(ENOMEM);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.cap.max_send_wr = attr.cap.max_send_sge = 1;
  attr.qp_type = static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI);
  ModernQpInit modern = to_modern(attr, pd.get());
  const Owned<ibv_qp, free_qp> qp(make_qp(state, modern, {}));
  return qp != nullptr ? 0 : errno_or(EINVAL);
}

int make_largest_key(ContextState &state) {
  const Owned<ibv_pd, ibv_dealloc_pd> pd(ibv_alloc_pd(state.context));
  if (pd == nullptr) return errno_or(ENOMEM);
  std::uint32_t entries = largest_key;
  const Owned<mlx5dv_mkey, mlx5dv_destroy_mkey> mkey(make_mkey(pd.get(), entries));
  return mkey != nullptr ? 0 : errno_or(EINVAL);
}

// What is known of the device, or is found out now. Reasons that may pass are not kept.
bool find_out(ContextState &state, std::optional<bool> Known::*what,
              std::optional<bool> (*ask)(ibv_context *), int (*make)(ContextState &)) {
  if (!mlx5dv_is_supported(state.context->device)) return false;
  const std::string name = ibv_get_device_name(state.context->device);
  {
    const MutexGuard guard(devices().mutex);
    if (const std::optional<bool> known = devices().known[name].*what) return *known;
  }
  const KeepErrno keep;
  std::optional<bool> found = ask(state.context);
  if (!found) {
    const int error = make(state);
    if (error == 0) found = true;
    else if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS) found = false;
    else return false;
  }
  const MutexGuard guard(devices().mutex);
  devices().known[name].*what = found;
  return *found;
}

}  // namespace

bool has_dc(ContextState &state) {
  return find_out(state, &Known::dc, &reports_dc, &make_initiator);
}

bool makes_indirect_keys(ContextState &state) {
  return find_out(
      state, &Known::largest_key,
      [](ibv_context *context) { return reports_key_entries(context, largest_key); },
      &make_largest_key);
}

bool makes_masters(ContextState &state) {
  return find_out(
      state, &Known::masters, [](ibv_context *) { return std::optional<bool>(); }, &make_master);
}

}  // namespace ibvexp::translate
