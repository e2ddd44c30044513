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

int errno_or(int otherwise) { return errno != 0 ? errno : otherwise; }

// Makes an object and destroys it again: 0, or why not.
using Try = int (*)(ContextState &, ibv_pd *, ibv_cq *);

int try_initiator(ContextState &state, ibv_pd *pd, ibv_cq *cq) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_send_sge = 1;
  attr.qp_type = static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI);
  ModernQpInit modern = to_modern(attr, pd);
  const OwnedReal<ibv_qp> qp(make_qp(state, modern, {}));
  return qp != nullptr ? 0 : errno_or(EINVAL);
}

int try_largest_key(ContextState &, ibv_pd *pd, ibv_cq *) {
  std::uint32_t entries = largest_key;
  const Owned<mlx5dv_mkey, mlx5dv_destroy_mkey> mkey(make_mkey(pd, entries));
  return mkey != nullptr ? 0 : errno_or(EINVAL);
}

int run(Try make, ContextState &state) {
  const Owned<ibv_pd, ibv_dealloc_pd> pd(ibv_alloc_pd(state.context));
  const OwnedReal<ibv_cq> cq(
      pd != nullptr ? real().ibv_create_cq(state.context, 1, nullptr, nullptr, 0) : nullptr);
  return cq != nullptr ? make(state, pd.get(), cq.get()) : errno_or(ENOMEM);
}

// What is known of the device, or is found out now. Reasons that may pass are not kept.
bool find_out(ContextState &state, std::optional<bool> Known::*what,
              std::optional<bool> (*ask)(ibv_context *), Try make) {
  if (!mlx5dv_is_supported(state.context->device)) return false;
  const std::string name = ibv_get_device_name(state.context->device);
  {
    const MutexGuard guard(devices().mutex);
    if (const std::optional<bool> known = devices().known[name].*what) return *known;
  }
  const KeepErrno keep;
  std::optional<bool> found = ask(state.context);
  if (!found) {
    const int error = run(make, state);
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
  return find_out(state, &Known::dc, &reports_dc, &try_initiator);
}

bool makes_indirect_keys(ContextState &state) {
  return find_out(
      state, &Known::largest_key,
      [](ibv_context *context) { return reports_key_entries(context, largest_key); },
      &try_largest_key);
}

bool makes_masters(ContextState &state) {
  return find_out(
      state, &Known::masters, [](ibv_context *) { return std::optional<bool>(); }, &try_master);
}

}  // namespace ibvexp::translate
