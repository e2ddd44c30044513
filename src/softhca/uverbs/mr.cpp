// Memory regions: registration, registration again, advice. Rules of
// core/uverbs_cmd.c, core/umem.c and mlx5/mr.c.
#include "uverbs/mr.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include "model/memory.h"
#include "model/paging.h"
#include "uverbs/dispatch.h"
#include "uverbs/privilege.h"

namespace softhca::uverbs {

int check_mr_access(const File &file, u32 access) {
  constexpr u32 known = (access_hugetlb << 1) - 1;
  if ((access & ~(known | access_optional_mask)) != 0) return EINVAL;
  if ((access & (access_remote_write | access_remote_atomic)) != 0 &&
      (access & access_local_write) == 0)
    return EINVAL;
  if ((access & access_on_demand) != 0 && !file.caps().odp) return EOPNOTSUPP;
  return 0;
}

namespace {

// IB_MR_REREG_*
constexpr u32 rereg_translation = 1, rereg_pd = 2, rereg_access = 4;
constexpr u32 rereg_known = rereg_translation | rereg_pd | rereg_access;

struct Range {
  u64 start = 0, length = 0, iova = 0;
  bool implicit(u32 access) const {
    return (access & access_on_demand) != 0 && start == 0 && length == ~u64{0};
  }
};

bool same_page_offset(u64 a, u64 b) { return ((a ^ b) & (page_size - 1)) == 0; }

// Lock not held meanwhile: the device goes on, as hardware does. A page takes a microsecond or two.
int probe_unlocked(u64 address, u64 length, bool writable) {
  process().mutex.unlock();
  const int error = probe(address, length, writable);
  process().mutex.lock();
  return error;
}

// Checks the range and pins it. `pinned` receives the bytes that count.
int take_range(const Range &r, u32 access, u64 &pinned,
               int (*bring_in)(u64 address, u64 length, bool writable) = probe) {
  pinned = 0;
  if (r.implicit(access)) return r.iova != 0 ? EINVAL : 0;
  const u64 end = r.start + r.length;
  if (end < r.start || end + page_size - 1 < end) return EINVAL;
  const u64 bytes = align_up(end, page_size) - (r.start & ~u64{page_size - 1});
  if (bytes == 0) return EINVAL;
  if ((access & access_on_demand) != 0) return 0;  // pages come with the faults

  if (const int error = pin(bytes); error != 0) return error;
  constexpr u32 writes =
      access_local_write | access_remote_write | access_remote_atomic | access_mw_bind;
  if (const int error = r.length == 0 ? 0 : bring_in(r.start, r.length, (access & writes) != 0);
      error != 0) {
    unpin(bytes);
    return error;
  }
  pinned = bytes;
  return 0;
}

void set_range(Mkey &key, const Range &r, u32 access) {
  key.kind = r.implicit(access) ? Mkey::Kind::implicit : Mkey::Kind::direct;
  key.start = r.iova;
  key.length = r.length;
  key.host_base = r.start;
}

int reg_mr(File &file, Attrs &attrs) {
  ib_uverbs_reg_mr req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (!same_page_offset(req.start, req.hca_va)) return EINVAL;
  int error = 0;
  if (file.objects.get<PdObject>(req.pd_handle, error) == nullptr) return error;
  if (error = check_mr_access(file, req.access_flags); error != 0) return error;
  const Range range{req.start, req.length, req.hca_va};
  u64 pinned;
  ++file.away;
  error = take_range(range, req.access_flags, pinned, probe_unlocked);
  --file.away;
  if (error != 0) return error;
  // The program may have ended what it used.
  PdObject *pd = file.open ? file.objects.get<PdObject>(req.pd_handle, error) : nullptr;
  if (pd == nullptr) {
    unpin(pinned);
    return file.open ? error : EBADF;
  }

  auto mr = std::make_unique<MrObject>(file, pd);
  mr->pinned = pinned;
  if (!mr->key) return ENOMEM;
  mr->key->access = req.access_flags;
  set_range(*mr->key.get(), range, req.access_flags);
  ib_uverbs_reg_mr_resp resp{};
  resp.mr_handle = file.objects.reserve();
  resp.lkey = resp.rkey = mr->key->key();
  if (error = respond(attrs, resp); error != 0) return error;
  file.objects.insert(resp.mr_handle, std::move(mr));
  return 0;
}

// The key survives every kind of change. On demand or not cannot be changed
// without a new range (mlx5_ib_rereg_user_mr).
int rereg_mr(File &file, Attrs &attrs) {
  ib_uverbs_rereg_mr req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.flags == 0) return EINVAL;
  if ((req.flags & ~rereg_known) != 0) return EOPNOTSUPP;
  const bool moves = (req.flags & rereg_translation) != 0;
  if (moves && !same_page_offset(req.start, req.hca_va)) return EINVAL;
  int error = 0;
  MrObject *mr = file.objects.get<MrObject>(req.mr_handle, error);
  if (mr == nullptr) return error;
  if (mr->dm) return EINVAL;
  u32 access = mr->key->access;
  if ((req.flags & rereg_access) != 0) {
    if (error = check_mr_access(file, req.access_flags); error != 0) return error;
    access = req.access_flags;
  }
  PdObject *pd = mr->pd.get();
  if ((req.flags & rereg_pd) != 0) {
    pd = file.objects.get<PdObject>(req.pd_handle, error);
    if (pd == nullptr) return error;
  }
  const Range now{mr->key->host_base, mr->key->length, mr->key->start};
  const Range range = moves ? Range{req.start, req.length, req.hca_va} : now;
  if (!moves && ((access ^ mr->key->access) & access_on_demand) != 0) return EOPNOTSUPP;
  if (moves || access != mr->key->access) {
    // Write access may be new: the pages are looked at again.
    u64 pinned;
    if (error = take_range(range, access, pinned); error != 0) return error;
    unpin(mr->pinned);
    mr->pinned = pinned;
  }

  // Before anything changes: afterwards the application must know the keys.
  const ib_uverbs_rereg_mr_resp resp{mr->key->key(), mr->key->key()};
  if (error = respond(attrs, resp); error != 0) return error;
  settle(*mr);
  mr->pd.reset(pd);
  mr->key->pdn = pd->pdn;
  mr->key->access = access;
  set_range(*mr->key.get(), range, access);
  forget_key(mr->key->index);
  return 0;
}

int mr_destroy(File &file, Attrs &attrs) {
  return destroy_settled(file, attrs, UVERBS_ATTR_DESTROY_MR_HANDLE);
}

int mr_query(File &, Attrs &attrs) {
  const auto *mr = attrs.object<MrObject>(UVERBS_ATTR_QUERY_MR_HANDLE);
  const u32 key = mr->key->key();
  if (const int error = attrs.out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, key); error != 0) return error;
  if (const int error = attrs.out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, key); error != 0) return error;
  if (const int error = attrs.out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, mr->key->length); error != 0)
    return error;
  return attrs.out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, mr->key->start);
}

// One entry of the list. Keys are checked with and without FLUSH, the range
// only when the work is done before the call returns.
int prefetch(const PdObject &pd, u64 advice, bool flush, const ib_uverbs_sge &sge) {
  const Mkey *key = process().mkeys.find(sge.lkey);
  if (key == nullptr || key->key() != sge.lkey || (key->access & access_on_demand) == 0)
    return ENOENT;
  if (key->kind != Mkey::Kind::direct && key->kind != Mkey::Kind::implicit) return EINVAL;
  if (key->pdn != pd.pdn) return EPERM;
  const bool write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  if (write && (key->access & access_local_write) == 0) return EPERM;
  if (!flush) return 0;
  if (sge.addr < key->start || sge.length > key->length ||
      sge.addr - key->start > key->length - sge.length)
    return EFAULT;
  // NO_FAULT fetches only what is present already: nothing to do, no failure.
  if (advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || sge.length == 0) return 0;
  return probe(key->host_base + (sge.addr - key->start), sge.length, write) != 0 ? EFAULT : 0;
}

int mr_advise(File &, Attrs &attrs) {
  u64 advice = 0;
  u32 flags = 0;
  attrs.constant(UVERBS_ATTR_ADVISE_MR_ADVICE, advice);
  if (const int error =
          attrs.flags(UVERBS_ATTR_ADVISE_MR_FLAGS, IB_UVERBS_ADVISE_MR_FLAG_FLUSH, flags);
      error != 0)
    return error;
  std::vector<u8> list;
  if (const int error = attrs.bytes(UVERBS_ATTR_ADVISE_MR_SGE_LIST, list); error != 0) return error;
  if (list.size() % sizeof(ib_uverbs_sge) != 0) return EINVAL;
  if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  const auto *pd = attrs.object<PdObject>(UVERBS_ATTR_ADVISE_MR_PD_HANDLE);
  for (size_t i = 0; i < list.size(); i += sizeof(ib_uverbs_sge)) {
    ib_uverbs_sge sge;
    std::memcpy(&sge, list.data() + i, sizeof sge);
    if (const int error = prefetch(*pd, advice, flags != 0, sge); error != 0) return error;
  }
  return 0;
}

constexpr AttrSpec destroy_specs[] = {destroyed(UVERBS_ATTR_DESTROY_MR_HANDLE, ObjectClass::mr)};
constexpr AttrSpec query_specs[] = {
    object(UVERBS_ATTR_QUERY_MR_HANDLE, ObjectClass::mr),
    out<u32>(UVERBS_ATTR_QUERY_MR_RESP_LKEY),
    out<u32>(UVERBS_ATTR_QUERY_MR_RESP_RKEY),
    out<u64>(UVERBS_ATTR_QUERY_MR_RESP_LENGTH),
    out<u64>(UVERBS_ATTR_QUERY_MR_RESP_IOVA).optional(),
};
constexpr AttrSpec advise_specs[] = {
    object(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, ObjectClass::pd),
    constant(UVERBS_ATTR_ADVISE_MR_ADVICE),
    flags(UVERBS_ATTR_ADVISE_MR_FLAGS),
    in_bytes(UVERBS_ATTR_ADVISE_MR_SGE_LIST, sizeof(ib_uverbs_sge)),
};
constexpr Method methods[] = {
    {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, "MR/DESTROY", mr_destroy, destroy_specs},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, "MR/QUERY", mr_query, query_specs},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, "MR/ADVISE", mr_advise, advise_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_REG_MR, "WRITE/REG_MR", sizeof(ib_uverbs_reg_mr),
     sizeof(ib_uverbs_reg_mr_resp), reg_mr},
    {IB_USER_VERBS_CMD_REREG_MR, "WRITE/REREG_MR", sizeof(ib_uverbs_rereg_mr),
     sizeof(ib_uverbs_rereg_mr_resp), rereg_mr},
};

}  // namespace

constinit const Family mr_family = {methods, commands};

}  // namespace softhca::uverbs
