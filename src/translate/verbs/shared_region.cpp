#include "translate/verbs/shared_region.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/keep_errno.h"
#include "base/lock.h"
#include "base/real.h"
#include "trace/diagnose.h"
#include "translate/convert/access_convert.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId registering = EntryId::ibv_exp_reg_mr;
constexpr EntryId sharing = EntryId::ibv_exp_reg_shared_mr;
constexpr char folder[] = "/dev/shm", prefix[] = "libibverbs_exp-";

std::string path_of(const ibv_context *context, std::uint32_t handle) {
  std::string path = folder;
  path.append("/").append(prefix).append(context->device->name).append("-");
  return path.append(std::to_string(handle));
}

// (mode <- exp)
mode_t mode_of(std::uint64_t access) {
  const auto when = [&](std::uint64_t bit, mode_t mode) { return (access & bit) != 0 ? mode : 0; };
  return when(IBV_EXP_ACCESS_SHARED_MR_USER_READ, S_IRUSR) |
         when(IBV_EXP_ACCESS_SHARED_MR_USER_WRITE, S_IWUSR) |
         when(IBV_EXP_ACCESS_SHARED_MR_GROUP_READ, S_IRGRP) |
         when(IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE, S_IWGRP) |
         when(IBV_EXP_ACCESS_SHARED_MR_OTHER_READ, S_IROTH) |
         when(IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE, S_IWOTH);
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  int keep() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

bool is_same(const File &file, const std::string &path) {
  struct stat opened {
  }, named{};
  return ::fstat(file.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// What processes have left that died without a word. Who opens such a file for the same reason
// waits for no lock, so that one of them removes it.
void sweep() {
  DIR *const all = ::opendir(folder);
  if (all == nullptr) return;
  while (const dirent *entry = ::readdir(all)) {
    if (std::strncmp(entry->d_name, prefix, sizeof(prefix) - 1) != 0) continue;
    const std::string path = std::string(folder).append("/").append(entry->d_name);
    const File file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 && is_same(file, path))
      ::unlink(path.c_str());
  }
  ::closedir(all);
}

// A file without a name, locked. Its memory is reserved: a write to a page that the full file
// system cannot give would be SIGBUS.
int make_file(std::uint64_t access, std::size_t length) {
  File file(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return -1;
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(length)); error != 0) {
    errno = error == ENOSPC || error == EFBIG ? ENOMEM : error;
    return -1;
  }
  if (::fchmod(file.get(), mode_of(access)) != 0) return -1;
  return file.keep();
}

bool give_name(const File &file, const std::string &path) {
  const std::string now = std::string("/proc/self/fd/").append(std::to_string(file.get()));
  return ::linkat(AT_FDCWD, now.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

bool is_taken(const std::string &path) { return ::access(path.c_str(), F_OK) == 0; }

// A region with a handle that no other process of this machine shares. Handles count up for each
// open device: those that others share are used up by regions of one page, until the end.
Result<ibv_mr *> register_named(const ibv_exp_reg_mr_in &in, const File &file, void *start) {
  constexpr std::size_t most = 1024, page = 4096;
  const auto reg = [&](std::size_t length) {
    errno = 0;
    return OwnedReal<ibv_mr>(ibv_reg_mr(in.pd, start, length, to_modern_access(in.exp_access)));
  };
  const auto path = [&](const ibv_mr &region) { return path_of(in.pd->context, region.handle); };
  std::vector<OwnedReal<ibv_mr>> passed;
  while (passed.size() < most) {
    passed.reserve(passed.size() + 1);
    {
      OwnedReal<ibv_mr> small = reg(std::min(page, in.length));
      if (small == nullptr) return Error{errno != 0 ? errno : EINVAL};
      if (is_taken(path(*small))) {
        passed.push_back(std::move(small));
        continue;
      }
    }
    OwnedReal<ibv_mr> whole = reg(in.length);
    if (whole == nullptr) return Error{errno != 0 ? errno : EINVAL};
    if (give_name(file, path(*whole))) return whole.release();
    if (errno != EEXIST) return Error{errno};
  }
  return Error{EBUSY};
}

}  // namespace

Mapping map(void *where, std::size_t length, int protection, int flags, int file) {
  void *const at = ::mmap(where, length, protection,
                          flags | (where != nullptr ? MAP_FIXED_NOREPLACE : 0), file, 0);
  if (at == MAP_FAILED) return {};
  if (where == nullptr || at == where) return {at, length};
  // A kernel without MAP_FIXED_NOREPLACE takes the address as a hint.
  ::munmap(at, length);
  errno = EEXIST;
  return {};
}

void keep_memory(ContextState &state, const ibv_mr *mr, const OwnedMemory &memory) {
  OwnedMemory stale{};
  {
    const MutexGuard guard(state.mutex);
    stale = std::exchange(state.owned_memory[mr], memory);
    special_regions = true;
  }
  // Left by a region that was released without our seeing it, and so free.
  release(state, stale);
}

Result<ibv_mr *> register_shared(ContextState &state, ibv_exp_reg_mr_in &in) {
  if (!is_provided(in))
    return invalid(registering, "exp_access", in.exp_access,
                   "sharing needs IBV_EXP_ACCESS_ALLOCATE_MR or IBV_EXP_REG_MR_CREATE_CONTIG");
  const KeepErrno keep;
  sweep();
  File file(make_file(in.exp_access, in.length));
  if (!file) return keep.reason();
  Mapping view = map(in.addr, in.length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  if (view.address() == nullptr) return keep.reason();
  const auto made = register_named(in, file, view.address());
  if (!made) return made;
  OwnedReal<ibv_mr> mr(made.value());
  try {
    keep_memory(state, mr.get(), {view.address(), in.length, file.get(), mr->handle});
  } catch (...) {
    ::unlink(path_of(state.context, mr->handle).c_str());
    throw;
  }
  static_cast<void>(file.keep());
  in.addr = view.keep().address;
  return mr.release();
}

Result<ibv_mr *> reg_shared_mr(ContextState &state, ibv_exp_reg_shared_mr_in *in) {
  if ((in->comp_mask & ~std::uint32_t{IBV_EXP_REG_SHARED_MR_RESERVED - 1}) != 0)
    return invalid(sharing, "comp_mask", in->comp_mask, "unknown bits");
  if (const auto access =
          check_bits(sharing, "exp_access", in->exp_access, bits_of<"ibv_exp_access_flags">());
      !access)
    return access.failure();
  constexpr std::uint64_t of_owner = sharing_access | IBV_EXP_ACCESS_ALLOCATE_MR;
  if ((in->exp_access & of_owner) != 0)
    return invalid(sharing, "exp_access", in->exp_access,
                   "ALLOCATE_MR and SHARED_MR_* are for ibv_exp_reg_mr");
  constexpr std::uint64_t writing =
      IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_REMOTE_ATOMIC;
  const bool writes = (in->exp_access & writing) != 0;

  const KeepErrno keep;
  const File file(::open(path_of(state.context, in->mr_handle).c_str(),
                         (writes ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno != ENOENT) return keep.reason();
  struct stat facts {};
  if (!file || ::flock(file.get(), LOCK_SH | LOCK_NB) == 0 || ::fstat(file.get(), &facts) != 0 ||
      !S_ISREG(facts.st_mode))
    return invalid(sharing, "mr_handle", in->mr_handle,
                   "no process shares a region with this handle");
  Mapping view = map(in->addr, static_cast<std::size_t>(facts.st_size),
                     PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, file.get());
  if (view.address() == nullptr) return keep.reason();
  errno = 0;
  OwnedReal<ibv_mr> mr(
      ibv_reg_mr(in->pd, view.address(), view.get().length, to_modern_access(in->exp_access)));
  if (mr == nullptr) return keep.reason();
  keep_memory(state, mr.get(), view.get());
  view.keep();
  return mr.release();
}

void stop_sharing(const ContextState &state, OwnedMemory &memory) noexcept {
  if (memory.file < 0) return;
  const KeepErrno keep;
  try {
    ::unlink(path_of(state.context, memory.handle).c_str());
  } catch (const std::bad_alloc &) {
    // The file stays, without a lock: the next process that shares a region removes it (sweep()).
  }
  ::close(std::exchange(memory.file, -1));
}

void release(const ContextState &state, OwnedMemory memory) noexcept {
  if (memory.address == nullptr) return;
  const KeepErrno keep;
  stop_sharing(state, memory);
  ::munmap(memory.address, memory.length);
}

}  // namespace ibvexp::translate
