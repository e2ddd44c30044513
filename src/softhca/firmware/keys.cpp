// Memory keys, PSVs and umems of the driver above a PCI function.
#include <algorithm>

#include "base/fields.h"
#include "firmware/resources.h"
#include "model/signature.h"

namespace softhca::firmware {

namespace {

constexpr u32 mkc_at = 16, mkc_bytes = 64, actual_octowords_at = 96, translations_at = 272,
              page_access_bit = 96;
// mkc of mlx5_ifc.h, bits; those of 64 bits in bytes.
constexpr u32 free_bit = 1, mode_high = 3, umr_bit = 16, atomic_bit = 17, remote_write_bit = 18,
              remote_read_bit = 19, local_write_bit = 20, local_read_bit = 21, mode_low = 22,
              qpn_bits = 32, tag_bits = 56, length64_bit = 96, pd_bits = 104, room_bits = 416,
              page_bits = 475;
constexpr u32 start_at = 16, length_at = 24;
enum Mode : u32 {
  mode_physical = 0,
  mode_pages = 1,
  mode_klm = 2,
  mode_ksm = 3,
  mode_memic = 5,
};

u32 access_of(const u8 *mkc) {
  u32 access = 0;
  if (get_field(mkc, atomic_bit, 1) != 0) access |= access_remote_atomic;
  if (get_field(mkc, remote_write_bit, 1) != 0) access |= access_remote_write;
  if (get_field(mkc, remote_read_bit, 1) != 0) access |= access_remote_read;
  if (get_field(mkc, local_write_bit, 1) != 0) access |= access_local_write;
  return access;
}

}  // namespace

Status Hca::mkey_create(Command &c) {
  const u8 *mkc = c.in.data() + mkc_at;
  const u32 mode = get_field(mkc, mode_high, 3) << 2 | get_field(mkc, mode_low, 2);
  const u32 octowords = load_be32(c.in.data() + actual_octowords_at);
  const u64 carried = (c.in.size() - translations_at) / 16;
  const u32 room = get_field(mkc, room_bits, 32);
  if (octowords > carried) return Status::bad_input_length;
  if (room > most_translations - translations) return Status::no_resources;
  Mkey *k = nullptr;
  if (mode == mode_klm || mode == mode_ksm) {
    k = create_devx_mkey(process().mkeys, mkc, octowords, device.caps.signature);
    if (k == nullptr) return Status::bad_param;
  } else {
    // Physical memory, and memory of the device, are the driver's alone.
    if (mode != mode_pages && ((mode != mode_physical && mode != mode_memic) || c.uid() != 0))
      return Status::bad_param;
    k = process().mkeys.create(get_field(mkc, pd_bits, 24));
    if (k == nullptr) return Status::no_resources;
    k->tag = static_cast<u8>(get_field(mkc, tag_bits, 8));
    k->qpn = get_field(mkc, qpn_bits, 24);
    k->access = access_of(mkc);
    k->local_read = get_field(mkc, local_read_bit, 1) != 0;
    k->free = get_field(mkc, free_bit, 1) != 0;
    k->umr_en = get_field(mkc, umr_bit, 1) != 0;
  }
  k->max_entries = room;
  translations += room;
  auto r = std::make_unique<MkeyResource>(*this, k, c.uid());
  std::copy_n(mkc, mkc_bytes, r->context.begin());
  if (mode == mode_memic) {
    // From 0 on, as software counts.
    k->kind = Mkey::Kind::device;
    k->length = load_be64(mkc + length_at);
    const u8 *at = device_memory(load_be64(mkc + start_at), k->length);
    if (at == nullptr) return Status::bad_param;
    k->host_base = reinterpret_cast<u64>(at);
  } else if (mode == mode_physical) {
    k->kind = Mkey::Kind::direct;
    k->host_base = memory.host_address(0);
    k->length = GuestMemory::window_bytes;
  } else if (mode == mode_pages) {
    k->kind = Mkey::Kind::pages;
    k->start = load_be64(mkc + start_at);
    k->length = get_field(mkc, length64_bit, 1) != 0 ? ~u64{0} : load_be64(mkc + length_at);
    k->log_page = get_field(mkc, page_bits, 5);
    if (k->log_page < 12) {
      if (octowords != 0) return Status::bad_param;
      k->log_page = 12;  // of a key that is yet to be filled
    }
    const bool present = get_field(c.in.data(), page_access_bit, 1) != 0;
    SpanList gone;
    if (!write_pages(process().mkeys, *k, 0, c.in.data() + translations_at, octowords, present,
                     gone))
      return Status::bad_param;
  } else if (octowords != 0 && !k->free &&
             !write_translations(*k, 0, c.in.data() + translations_at, octowords)) {
    return Status::bad_param;
  }
  // Its protection domain may be another one later, by a UMR, and is not needed.
  if (find<Resource>(Kind::pd, k->pdn, c.uid()) == nullptr) return Status::bad_resource;
  const u32 number = k->index;
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::mkey, number}] = std::move(r);
  return Status::ok;
}

Status Hca::mkey_query(Command &c) {
  const auto *r = find<MkeyResource>(Kind::mkey, number_in(c), c.uid());
  if (r == nullptr) return Status::bad_resource;
  auto context = r->context;
  set_field(context.data(), free_bit, 1, r->key->free ? 1 : 0);
  fill(c, mkc_at, context);
  return Status::ok;
}

Status Hca::special_contexts(Command &c) {
  constexpr u32 dump_fill_at = 8, reserved_at = 12, null_at = 16;
  if (c.out.size() < 32) return Status::bad_output_length;
  store_be32(c.out.data() + dump_fill_at, null_lkey_default);
  store_be32(c.out.data() + reserved_at, null_lkey_default);
  if (!device.caps.null_mkey) return Status::ok;
  for (const u32 at : {dump_fill_at, null_at})
    store_be32(c.out.data() + at, process().mkeys.null().key());
  return Status::ok;
}

namespace {

struct PsvResource final : Resource {
  PsvResource(u32 n, u16 u) : Resource(Kind::psv, n, u) {}
  ~PsvResource() override { psvs().destroy(number); }
};

}  // namespace

Status Hca::psv_create(Command &c) {
  constexpr u32 max_psvs = 4, first_index_at = 16;
  const u32 count = c.in[8] >> 4, pdn = number_in(c);
  if (!device.caps.signature) return Status::bad_op;
  Resource *pd = find<Resource>(Kind::pd, pdn, c.uid());
  if (pd == nullptr) return Status::bad_resource;
  if (count == 0 || count > max_psvs) return Status::bad_param;
  if (c.out.size() < first_index_at + 4 * count) return Status::bad_output_length;
  for (u32 i = 0; i < count; ++i) {
    const u32 number = psvs().create(pdn);
    auto r = std::make_unique<PsvResource>(number, c.uid());
    r->need(pd);
    resources_[{Kind::psv, number}] = std::move(r);
    store_be32(c.out.data() + first_index_at + 4 * i, number);
  }
  return Status::ok;
}

Status Hca::umem_create(Command &c) {
  // umem of mlx5_ifc.h.
  constexpr u32 umem_at = 16, log_page_bits = 155, offset_at = 20, count_at = 24, pages_at = 48;
  const u8 *umem = c.in.data() + umem_at;
  const u32 log_page = 12 + get_field(umem, log_page_bits, 5);
  const u64 offset = load_be32(umem + offset_at), count = load_be64(umem + count_at);
  if (log_page > 30 || count == 0 || count > (c.in.size() - pages_at) / 8) return Status::bad_param;
  std::vector<u64> pages;
  for (u64 i = 0; i < count; ++i)
    pages.push_back(load_be64(c.in.data() + pages_at + i * 8) & ~u64{page_size - 1});
  if (offset >= count << log_page) return Status::bad_param;
  const u32 number = fresh(Kind::umem);
  if (number == 0) return Status::no_resources;
  auto r = std::make_unique<UmemResource>(number, c.uid());
  r->view = memory.view(pages, u64{1} << log_page);
  if (!r->view) return Status::bad_param;
  r->offset = offset;
  r->bytes = (count << log_page) - offset;
  store_be32(c.out.data() + number_at, number);
  resources_[{Kind::umem, number}] = std::move(r);
  return Status::ok;
}

}  // namespace softhca::firmware
