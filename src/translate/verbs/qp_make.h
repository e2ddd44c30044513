// Making rdma-core's queue pair: for legacy programs large enough for what the legacy provider
// granted.
#pragma once

#include <optional>

#include "table/options.h"
#include "translate/convert/legacy_grants.h"
#include "translate/convert/qp_convert.h"
#include "translate/queue/front.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// What decides about the size of an entry in the send queue, beside ibv_qp_cap.
struct EntryRoom {
  queue::By by = queue::By::libmlx5;   // who writes the entries
  std::uint32_t key_change_bytes = 0;  // of the largest key change; 0: none is posted
  std::optional<LegacyExtra> extra{};  // none: as large as rdma-core makes it
};

// Null and errno. modern.attr.cap is what was granted, and modern.builders says whether requests
// have to go through libmlx5's builders.
ibv_qp *make_qp(ContextState &state, ModernQpInit &modern, const EntryRoom &room);

// Whether answers of masked atomics would come in completions, where the engine does not look for
// them: the kernel lets the device do so for RC, and for initiators on request.
inline bool must_not_scatter_answers(ibv_qp_type type) {
  return type == IBV_QPT_RC && switched_on(Beyond::masked_atomics) &&
         info(Beyond::masked_atomics).status == SwitchStatus::done;
}

// By ibv_create_qp() alone, as large as the legacy provider's; asked.cap is what was granted. Null
// and EINVAL: make_qp() has other sizes to try.
ibv_qp *make_plain_as_legacy(ContextState &state, ibv_pd *pd, ibv_qp_init_attr &asked);

}  // namespace ibvexp::translate
