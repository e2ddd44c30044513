#include "translate/verbs/erasure_coding.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/keep_errno.h"
#include "trace/diagnose.h"
#include "translate/convert/galois.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId allocating = EntryId::ibv_exp_alloc_ec_calc;
constexpr std::uint64_t block_alignment = 64;

std::uint64_t as_word(int value) { return static_cast<std::uint32_t>(value); }

// As many blocks, and no more.
Result<void> check_list(EntryId entry, const char *list, const ibv_sge *pieces, int count, int most,
                        std::uint64_t bytes) {
  if (pieces == nullptr || count < 1 || count > most)
    return invalid(
        entry, list, as_word(count),
        "null, empty, or more pieces than max_data_sge or max_code_sge of ibv_exp_alloc_ec_calc");
  std::uint64_t length = 0;
  for (const ibv_sge &piece : std::span(pieces, static_cast<std::size_t>(count)))
    length += piece.length;
  if (length != bytes)
    return invalid(entry, list, length,
                   "total length must be block_size times the number of blocks");
  return {};
}

Result<void> check_blocks(EntryId entry, const Calculation &by, const ibv_exp_ec_mem *mem,
                          std::size_t data, std::size_t code) {
  if (mem == nullptr) return invalid(entry, "ec_mem", 0, "must not be null");
  if (mem->block_size <= 0 || mem->block_size % block_alignment != 0)
    return invalid(entry, "block_size", as_word(mem->block_size), "not a positive multiple of 64");
  const auto size = static_cast<std::uint64_t>(mem->block_size);
  if (const auto list = check_list(entry, "data_blocks", mem->data_blocks, mem->num_data_sge,
                                   by.most_data_pieces, data * size);
      !list)
    return list;
  return check_list(entry, "code_blocks", mem->code_blocks, mem->num_code_sge, by.most_code_pieces,
                    code * size);
}

BlockMap read_map(const std::uint8_t *bytes, int count) {
  BlockMap map;
  for (int i = 0; i < count; ++i) map[static_cast<std::size_t>(i)] = bytes[i] != 0;
  return map;
}

// Up to MLNX_OFED 3.2 a word of bits stands where the address is. Linux leaves the first 64 KiB of
// addresses unused (vm.mmap_min_addr).
BlockMap read_lost(const std::uint8_t *bytes, int count) {
  const auto word = reinterpret_cast<std::uintptr_t>(bytes);
  return word < 1u << 16 ? BlockMap(word) : read_map(bytes, count);
}

Result<CodeJob> to_encode(EntryId entry, const Calculation &by, const ibv_exp_ec_mem *mem) {
  if (const auto blocks = check_blocks(entry, by, mem, static_cast<std::size_t>(by.data_blocks),
                                       static_cast<std::size_t>(by.code_blocks));
      !blocks)
    return blocks.failure();
  return CodeJob{CodeJob::Kind::encode, *mem, {}, {}, nullptr, nullptr};
}

Result<CodeJob> to_decode(EntryId entry, const Calculation &by, const ibv_exp_ec_mem *mem,
                          const std::uint8_t *erasures, const std::uint8_t *matrix) {
  auto job = to_encode(entry, by, mem);
  if (!job) return job;
  if (matrix == nullptr) return invalid(entry, "decode_matrix", 0, "must not be null");
  const BlockMap lost = read_lost(erasures, by.data_blocks + by.code_blocks);
  if (lost.none() || lost.count() > static_cast<std::size_t>(by.code_blocks) ||
      (lost >> static_cast<std::size_t>(by.data_blocks + by.code_blocks)).any())
    return invalid(entry, "erasures", lost.count(), "must name 1 to m of the k + m blocks");
  return CodeJob{CodeJob::Kind::decode, *mem, lost, {}, matrix, nullptr};
}

Result<CodeJob> to_update(EntryId entry, const Calculation &by, const ibv_exp_ec_mem *mem,
                          const std::uint8_t *data, const std::uint8_t *code) {
  if (data == nullptr || code == nullptr)
    return invalid(entry, "data_updates or code_updates", 0, "must not be null");
  const BlockMap changed = read_map(data, by.data_blocks), wanted = read_map(code, by.code_blocks);
  if (changed.none() || wanted.none())
    return invalid(entry, "data_updates or code_updates", 0,
                   "must name a data block and a code block");
  const std::size_t out = wanted.count();
  if (const auto blocks = check_blocks(entry, by, mem, out + 2 * changed.count(), out); !blocks)
    return blocks.failure();
  return CodeJob{CodeJob::Kind::update, *mem, changed, wanted, nullptr, nullptr};
}

Result<Calculation *> find(ContextState &state, EntryId entry, const ibv_exp_ec_calc *calc) {
  Calculation *const found = state.calculations.find(calc);
  if (found == nullptr) return invalid(entry, "ec_calc", 0, "of another context, or freed");
  return found;
}

// Makes a job of the arguments. It is calculated at once; with a report, by the thread or by
// ibv_exp_ec_poll().
template <class Make, class... Args>
Result<void> calculate(ContextState &state, EntryId entry, const ibv_exp_ec_calc *calc,
                       std::optional<ibv_exp_ec_comp *> report, Make make, Args... arguments) {
  const auto by = find(state, entry, calc);
  if (!by) return by.failure();
  if (report && (*report == nullptr || (*report)->done == nullptr))
    return invalid(entry, "ec_comp", 0, "null, or without a done function");
  const Result<CodeJob> made = make(entry, *by.value(), arguments...);
  if (!made) return made.failure();
  CodeJob job = made.value();
  if (report) {
    job.report = *report;
    if (!by.value()->add(job)) return Error{ENOMEM};
  } else {
    by.value()->run(job);
  }
  return {};
}

}  // namespace

Result<ibv_exp_ec_calc *> alloc_ec_calc(ContextState &state, ibv_pd *pd,
                                        ibv_exp_ec_calc_init_attr *attr) {
  if (attr == nullptr) return invalid(allocating, "attributes", 0, "must not be null");
  if (const auto bits = check_bits(allocating, "comp_mask", attr->comp_mask,
                                   bits_of<"ibv_exp_ec_calc_attr_comp_mask">());
      !bits)
    return bits.failure();
  const auto has = [&](std::uint32_t bit) { return (attr->comp_mask & bit) != 0; };
  constexpr std::uint32_t needed = IBV_EXP_EC_CALC_ATTR_K | IBV_EXP_EC_CALC_ATTR_M |
                                   IBV_EXP_EC_CALC_ATTR_W | IBV_EXP_EC_CALC_ATTR_ENCODE_MAT;
  if ((attr->comp_mask & needed) != needed || attr->encode_matrix == nullptr)
    return invalid(allocating, "comp_mask", attr->comp_mask,
                   "k, m, w and encode_matrix are required");
  if (!is_symbol_width(attr->w))
    return invalid(allocating, "w", as_word(attr->w), "must be 4 or 8 (bits of a symbol)");
  if (attr->k < 1 || attr->m < 1 || attr->k > 1 << attr->w || attr->m > (1 << attr->w) - attr->k)
    return invalid(allocating, "k", as_word(attr->k),
                   "k and m must be 1 or more, and k + m at most 2^w");
  const std::uint32_t in_flight =
      has(IBV_EXP_EC_CALC_ATTR_MAX_INFLIGHT) ? attr->max_inflight_calcs : 1;
  if (in_flight == 0 || in_flight > max_calculations)
    return invalid(allocating, "max_inflight_calcs", in_flight, "must be 1 to 1024");
  const int data_pieces = has(IBV_EXP_EC_CALC_ATTR_MAX_DATA_SGE) ? attr->max_data_sge : attr->k;
  const int code_pieces = has(IBV_EXP_EC_CALC_ATTR_MAX_CODE_SGE) ? attr->max_code_sge : attr->m;
  if (data_pieces < 1 || code_pieces < 1)
    return invalid(allocating, "max_data_sge or max_code_sge",
                   as_word(data_pieces < 1 ? data_pieces : code_pieces), "must not be 0");

  auto made = std::make_unique<Calculation>();
  made->handle.pd = pd;
  made->data_blocks = attr->k;
  made->code_blocks = attr->m;
  made->symbol_bits = attr->w;
  made->most_data_pieces = data_pieces;
  made->most_code_pieces = code_pieces;
  made->most_in_flight = in_flight;
  made->polled = has(IBV_EXP_EC_CALC_ATTR_POLLING) && attr->polling != 0;
  made->matrix.assign(attr->encode_matrix, attr->encode_matrix + attr->k * attr->m);
  return &state.calculations.add(std::move(made))->handle;
}

Result<void> dealloc_ec_calc(ContextState &state, ibv_exp_ec_calc *calc) {
  constexpr EntryId freeing = EntryId::ibv_exp_dealloc_ec_calc;
  const auto known = find(state, freeing, calc);
  if (!known) return known.failure();
  if (Calculation::reporting() == known.value() && !known.value()->polled)
    return invalid(freeing, "ec_calc", 0, "its own done function cannot free it");
  const auto gone = state.calculations.claim(calc);
  if (!gone) return invalid(freeing, "ec_calc", 0, "another thread frees it");
  gone->finish();
  state.calculations.retire(gone);
  return {};
}

Result<void> ec_encode_sync(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem) {
  return calculate(state, EntryId::ibv_exp_ec_encode_sync, calc, {}, to_encode, mem);
}

Result<void> ec_encode_async(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                             ibv_exp_ec_comp *report) {
  return calculate(state, EntryId::ibv_exp_ec_encode_async, calc, report, to_encode, mem);
}

Result<void> ec_decode_sync(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                            std::uint8_t *lost, std::uint8_t *matrix) {
  return calculate(state, EntryId::ibv_exp_ec_decode_sync, calc, {}, to_decode, mem, lost, matrix);
}

Result<void> ec_decode_async(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                             std::uint8_t *lost, std::uint8_t *matrix, ibv_exp_ec_comp *report) {
  return calculate(state, EntryId::ibv_exp_ec_decode_async, calc, report, to_decode, mem, lost,
                   matrix);
}

Result<void> ec_update_sync(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                            std::uint8_t *changed, std::uint8_t *wanted) {
  return calculate(state, EntryId::ibv_exp_ec_update_sync, calc, {}, to_update, mem, changed,
                   wanted);
}

Result<void> ec_update_async(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                             std::uint8_t *changed, std::uint8_t *wanted, ibv_exp_ec_comp *report) {
  return calculate(state, EntryId::ibv_exp_ec_update_async, calc, report, to_update, mem, changed,
                   wanted);
}

Result<int> ec_poll(ContextState &state, ibv_exp_ec_calc *calc, int n) {
  constexpr EntryId polling = EntryId::ibv_exp_ec_poll;
  const auto by = find(state, polling, calc);
  if (!by) return by.failure();
  if (!by.value()->polled) return invalid(polling, "ec_calc", 0, "created without polling");
  if (n < 0) return invalid(polling, "n", as_word(n), "must not be negative");
  int served = 0;
  while (served < n && by.value()->serve_one()) ++served;
  return served;
}

Result<void> ec_encode_send(ContextState &state, ibv_exp_ec_calc *calc, ibv_exp_ec_mem *mem,
                            ibv_exp_ec_stripe *data, ibv_exp_ec_stripe *code) {
  constexpr EntryId sending = EntryId::ibv_exp_ec_encode_send;
  const auto by = find(state, sending, calc);
  if (!by) return by.failure();
  const Result<CodeJob> job = to_encode(sending, *by.value(), mem);
  if (!job) return job.failure();
  const std::pair<ibv_exp_ec_stripe *, int> all[] = {{data, by.value()->data_blocks},
                                                     {code, by.value()->code_blocks}};
  for (const auto &[stripes, count] : all) {
    if (stripes == nullptr) return invalid(sending, "stripes", 0, "must not be null");
    for (const ibv_exp_ec_stripe &stripe : std::span(stripes, static_cast<std::size_t>(count)))
      if (stripe.qp == nullptr || stripe.wr == nullptr)
        return invalid(sending, "stripe", 0, "qp and wr must not be null");
  }
  by.value()->run(job.value());
  for (const auto &[stripes, count] : all) {
    for (const ibv_exp_ec_stripe &stripe : std::span(stripes, static_cast<std::size_t>(count))) {
      ibv_send_wr *bad = nullptr;
      if (const auto posted = outcome(ibv_post_send(stripe.qp, stripe.wr, &bad)); !posted)
        return posted;
    }
  }
  return {};
}

}  // namespace ibvexp::translate
