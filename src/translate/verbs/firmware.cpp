#include "translate/verbs/firmware.h"

#include <array>

#include "base/keep_errno.h"
#include "base/real.h"

namespace ibvexp::translate {

namespace {

// Boxes in the device's byte order; the opcode has the upper half of the first word.
constexpr std::uint32_t modify_cq = 0x403u << 16, query_dct = 0x713u << 16;
constexpr std::uint32_t number_bits = 0xffffff;
using Header = std::array<__be32, 4>;

}  // namespace

Result<void> change_overrun(ibv_cq *cq, std::uint32_t number, bool ignored) {
  constexpr std::uint32_t select_overrun = 1u << 2, overrun_ignored = 1u << 17;
  struct {
    Header head;
    std::array<__be32, 64> context;  // of which the first word has the flag
  } in{{htobe32(modify_cq), 0, htobe32(number & number_bits), htobe32(select_overrun)},
       {htobe32(ignored ? overrun_ignored : 0)}};
  Header out{};
  return outcome(real().mlx5dv_devx_cq_modify(cq, &in, sizeof(in), out.data(), sizeof(out)));
}

Result<TargetFacts> query_target(ibv_qp *target) {
  const Header in{htobe32(query_dct), 0, htobe32(target->qp_num & number_bits)};
  struct {
    Header head;
    std::array<__be32, 28> context;
  } out{};
  if (const auto asked =
          outcome(real().mlx5dv_devx_qp_query(target, in.data(), sizeof(in), &out, sizeof(out)));
      !asked)
    return asked.failure();
  const auto word = [&](std::size_t at) { return be32toh(out.context[at]); };
  return TargetFacts{static_cast<std::uint8_t>(word(0) >> 24 & 0xf),
                     std::uint64_t{word(8)} << 32 | word(9), word(12)};
}

}  // namespace ibvexp::translate
