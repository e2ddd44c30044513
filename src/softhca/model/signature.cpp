#include "model/signature.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "model/cq.h"
#include "model/mkey.h"

namespace softhca {

namespace {

using Kind = SignatureDomain::Kind;

// --- computing ---------------------------------------------------------------

template <u32 polynomial>  // reflected
constexpr std::array<u32, 256> crc32_table() {
  std::array<u32, 256> table{};
  for (u32 i = 0; i < 256; ++i) {
    u32 crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? polynomial : 0);
    table[i] = crc;
  }
  return table;
}

// With a seed of all ones: the CRC that Ethernet, and with the other polynomial iSCSI,
// uses. With a seed of 0 it is complemented, too: rdma-core's tests see that zeros do not
// guard zeros.
u32 crc32(const std::array<u32, 256> &table, u32 seed, const u8 *data, u32 bytes) {
  u32 crc = seed;
  for (u32 i = 0; i < bytes; ++i) crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xff];
  return ~crc;
}

u16 crc16_t10(u16 seed, const u8 *data, u32 bytes) {
  static constexpr auto table = [] {
    std::array<u16, 256> t{};
    for (u32 i = 0; i < 256; ++i) {
      u32 crc = i << 8;
      for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ ((crc & 0x8000) != 0 ? 0x8bb7u : 0u);
      t[i] = static_cast<u16>(crc);
    }
    return t;
  }();
  u16 crc = seed;
  for (u32 i = 0; i < bytes; ++i)
    crc = static_cast<u16>(crc << 8 ^ table[(crc >> 8 ^ data[i]) & 0xff]);
  return crc;
}

u16 ip_checksum(u16 seed, const u8 *data, u32 bytes) {
  u64 sum = seed;
  for (u32 i = 0; i + 1 < bytes; i += 2) sum += load_be16(data + i);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<u16>(~sum);
}

// --- the format --------------------------------------------------------------

u32 block_bytes_of(u8 selector) {
  switch (selector) {
    case 1: return 512;
    case 2: return 520;
    case 3: return 4096;
    case 4: return 4160;
    default: return 0;
  }
}

// `format_psv`: what a CRC is, and the number of the PSV. `dif`: a T10 DIF.
bool parse_domain(u32 format_psv, const u8 *dif, SignatureDomain &d) {
  constexpr u32 crc32_base = 0x20, crc32c_base = 0x40, base = 0xf0;
  constexpr u16 valid = 1 << 15;
  constexpr u8 type_crc = 1, type_checksum = 2;
  constexpr u8 increment = 1 << 6, escape_app = 1, escape_app_ref = 2;
  d.psv = format_psv & 0xffffff;
  const u32 format = format_psv >> 24;
  const bool has_dif = (load_be16(dif) & valid) != 0;
  if (format != 0) {
    if ((format & base) == crc32_base) d.kind = Kind::crc32;
    else if ((format & base) == crc32c_base) d.kind = Kind::crc32c;
    else return false;
    return !has_dif;
  }
  if (!has_dif) return true;
  if (dif[8] == type_crc) d.kind = Kind::dif_crc;
  else if (dif[8] == type_checksum) d.kind = Kind::dif_checksum;
  else return false;
  d.counts = (dif[13] & increment) != 0;
  d.escape_app = (dif[13] & escape_app) != 0;
  d.escape_app_ref = (dif[13] & escape_app_ref) != 0;
  return true;
}

// --- checking ----------------------------------------------------------------

u64 as_number(const u8 *signature, u32 bytes) {
  return bytes == 4 ? u64{load_be32(signature)} << 32 : load_be64(signature);
}

bool escaped(const SignatureDomain &d, const u8 *signature) {
  if (!d.is_dif() || load_be16(signature + 2) != 0xffff) return false;
  return d.escape_app || (d.escape_app_ref && load_be32(signature + 4) == 0xffffffff);
}

// Which fields differ, as the completion of an error says it.
u16 compare(const SignatureDomain &d, const u8 *expected, const u8 *actual, u8 mask) {
  enum : u16 { reference = 1 << 11, application = 1 << 12, guard = 1 << 13 };
  u16 syndrome = 0;
  const u32 bytes = d.bytes();
  for (u32 i = 0; i < bytes; ++i) {
    if ((mask >> (7 - i) & 1) == 0 || expected[i] == actual[i]) continue;
    if (!d.is_dif() || i < 2) syndrome |= guard;
    else syndrome |= i < 4 ? u16{application} : u16{reference};
  }
  return syndrome;
}

// Blocks from one domain into the other. `number`: of the first of them.
void convert(SignedPart &part, const SignatureDomain &from, const SignatureDomain &to, const u8 *in,
             u8 *out) {
  const u32 block = part.rules.block_bytes();
  const u64 from_start = psvs().value(from.psv), to_start = psvs().value(to.psv);
  const u32 stride = block + from.bytes();
  for (u64 i = 0; i < part.blocks; ++i, in += stride) {
    const u64 number = part.first_block + i;
    const u8 *const arrived = in + block;
    std::memcpy(out, in, block);
    out += block;
    if (from.kind != Kind::none && part.rules.check != 0 && !escaped(from, arrived)) {
      u8 expected[8] = {};
      make_signature(from, from_start, number, in, expected);
      const u16 syndrome = compare(from, expected, arrived, part.rules.check);
      if (syndrome != 0 && !part.error)
        part.error = {part.key,
                      &from == &part.rules.memory,
                      syndrome,
                      as_number(expected, from.bytes()),
                      as_number(arrived, from.bytes()),
                      i * stride};
    }
    if (to.kind == Kind::none) continue;
    const u32 bytes = to.bytes();
    make_signature(to, to_start, number, in, out);
    for (u32 b = 0; from.bytes() == bytes && b < bytes; ++b)
      if ((part.rules.copy >> (7 - b) & 1) != 0) out[b] = arrived[b];
    out += bytes;
  }
}

}  // namespace

u32 SignatureDomain::bytes() const {
  switch (kind) {
    case Kind::none: return 0;
    case Kind::crc32:
    case Kind::crc32c: return 4;
    default: return 8;
  }
}

u32 SignatureRules::counted_bytes() const {
  return block_bytes() + std::min(memory.bytes(), wire.bytes());
}

bool parse_signature(const u8 *bsf, SignatureRules &rules) {
  constexpr u8 with_inline = 2 << 6, size_mask = 3 << 6, same_structure = 1 << 4;
  if ((bsf[0] & size_mask) != with_inline || (bsf[0] & ~(size_mask | same_structure)) != 0)
    return false;
  rules = {};
  if (!parse_domain(load_be32(bsf + 8), bsf + 32, rules.wire) ||
      !parse_domain(load_be32(bsf + 12), bsf + 48, rules.memory))
    return false;
  rules.check = bsf[1];
  const bool in_memory = rules.memory.kind != Kind::none, on_wire = rules.wire.kind != Kind::none;
  if (!in_memory && !on_wire) return false;
  rules.memory.block_bytes = block_bytes_of(bsf[3]);
  if ((bsf[0] & same_structure) != 0) {
    rules.copy = bsf[2];
    rules.wire.block_bytes = rules.memory.block_bytes;
    if (!in_memory || rules.memory.bytes() != rules.wire.bytes()) return false;
  } else {
    rules.wire.block_bytes = block_bytes_of(bsf[2]);
  }
  if ((in_memory && rules.memory.block_bytes == 0) || (on_wire && rules.wire.block_bytes == 0))
    return false;
  // Blocks of different lengths in the two domains: not modelled.
  return !in_memory || !on_wire || rules.memory.block_bytes == rules.wire.block_bytes;
}

u32 PsvTable::create(u32 pdn) {
  while (next_ == 0 || psvs_.contains(next_)) next_ = (next_ + 1) & 0xffffff;
  psvs_[next_] = {pdn, 0};
  return next_++;
}

bool PsvTable::set(u32 index, u32 pdn, u64 value) {
  const auto it = psvs_.find(index);
  if (it == psvs_.end() || it->second.pdn != pdn) return false;
  it->second.value = value;
  return true;
}

u64 PsvTable::value(u32 index) const {
  const auto it = psvs_.find(index);
  return it == psvs_.end() ? 0 : it->second.value;
}

PsvTable &psvs() {
  static auto &table = *new PsvTable;
  return table;
}

void make_signature(const SignatureDomain &d, u64 start, u64 number, const u8 *data, u8 *out) {
  static constexpr auto ethernet = crc32_table<0xedb88320>(),
                        castagnoli = crc32_table<0x82f63b78>();
  const auto high = static_cast<u32>(start >> 32);
  const auto seed = static_cast<u16>(start >> 48);
  switch (d.kind) {
    case Kind::none: return;
    case Kind::crc32: return store_be32(out, crc32(ethernet, high, data, d.block_bytes));
    case Kind::crc32c: return store_be32(out, crc32(castagnoli, high, data, d.block_bytes));
    case Kind::dif_crc: store_be16(out, crc16_t10(seed, data, d.block_bytes)); break;
    case Kind::dif_checksum: store_be16(out, ip_checksum(seed, data, d.block_bytes)); break;
  }
  store_be16(out + 2, static_cast<u16>(high));
  store_be32(out + 4, static_cast<u32>(start + (d.counts ? number : 0)));
}

std::unique_ptr<SignedPart> open_signed(const MkeyTable &table, u32 key, u64 address, u64 length,
                                        u32 need, const Requester &who) {
  const Mkey *k = table.find(key);
  if (k == nullptr || !k->signature) return nullptr;
  auto part = std::make_unique<SignedPart>();
  part->key = key;
  part->rules = *k->signature;
  const u64 counted = part->rules.counted_bytes(), offset = address - k->start;
  if (address < k->start || offset % counted != 0 || length % counted != 0) {
    SOFTHCA_LOG(debug, "mkey %#x: not a number of whole blocks", key);
    return nullptr;
  }
  part->first_block = offset / counted;
  part->blocks = length / counted;
  const u64 in_memory = part->rules.block_bytes() + part->rules.memory.bytes();
  const u64 on_wire = part->rules.block_bytes() + part->rules.wire.bytes();
  if (part->blocks * on_wire > u64{1} << 31) return nullptr;
  if (resolve_below_signature(table, key, k->start + part->first_block * in_memory,
                              part->blocks * in_memory, need, who, part->memory) != Syndrome::ok)
    return nullptr;
  part->wire.resize(part->blocks * on_wire);
  return part;
}

bool gather_signed(SignedPart &part) {
  std::vector<u8> in(total_length(part.memory));
  if (!read_spans(part.memory, 0, in.data(), in.size())) return false;
  convert(part, part.rules.memory, part.rules.wire, in.data(), part.wire.data());
  return true;
}

bool scatter_signed(SignedPart &part, u64 message_bytes) {
  const u64 arrived = message_bytes - std::min(message_bytes, part.position);
  const u64 wire_bytes = std::min<u64>(arrived, part.wire.size());
  const u64 on_wire = part.rules.block_bytes() + part.rules.wire.bytes();
  const u64 in_memory = part.rules.block_bytes() + part.rules.memory.bytes();
  if (wire_bytes % on_wire != 0) return false;
  part.blocks = wire_bytes / on_wire;
  std::vector<u8> out(part.blocks * in_memory);
  convert(part, part.rules.wire, part.rules.memory, part.wire.data(), out.data());
  return write_spans(part.memory, 0, out.data(), out.size());
}

void report_signature_error(MkeyTable &table, const SignedPart &part, Cq *cq) {
  if (!part.error || cq == nullptr) return;
  const SignatureError &e = *part.error;
  Mkey *k = table.find(part.key);
  // One error, until software says that it has seen it.
  if (k == nullptr || !k->reports_signature_error) return;
  k->reports_signature_error = false;
  Cqe cqe;
  store_be32(cqe.raw + 16, static_cast<u32>(e.expected >> 32));
  store_be32(cqe.raw + 20, static_cast<u32>(e.actual >> 32));
  store_be32(cqe.raw + 24, static_cast<u32>(e.expected));
  store_be32(cqe.raw + 28, static_cast<u32>(e.actual));
  store_be16(cqe.raw + 32, e.syndrome);
  cqe.raw[35] = e.in_memory ? 1 : 0;
  store_be32(cqe.raw + 36, e.key);
  store_be64(cqe.raw + 40, e.offset);
  (void)cq_write(*cq, cqe, CqeOpcode::signature_error, false);
}

}  // namespace softhca
