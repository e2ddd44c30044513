// User-mode memory registration: WQEs that rewrite the context and the
// translations of a memory key. Binding and invalidating memory windows are
// such WQEs too. Layout and rules: mlx5 headers of Linux and rdma-core.

#include <algorithm>

#include "base/log.h"
#include "model/mkey.h"
#include "model/paging.h"

namespace softhca {

namespace {

constexpr u32 any_qpn = 0xffffff;
constexpr u32 octoword = 16;
constexpr u32 repeat_opcode = 0x400;  // in the place of an entry's key
constexpr u64 present_bits = Mkey::readable | Mkey::writable;
constexpr u64 largest_entry = u64{1} << 31;  // a byte count of 0 in a KLM

// Offsets in the WQE: control segment, UMR control segment, mkey context, list.
constexpr u32 control_at = 16, context_at = 64, list_at = 128;

enum ControlFlags : u8 {
  flag_inline = 0x80,
  flag_fail_if_free = 0x40,
  flag_fail_if_not_free = 0x20,
  flag_offset = 0x10,
  flag_check_qpn = 0x08,
  flags_known = 0xf8,
};

enum MaskBits : u64 {
  mask_length = 1ull << 0,
  mask_entity_size = 1ull << 1,
  mask_start = 1ull << 6,
  mask_pd = 1ull << 7,
  mask_en_rinval = 1ull << 8,
  mask_signature_error = 1ull << 9,
  mask_bsf = 1ull << 12,
  mask_tag = 1ull << 13,
  mask_qpn = 1ull << 14,
  mask_local_read = 1ull << 17,
  mask_local_write = 1ull << 18,
  mask_remote_read = 1ull << 19,
  mask_remote_write = 1ull << 20,
  mask_atomic = 1ull << 21,
  mask_small_fence = 1ull << 23,
  mask_relaxed_write = 1ull << 25,
  mask_free = 1ull << 29,
  mask_relaxed_read = 1ull << 47,
};
// A user's QP may change these, and the signature fields of keys that have them. Refused
// are the PD and crypto fields, and relaxed ordering, which these models cannot change by UMR.
constexpr u64 modifiable = mask_length | mask_start | mask_en_rinval | mask_tag | mask_qpn |
                           mask_local_read | mask_local_write | mask_remote_read |
                           mask_remote_write | mask_atomic | mask_small_fence | mask_free;

Syndrome refuse(Syndrome s, u32 key, const char *why) {
  SOFTHCA_LOG(debug, "UMR of mkey %#x: %s", key, why);
  return s;
}

// What the driver of a kernel may change besides: it fills keys, and registers regions anew.
constexpr u64 modifiable_by_driver =
    mask_pd | mask_relaxed_write | mask_relaxed_read | mask_entity_size;

u64 modifiable_fields(const Mkey &k) {
  if (k.kind == Mkey::Kind::implicit || k.kind == Mkey::Kind::null)
    return modifiable & ~(mask_length | mask_start);
  u64 fields = modifiable;
  if (k.ksm_bytes != 0) fields |= mask_entity_size;
  if (k.has_bsf) fields |= mask_bsf | mask_signature_error;
  return fields;
}

// The table as the device holds it: 16 bytes per translation.
std::vector<u8> octowords_of(const Mkey &k) {
  const bool repeat = k.kind == Mkey::Kind::repeat;
  std::vector<u8> raw((k.entries.size() + (repeat ? 1 : 0)) * octoword);
  u8 *p = raw.data();
  if (repeat) {
    store_be32(p, static_cast<u32>(k.ends.empty() ? 0 : k.ends.back()));
    store_be32(p + 4, repeat_opcode);
    store_be32(p + 8, static_cast<u32>(k.repeat_count));
    store_be16(p + 14, static_cast<u16>(k.entries.size()));
    p += octoword;
  }
  for (const Mkey::Entry &e : k.entries) {
    if (repeat) {
      store_be16(p, static_cast<u16>(e.stride));
      store_be16(p + 2, static_cast<u16>(e.bytes));
    } else {
      store_be32(p, static_cast<u32>(e.bytes));
    }
    store_be32(p + 4, e.key);
    store_be64(p + 8, e.address);
    p += octoword;
  }
  return raw;
}

// All that 64 bits can address, or as many bytes as the context says.
u64 length_in(const u8 *context) {
  constexpr u32 length64 = 1u << 31;
  return (load_be32(context + 12) & length64) != 0 ? ~u64{0} : load_be64(context + 24);
}

bool parse_repeat(Mkey &k, const u8 *p, u64 count) {
  const u32 cycle_bytes = load_be32(p), entries = load_be16(p + 14);
  const u64 repeat_count = load_be32(p + 8);
  if (entries == 0 || entries >= count) return false;
  std::vector<Mkey::Entry> list;
  list.reserve(entries);
  u64 sum = 0;
  for (u32 i = 0; i < entries; ++i) {
    p += octoword;
    const u32 stride = load_be16(p), bytes = load_be16(p + 2);
    if (bytes == 0) return false;
    list.push_back({bytes, load_be32(p + 4), load_be64(p + 8), stride});
    sum += bytes;
  }
  if (sum != cycle_bytes) return false;
  k.kind = Mkey::Kind::repeat;
  k.repeat_count = repeat_count;
  k.set_entries(std::move(list));
  return true;
}

bool parse_octowords(Mkey &k, const u8 *p, u64 count) {
  if (k.ksm_bytes == 0 && count != 0 && load_be32(p + 4) == repeat_opcode)
    return parse_repeat(k, p, count);
  std::vector<Mkey::Entry> list;
  list.reserve(count);
  for (u64 i = 0; i < count; ++i, p += octoword) {
    // Padding reads as an entry of the largest size under key 0, which does
    // not exist: harmless behind the key's length, an error inside it.
    const u32 bytes = load_be32(p);
    list.push_back({bytes == 0 ? largest_entry : bytes, load_be32(p + 4), load_be64(p + 8), 0});
  }
  k.kind = Mkey::Kind::indirect;
  k.repeat_count = 0;
  k.set_entries(std::move(list));
  return true;
}

// Fetches the list that a data segment points at. Its byte count is not
// looked at: software writes 0 there.
bool fetch_list(const MkeyTable &table, const u8 *segment, u32 bytes, const Requester &who,
                std::vector<u8> &list) {
  SpanList spans;
  if (resolve(table, load_be32(segment + 4), load_be64(segment + 8), bytes, 0, who, spans) !=
      Syndrome::ok)
    return false;
  list.resize(bytes);
  return read_spans(spans, 0, list.data(), bytes);
}

void apply_context(Mkey &k, const u8 *context, u64 mask) {
  const u8 access = context[2];
  const u32 qpn_tag = load_be32(context + 4);
  const auto set_access = [&](u64 bit, u32 right, u8 flag) {
    if ((mask & bit) != 0) k.access = (k.access & ~right) | ((access & flag) != 0 ? right : 0);
  };
  if ((mask & mask_free) != 0) k.free = (context[0] & 0x40) != 0;
  if ((mask & mask_pd) != 0) k.pdn = load_be32(context + 12) & 0xffffff;
  if ((mask & mask_tag) != 0) k.tag = static_cast<u8>(qpn_tag);
  if ((mask & mask_qpn) != 0) k.qpn = qpn_tag >> 8;
  if ((mask & mask_start) != 0) k.start = load_be64(context + 16);
  if ((mask & mask_length) != 0) k.length = length_in(context);
  if ((mask & mask_entity_size) != 0) {
    const u32 log = context[59] & 0x1f;
    if (k.kind == Mkey::Kind::pages) k.log_page = log;
    else k.ksm_bytes = u64{1} << log;
  }
  if ((mask & mask_en_rinval) != 0) k.remote_invalidate = (context[12] & 1) != 0;
  if ((mask & mask_local_read) != 0) k.local_read = (access & 0x04) != 0;
  set_access(mask_local_write, access_local_write, 0x08);
  set_access(mask_remote_read, access_remote_read, 0x10);
  set_access(mask_remote_write, access_remote_write, 0x20);
  set_access(mask_atomic, access_remote_atomic, 0x40);
}

// The signature rules of a UMR: what is in force behind it. `bsf` is null when the WQE
// brings none.
bool read_signature(const Mkey &k, const u8 *context, u64 mask, const u8 *bsf,
                    std::shared_ptr<const SignatureRules> &rules) {
  constexpr u32 bsf_enable = 1u << 30;
  if ((mask & mask_bsf) == 0) {
    rules = k.signature;
    return bsf == nullptr;
  }
  if ((load_be32(context + 12) & bsf_enable) == 0) return bsf == nullptr;
  auto fresh = std::make_shared<SignatureRules>();
  const bool known = bsf != nullptr && parse_signature(bsf, *fresh);
  rules = std::move(fresh);
  return known;
}

}  // namespace

bool write_translations(Mkey &k, u64 offset, const u8 *octowords, u32 count) {
  if (k.kind != Mkey::Kind::indirect && k.kind != Mkey::Kind::repeat) return false;
  if (count > k.max_entries || offset > k.max_entries - count) return false;
  const u64 end = offset + count;
  const u64 present = k.entries.size() + (k.kind == Mkey::Kind::repeat ? 1 : 0);
  if (offset == 0 && end >= present) return parse_octowords(k, octowords, count);
  std::vector<u8> raw = octowords_of(k);
  raw.resize(std::max<u64>(raw.size(), end * octoword));
  std::copy_n(octowords, u64{count} * octoword,
              raw.begin() + static_cast<std::ptrdiff_t>(offset * octoword));
  return parse_octowords(k, raw.data(), raw.size() / octoword);
}

bool write_pages(const MkeyTable &table, Mkey &k, u64 offset, const u8 *octowords, u32 count,
                 bool present, SpanList &gone) {
  constexpr u64 rounded = 4;  // octowords, to which software rounds a list up
  const u64 room = align_up(k.max_entries, rounded), page = u64{1} << k.log_page;
  if (k.kind != Mkey::Kind::pages || count > room || offset > room - count) return false;
  std::vector<u64> entries(u64{count} * 2);
  for (u64 &entry : entries) {
    const u64 address = load_be64(octowords) & ~u64{7};
    entry = present ? load_be64(octowords) & present_bits : present_bits;
    octowords += 8;
    if (entry == 0) continue;
    if (address % page_size != 0 || address >= table.bus_bytes) return false;
    entry |= table.bus_at + address;
  }
  std::vector<u64> &pages = k.page_addresses;
  if (pages.size() < (offset + count) * 2) pages.resize((offset + count) * 2);
  for (size_t i = 0; i < entries.size(); ++i) {
    u64 &page_address = pages[offset * 2 + i];
    // Other rights to the same page take nothing away: what was there may still be reached, and
    // what comes anew is checked.
    const bool moved = ((page_address ^ entries[i]) & ~present_bits) != 0;
    if ((page_address & present_bits) != 0 && moved)
      gone.push_back({page_address & ~present_bits, page});
    page_address = entries[i];
  }
  return true;
}

Syndrome execute_umr(MkeyTable &table, const u8 *wqe, u32 ds, const Requester &who) {
  if (ds * octoword < list_at) return refuse(Syndrome::local_qp_op, 0, "WQE too short");
  const u8 *control = wqe + control_at, *context = wqe + context_at;
  const u32 key = load_be32(wqe + 12);
  const u8 flags = control[0];
  const u32 count = load_be16(control + 4);
  const u64 mask = load_be64(control + 8);
  const bool with_offset = (flags & flag_offset) != 0;

  SpanList gone;

  // The key's tag is not compared: its new value is already in software's
  // hands when the WQE that installs it is written.
  Mkey *k = table.find(key);
  if (k == nullptr) return refuse(Syndrome::local_qp_op, key, "no such key");
  if (k->pdn != who.pdn && !who.driver)
    return refuse(Syndrome::local_qp_op, key, "is of another protection domain");
  if (!k->umr_en) return refuse(Syndrome::local_qp_op, key, "not enabled for UMR");
  if ((flags & ~flags_known) != 0) return refuse(Syndrome::local_qp_op, key, "unknown flags");
  const u64 fields = modifiable_fields(*k) | (who.driver ? modifiable_by_driver : 0);
  if ((mask & ~fields) != 0) return refuse(Syndrome::local_qp_op, key, "field cannot be modified");
  if ((mask & mask_entity_size) != 0 && (context[59] & 0x1f) == 0)
    return refuse(Syndrome::local_qp_op, key, "entity size must not be 0");
  const bool pages = k->kind == Mkey::Kind::pages;
  if (pages && (mask & mask_entity_size) != 0 && u64{1} << (context[59] & 0x1f) < page_size)
    return refuse(Syndrome::local_qp_op, key, "entity size is less than a page");
  const bool memory = k->kind == Mkey::Kind::direct || k->kind == Mkey::Kind::device;
  if (memory && (mask & mask_length) != 0 && length_in(context) > k->length)
    return refuse(Syndrome::local_qp_op, key, "longer than its memory");
  // Without an offset this field counts octowords of signature rules, behind the list.
  const u32 bsf_octowords = with_offset ? 0 : load_be16(control + 6);
  const u8 *bsf = nullptr;
  if (bsf_octowords != 0) {
    const u64 at = list_at + align_up(u64{count} * octoword, bsf_bytes);
    if (!k->has_bsf || bsf_octowords * octoword != bsf_bytes || (flags & flag_inline) == 0 ||
        at + bsf_bytes > ds * octoword)
      return refuse(Syndrome::local_qp_op, key, "signature rules do not fit the key or the WQE");
    bsf = wqe + at;
  }
  std::shared_ptr<const SignatureRules> rules;
  if (!read_signature(*k, context, mask, bsf, rules))
    return refuse(Syndrome::local_qp_op, key, "unknown signature rules");

  if ((flags & flag_fail_if_not_free) != 0 && !k->free)
    return refuse(Syndrome::mw_bind, key, "is not free");
  if ((flags & flag_fail_if_free) != 0 && k->free) return refuse(Syndrome::mw_bind, key, "is free");
  // Keys that no QP owns pass: libmlx5 sets this flag on every LOCAL_INV, also
  // of keys of mlx5dv_create_mkey, and rdma-core's tests see that succeed.
  if ((flags & flag_check_qpn) != 0 && k->qpn != any_qpn && k->qpn != who.qpn)
    return refuse(Syndrome::mw_bind, key, "belongs to another QP");

  if (count != 0) {
    const u64 offset =
        with_offset ? u64{load_be32(control + 16)} << 16 | load_be16(control + 6) : 0;
    const u8 *list = wqe + list_at;
    std::vector<u8> fetched;
    if ((flags & flag_inline) != 0) {
      if (list_at + count * octoword > ds * octoword)
        return refuse(Syndrome::local_qp_op, key, "list exceeds the WQE");
    } else {
      if (ds * octoword < list_at + octoword)
        return refuse(Syndrome::local_qp_op, key, "no data segment");
      if (!fetch_list(table, list, count * octoword, who, fetched))
        return refuse(Syndrome::local_protection, key, "list cannot be read");
      list = fetched.data();
    }
    if (!(pages ? who.driver && write_pages(table, *k, offset, list, count, true, gone)
                : write_translations(*k, offset, list, count)))
      return refuse(Syndrome::local_qp_op, key, "malformed or too many translations");
    k->paged |= who.driver;
  }
  // The driver of a kernel also changes single pages of keys in use.
  const bool all = !k->free && (mask != 0 || !who.driver);
  apply_context(*k, context, mask);
  if (all) forget_key(k->index, who.qpn, PageSide::send);
  else forget_pages(k->index, gone);
  k->signature = std::move(rules);
  if ((mask & mask_signature_error) != 0) k->reports_signature_error = true;
  return Syndrome::ok;
}

}  // namespace softhca
