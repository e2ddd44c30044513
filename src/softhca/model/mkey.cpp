#include "model/mkey.h"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/log.h"
#include "model/paging.h"

namespace softhca {

namespace {

// Low numbers are taken by constants that software writes in place of keys
// (0x100 ends a scatter list, 0x400 starts a repeat block), and by the null key, 0x700.
constexpr u32 null_index = 7;
constexpr u32 first_index = 0x100;
constexpr u32 index_limit = 1 << 24;
constexpr u32 index_count = index_limit - first_index;

constexpr u32 any_qpn = 0xffffff;
constexpr u32 max_indirection = 4;   // levels below the key of the request
constexpr u32 max_pieces = 1 << 22;  // that one request is looked up in, at all levels
constexpr u32 max_devx_octowords = 1 << 22;
constexpr u64 present_bits = Mkey::readable | Mkey::writable;

constexpr u32 access_modify = access_local_write | access_remote_write | access_remote_atomic;

bool indirect_kind(const Mkey &k) {
  return k.kind == Mkey::Kind::indirect || k.kind == Mkey::Kind::repeat;
}

void append(SpanList &out, const Span &s) {
  if (!out.empty()) {
    Span &last = out.back();
    if (last.kind == s.kind && last.key == s.key && last.memory_key == s.memory_key &&
        (s.kind == Span::Kind::null || last.address + last.length == s.address)) {
      last.length += s.length;
      return;
    }
  }
  out.push_back(s);
}

// One translation. Entries of a list mostly name the same key, so the last
// one found at each level is remembered.
class Walk {
 public:
  Walk(const MkeyTable &table, const Requester &who, SpanList &out, bool below_signature = false)
      : table_(table), who_(who), out_(out), below_signature_(below_signature) {}

  const PageFault &missing() const { return missing_; }

  bool visit(u32 key, u64 address, u64 length, u32 need, u32 depth) {
    const Mkey *k = find(key, depth);
    if (k == nullptr || !permitted(*k, key, need, depth)) return false;
    if (depth == 0) named_ = k->index;
    // Pages come to the key that the driver of a kernel knows, not to those behind it.
    const bool brings = k->paged && paged_ == nullptr;
    if (brings) {
      paged_ = k;
      paged_at_ = address;
      paged_length_ = length;
      paged_from_ = produced_;
    }
    const bool done = reach(*k, key, address, length, need, depth);
    if (brings) paged_ = nullptr;
    return done;
  }

 private:
  bool reach(const Mkey &k, u32 key, u64 address, u64 length, u32 need, u32 depth) {
    if (++pieces_ > max_pieces) return refuse(key, "too many pieces");
    switch (k.kind) {
      case Mkey::Kind::null:
        if (paged_ != nullptr) return miss();
        add(k, Span::Kind::null, 0, length);
        return true;
      case Mkey::Kind::implicit:
        if (address + (length - 1) < address) return refuse(key, "wraps around");
        add(k, Span::Kind::application, address, length);
        return true;
      default: break;
    }
    const u64 offset = address - k.start;
    if (address < k.start || offset >= k.length || length > k.length - offset)
      return refuse(key, "out of bounds");
    // What an entry allows was granted when the list was made: only local
    // rights are asked from there on (a window over a local-write region).
    const u32 below = (need & access_modify) != 0 ? u32{access_local_write} : 0;
    switch (k.kind) {
      case Mkey::Kind::direct:
        add(k, Span::Kind::application, k.host_base + offset, length);
        return true;
      case Mkey::Kind::pages: return through_pages(k, offset, length, need);
      case Mkey::Kind::device:
        add(k, Span::Kind::direct, k.host_base + offset, length);
        return true;
      default:
        if (depth == max_indirection) return refuse(key, "nested too deeply");
        return k.ksm_bytes != 0 ? through_ksm(k, offset, length, below, depth)
                                : through_list(k, offset, length, below, depth);
    }
  }

  bool refuse(u32 key, const char *why) const {
    SOFTHCA_LOG(debug, "mkey %#x: %s (QP %#x)", key, why, who_.qpn);
    return false;
  }

  const Mkey *find(u32 key, u32 depth) {
    Recent &recent = recent_[depth];
    if (recent.mkey == nullptr || recent.index != key >> 8) recent = {key >> 8, table_.find(key)};
    if (recent.mkey == nullptr || recent.mkey->tag != (key & 0xff)) {
      refuse(key, "no such key");
      return nullptr;
    }
    return recent.mkey;
  }

  bool permitted(const Mkey &k, u32 key, u32 need, u32 depth) const {
    if (k.free) return refuse(key, "is free");
    if (k.signature && !(below_signature_ && depth == 0)) return refuse(key, "has signatures");
    // The null key belongs to the device: any PD may swallow data locally.
    if (k.kind == Mkey::Kind::null)
      return (need & ~(k.access | access_local_write)) == 0 || refuse(key, "access right missing");
    if (k.pdn != who_.pdn && !who_.driver) return refuse(key, "is of another protection domain");
    if (k.qpn != any_qpn && k.qpn != who_.qpn) return refuse(key, "bound to another QP");
    // Rights count for the key of the request and for the memory at the end,
    // not for lists in between.
    if (depth != 0 && indirect_kind(k)) return true;
    const bool granted = need == 0 ? k.local_read : (k.access & need) == need;
    return granted || refuse(key, "access right missing");
  }

  void add(const Mkey &k, Span::Kind kind, u64 address, u64 length) {
    append(out_, {address, length, kind, named_, k.index});
    produced_ += length;
  }

  // All that is not there yet of what is asked of the key that pages come to.
  bool miss() {
    const u64 done = produced_ - paged_from_;
    missing_ = {paged_->key(), paged_at_ + done, paged_length_ - done};
    SOFTHCA_LOG(debug, "mkey %#x: no page at %#lx", missing_.key, missing_.address);
    return false;
  }

  // The first page holds `start` where its low bits say.
  bool through_pages(const Mkey &k, u64 offset, u64 length, u32 need) {
    const u64 wanted = (need & access_modify) != 0 ? Mkey::writable : Mkey::readable;
    const u64 page = u64{1} << k.log_page;
    offset += k.start & (page - 1);
    u64 within = offset & (page - 1);
    for (u64 i = offset >> k.log_page; length != 0; ++i, within = 0) {
      const bool known = i < k.page_addresses.size();
      if (!known || (k.page_addresses[i] & wanted) == 0)
        return paged_ != nullptr && i < u64{k.max_entries} * 2
                   ? miss()
                   : refuse(k.key(), "beyond its translations");
      const u64 here = std::min(page - within, length);
      add(k, Span::Kind::application, (k.page_addresses[i] & ~present_bits) + within, here);
      length -= here;
    }
    return true;
  }

  bool through_ksm(const Mkey &k, u64 offset, u64 length, u32 need, u32 depth) {
    u64 within = offset % k.ksm_bytes;
    for (u64 i = offset / k.ksm_bytes; length != 0; ++i, within = 0) {
      if (i >= k.entries.size()) return refuse(k.key(), "beyond its translations");
      const u64 here = std::min(k.ksm_bytes - within, length);
      if (!visit(k.entries[i].key, k.entries[i].address + within, here, need, depth + 1))
        return false;
      length -= here;
    }
    return true;
  }

  // KLM lists are one cycle; repeat blocks are many, each entry moving on by
  // its stride.
  bool through_list(const Mkey &k, u64 offset, u64 length, u32 need, u32 depth) {
    const u64 cycle_bytes = k.ends.empty() ? 0 : k.ends.back();
    const u64 cycles = k.kind == Mkey::Kind::repeat ? k.repeat_count : 1;
    if (cycle_bytes == 0) return refuse(k.key(), "no translations");
    u64 cycle = offset / cycle_bytes;
    const u64 in_cycle = offset % cycle_bytes;
    auto i = static_cast<size_t>(std::upper_bound(k.ends.begin(), k.ends.end(), in_cycle) -
                                 k.ends.begin());
    u64 within = in_cycle - (k.ends[i] - k.entries[i].bytes);
    for (; length != 0; ++cycle, i = 0) {
      if (cycle >= cycles) return refuse(k.key(), "beyond its translations");
      for (; i < k.entries.size() && length != 0; ++i, within = 0) {
        const Mkey::Entry &e = k.entries[i];
        const u64 here = std::min(e.bytes - within, length);
        if (here == 0) continue;
        if (!visit(e.key, e.address + cycle * e.stride + within, here, need, depth + 1))
          return false;
        length -= here;
      }
    }
    return true;
  }

  struct Recent {
    u32 index = 0;
    const Mkey *mkey = nullptr;
  };
  const MkeyTable &table_;
  const Requester &who_;
  SpanList &out_;
  const bool below_signature_;
  u32 named_ = 0;  // number of the key of the request
  u32 pieces_ = 0;
  u64 produced_ = 0;  // bytes in `out_`
  const Mkey *paged_ = nullptr;
  u64 paged_at_ = 0, paged_length_ = 0, paged_from_ = 0;
  PageFault missing_;
  Recent recent_[max_indirection + 1];
};

}  // namespace

void Mkey::set_entries(std::vector<Entry> list) {
  entries = std::move(list);
  ends.clear();
  ends.reserve(entries.size());
  u64 end = 0;
  for (const Entry &e : entries) ends.push_back(end += e.bytes);
}

// Numbers start where the process id puts them, so that a key used in the
// wrong process is refused there instead of finding a namesake. The highest
// bits stay clear, as on hardware that has not run for long: libmlx5 reads
// completion flags from where a small message may lie, perhaps with a key in it.
MkeyTable::MkeyTable() : next_(first_index + (static_cast<u32>(getpid()) * 0x9e3779b1u >> 12)) {}

MkeyTable::~MkeyTable() {
  for (const auto &[index, mkey] : keys_) delete mkey;
}

// Numbers are taken in turn from the whole range, so a freed one is used again as late as
// possible: stale keys are caught.
Mkey *MkeyTable::create(u32 pdn) {
  if (keys_.size() >= index_count) return nullptr;
  while (keys_.contains(next_))
    if (++next_ == index_limit) next_ = first_index;
  auto *mkey = new Mkey;
  mkey->index = next_;
  mkey->pdn = pdn;
  keys_.emplace(next_, mkey);
  if (++next_ == index_limit) next_ = first_index;
  return mkey;
}

const Mkey &MkeyTable::null() {
  Mkey *&mkey = keys_[null_index];
  if (mkey == nullptr)
    mkey = new Mkey{.index = null_index,
                    .access = access_local_write,
                    .kind = Mkey::Kind::null,
                    .length = ~u64{0}};
  return *mkey;
}

void MkeyTable::destroy(Mkey *mkey) {
  forget_key(mkey->index);
  keys_.erase(mkey->index);
  delete mkey;
}

Mkey *MkeyTable::find(u32 key) const {
  const auto it = keys_.find(key >> 8);
  return it == keys_.end() ? nullptr : it->second;
}

Syndrome resolve(const MkeyTable &table, u32 key, u64 address, u64 length, u32 need,
                 const Requester &who, SpanList &out, PageFault *missing) {
  if (length == 0) return Syndrome::ok;  // InfiniBand: the key of an empty access is not checked
  const size_t size = out.size();
  const u64 last = size == 0 ? 0 : out.back().length;
  Walk walk(table, who, out);
  try {
    if (walk.visit(key, address, length, need, 0)) return Syndrome::ok;
  } catch (const std::bad_alloc &) {
    SOFTHCA_LOG(error, "mkey %#x: out of memory", key);
  }
  out.resize(size);
  if (size != 0) out.back().length = last;
  if (missing == nullptr || walk.missing().length == 0) return Syndrome::local_protection;
  *missing = walk.missing();
  return Syndrome::page_fault;
}

Syndrome resolve_below_signature(const MkeyTable &table, u32 key, u64 address, u64 length, u32 need,
                                 const Requester &who, SpanList &out) {
  if (length == 0) return Syndrome::ok;
  return Walk(table, who, out, true).visit(key, address, length, need, 0)
             ? Syndrome::ok
             : Syndrome::local_protection;
}

bool invalidate(MkeyTable &table, u32 key, const Requester &who, bool remote) {
  Mkey *k = table.find(key);
  if (k == nullptr || k->tag != (key & 0xff) || k->pdn != who.pdn || k->free) return false;
  if (!indirect_kind(*k) || !k->umr_en) return false;  // memory regions are deregistered instead
  if (k->qpn != any_qpn && k->qpn != who.qpn) return false;
  if (remote && !k->remote_invalidate) return false;
  k->free = true;
  k->qpn = any_qpn;
  forget_key(k->index, who.qpn, remote ? PageSide::receive : PageSide::send);
  return true;
}

Mkey *create_devx_mkey(MkeyTable &table, const u8 *mkc, u32 translation_octowords, bool signature) {
  enum : u32 { mode_klm = 2, mode_ksm = 3 };
  enum : u32 {
    bsf_en = 1u << 30,
    length64 = 1u << 31,
    expected_sigerr = 1u << 26,
    en_rinval = 1u << 24
  };
  const u32 flags = load_be32(mkc), qpn_tag = load_be32(mkc + 4), flags_pd = load_be32(mkc + 12);
  const u32 mode = (flags >> 24 & 0x1c) | (flags >> 8 & 3);
  const u32 room = load_be32(mkc + 52);
  const u32 log_entity = mkc[59] & 0x1f;
  const bool crypto = (mkc[60] & 0x18) != 0;
  const bool has_bsf = (flags_pd & bsf_en) != 0;
  const u32 room_for_bsf = load_be32(mkc + 32);  // octowords
  const char *why = nullptr;
  if (mode != mode_klm && mode != mode_ksm) why = "access mode";
  else if (crypto) why = "crypto";
  else if ((flags_pd & expected_sigerr) != 0 || room_for_bsf != (has_bsf ? bsf_bytes / 16 : 0) ||
           (has_bsf && !signature))
    why = "signature";
  else if (translation_octowords > room || room > max_devx_octowords)
    why = "number of translations";
  else if (mode == mode_ksm && log_entity == 0) why = "entity size";
  if (why != nullptr) {
    SOFTHCA_LOG(info, "CREATE_MKEY refused: %s", why);
    return nullptr;
  }
  Mkey *k = table.create(flags_pd & 0xffffff);
  if (k == nullptr) return nullptr;
  k->kind = Mkey::Kind::indirect;
  k->free = (flags >> 30 & 1) != 0;
  k->umr_en = (flags >> 15 & 1) != 0;
  if ((flags >> 14 & 1) != 0) k->access |= access_remote_atomic;
  if ((flags >> 13 & 1) != 0) k->access |= access_remote_write;
  if ((flags >> 12 & 1) != 0) k->access |= access_remote_read;
  if ((flags >> 11 & 1) != 0) k->access |= access_local_write;
  k->local_read = (flags >> 10 & 1) != 0;
  k->qpn = qpn_tag >> 8;
  k->tag = static_cast<u8>(qpn_tag);
  k->remote_invalidate = (flags_pd & en_rinval) != 0;
  k->start = load_be64(mkc + 16);
  k->length = (flags_pd & length64) != 0 ? ~u64{0} : load_be64(mkc + 24);
  k->ksm_bytes = mode == mode_ksm ? u64{1} << log_entity : 0;
  k->max_entries = room;
  k->has_bsf = has_bsf;
  return k;
}

}  // namespace softhca
