// Memory keys: what reg_mr, alloc_mw, DEVX CREATE_MKEY and UMR WQEs make, and
// their translation to memory.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/prm.h"
#include "base/types.h"
#include "model/memory.h"
#include "model/signature.h"

namespace softhca {

// The bits of ibv_access_flags.
enum Access : u32 {
  access_local_write = 1 << 0,
  access_remote_write = 1 << 1,
  access_remote_read = 1 << 2,
  access_remote_atomic = 1 << 3,
  access_mw_bind = 1 << 4,
  access_zero_based = 1 << 5,
  access_on_demand = 1 << 6,
  access_hugetlb = 1 << 7,
  access_relaxed_ordering = 1 << 20,
  access_optional_mask = 0x3ff00000,  // relaxed ordering and friends
};

struct Mkey {
  // One translation entry: `bytes` at `address` under `key`; in a repeat
  // block each entry is visited every cycle, `stride` bytes apart.
  struct Entry {
    u64 bytes = 0;
    u32 key = 0;
    u64 address = 0;
    u32 stride = 0;
  };
  enum Present : u64 { readable = 1, writable = 2 };
  enum class Kind : u8 {
    direct,    // application memory at host_base
    pages,     // a page at a time, of a guest
    device,    // device memory at host_base (our own mapping)
    implicit,  // whole address space, on demand
    null,      // reads zero, swallows writes
    indirect,  // entries: KLM (own length each), or KSM (all of ksm_bytes)
    repeat,    // entries + repeat count
  };
  u32 index = 0;
  u8 tag = 0;  // low 8 bits of the key
  u32 pdn = 0;
  u32 access = 0;          // Access bits
  bool local_read = true;  // off only where DEVX or a UMR says so
  Kind kind = Kind::direct;
  bool free = false;  // no access until a UMR sets it valid
  bool umr_en = true;
  bool remote_invalidate = false;  // SEND_INV may free it
  u32 qpn = 0xffffff;              // type-2 windows: bound to this QP
  u64 start = 0;                   // first valid virtual address
  u64 length = 0;
  u64 host_base = 0;  // address of `start` for direct and device
  u32 log_page = 0;   // kind pages
  // Addresses in this process, with the bits of Present.
  std::vector<u64> page_addresses;
  bool paged = false;   // filled by the driver of a kernel: what is missing may come
  u64 ksm_bytes = 0;    // indirect: fixed entity size, 0 for KLM; rules over Entry::bytes
  u32 max_entries = 0;  // room for translations (16-byte units)
  u64 repeat_count = 0;
  std::vector<Entry> entries;
  bool has_bsf = false;                             // room for signature rules
  std::shared_ptr<const SignatureRules> signature;  // in force
  bool reports_signature_error = false;             // the next one
  std::vector<u64> ends;  // running totals of the entries' bytes, see set_entries()

  // Replaces the translations; offsets are then found by binary search.
  void set_entries(std::vector<Entry>);
  u32 key() const { return index << 8 | tag; }
};

class MkeyTable {
 public:
  MkeyTable();
  ~MkeyTable();
  MkeyTable(const MkeyTable &) = delete;
  MkeyTable &operator=(const MkeyTable &) = delete;
  Mkey *create(u32 pdn);  // nullptr: table full
  void destroy(Mkey *);
  // The one that swallows what is written, of all devices and protection domains. libvma 8.6 to 9.2
  // uses its number on cards, 0x700, without asking for it.
  const Mkey &null();
  Mkey *find(u32 key) const;  // by index; the tag is not compared
  size_t size() const { return keys_.size(); }

  // Where bus addresses of a guest are in this process, and how many there are.
  u64 bus_at = 0, bus_bytes = 0;

 private:
  std::unordered_map<u32, Mkey *> keys_;
  u32 next_;
};

// The queue pair or driver whose rights are checked.
struct Requester {
  u32 pdn = 0;
  u32 qpn = 0;
  bool driver = false;  // of a kernel: reaches keys of all protection domains
};

// Memory that is yet to come: so many bytes of a key, from that address on.
struct PageFault {
  u32 key = 0;
  u64 address = 0, length = 0;
};

// Appends the memory behind [address, address + length) under `key` to `out`.
// `need` are Access bits (0 = local read). Returns Syndrome::ok,
// local_protection for every kind of refusal; the caller maps it to its side. page_fault,
// where the caller can wait: `missing` has to come first.
Syndrome resolve(const MkeyTable &, u32 key, u64 address, u64 length, u32 need, const Requester &,
                 SpanList &out, PageFault *missing = nullptr);

// The same for the memory behind a key with signatures, which the other refuses.
Syndrome resolve_below_signature(const MkeyTable &, u32 key, u64 address, u64 length, u32 need,
                                 const Requester &, SpanList &out);

// Writes `count` translation octowords (KLM, KSM or a repeat block, big-endian)
// from position `offset` on, as UMR and DEVX CREATE_MKEY do. Nothing before
// and behind them changes. False, and no change, when they are malformed or
// exceed max_entries.
bool write_translations(Mkey &, u64 offset, const u8 *octowords, u32 count);

// Writes the addresses of pages of a key (kind pages), two in an octoword; `present`: their
// low bits say whether they may be read and written, else both. `gone` receives what was
// there and is not any more. False, and no change: see above, or no addresses of the guest.
bool write_pages(const MkeyTable &, Mkey &, u64 offset, const u8 *octowords, u32 count,
                 bool present, SpanList &gone);

// Executes a UMR WQE (linearised, `ds` 16-byte units) for the QP `qpn` of `pdn`.
// Returns ok, local_qp_op (malformed), mw_bind (check failed) or
// local_protection (entry list unreadable).
Syndrome execute_umr(MkeyTable &, const u8 *wqe, u32 ds, const Requester &);

// LOCAL_INV and SEND_INV: frees the key. False when it cannot be invalidated.
bool invalidate(MkeyTable &, u32 key, const Requester &, bool remote);

// CREATE_MKEY of DEVX: `mkc` points at the 64-byte mkey context,
// `translation_octowords` is what the command carries behind it (to be put in
// with write_translations). The key belongs to the PD named in it. nullptr: a
// context that is not KLM or KSM, asks for crypto, or for signatures where the device
// has none, or is invalid.
Mkey *create_devx_mkey(MkeyTable &, const u8 *mkc, u32 translation_octowords,
                       bool signature = false);

}  // namespace softhca
