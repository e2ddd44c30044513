// Commands to the software HCA as a program may issue them: attributes of the ioctl
// interface, and the older write interface inside of it.
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "bytes.h"
#include "uverbs/file.h"

namespace {

using namespace softhca;

struct Message {
  alignas(8) std::uint8_t bytes[sizeof(ib_uverbs_ioctl_hdr) + 24 * sizeof(ib_uverbs_attr)] = {};
  ib_uverbs_ioctl_hdr &header() { return *reinterpret_cast<ib_uverbs_ioctl_hdr *>(bytes); }
  void add(std::uint16_t id, std::uint16_t length, std::uint64_t value, std::uint16_t flags = 0) {
    ib_uverbs_attr &a = header().attrs[header().num_attrs++];
    a.attr_id = id;
    a.len = length;
    a.flags = flags;
    a.data = value;
  }
  void issue(File *file) {
    header().length =
        static_cast<u16>(sizeof(ib_uverbs_ioctl_hdr) + header().num_attrs * sizeof(ib_uverbs_attr));
    static_cast<void>(uverbs_ioctl(file, &header()));
  }
};

constexpr std::size_t memory_bytes = 1 << 16;
std::uint8_t *good, *read_only, *gone;

void *map(int protection) {
  return mmap(nullptr, memory_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void get_context(File *file) {
  Message m;
  m.header().object_id = UVERBS_OBJECT_DEVICE;
  m.header().method_id = UVERBS_METHOD_GET_CONTEXT;
  m.header().driver_id = 1;  // RDMA_DRIVER_MLX5
  std::uint8_t request[32] = {}, reply[128];
  request[18] = 1;  // max_cqe_version
  m.add(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, reinterpret_cast<std::uint64_t>(reply));
  m.add(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, reinterpret_cast<std::uint64_t>(reply + 8));
  m.add(UVERBS_ATTR_UHW_IN, sizeof(request), reinterpret_cast<std::uint64_t>(request));
  m.add(UVERBS_ATTR_UHW_OUT, 72, reinterpret_cast<std::uint64_t>(reply + 16));
  m.issue(file);
}

std::uint64_t value_of(Bytes &in) {
  switch (in.take<std::uint8_t>() % 8) {
    case 0: return reinterpret_cast<std::uint64_t>(read_only);
    case 1: return reinterpret_cast<std::uint64_t>(gone);
    case 2: return in.take<std::uint64_t>() | std::uint64_t{1} << 62;  // nowhere
    case 3:
    case 4: return in.take<std::uint8_t>();  // a handle
    default: return reinterpret_cast<std::uint64_t>(good) + in.below(64) * 8;
  }
}

void command(Bytes &in, File *file) {
  in.take_into(good, 128);
  for (int i = in.take<std::uint8_t>() % 4; i != 0; --i) {
    const std::uint64_t value = value_of(in);
    std::memcpy(good + in.below(16) * 8, &value, 8);
  }
  Message m;
  m.header().driver_id = 1;
  const auto object = in.take<std::uint8_t>(), method = in.take<std::uint8_t>();
  m.header().object_id = static_cast<u16>((object % 32) | (object & 0x80) << 5);
  m.header().method_id = static_cast<u16>((method % 32) | (method & 0x80) << 5);
  if ((object & 0x60) == 0x60) {
    m.header().object_id = UVERBS_OBJECT_DEVICE;
    m.header().method_id = UVERBS_METHOD_INVOKE_WRITE;
    m.add(UVERBS_ATTR_CORE_IN, in.take<std::uint8_t>(), value_of(in));
    m.add(UVERBS_ATTR_CORE_OUT, in.take<std::uint8_t>(), value_of(in));
    m.add(UVERBS_ATTR_WRITE_CMD, 0,
          (method % 64) | (in.take<std::uint8_t>() % 2 != 0 ? 0x80000000u : 0),
          UVERBS_ATTR_F_MANDATORY);
  }
  for (std::uint32_t n = in.take<std::uint8_t>() % 12; n != 0; --n) {
    const auto id = in.take<std::uint8_t>();
    std::uint16_t length = in.take<std::uint8_t>();
    if (length == 0xff) length = in.take<std::uint16_t>();
    m.add(static_cast<u16>((id % 16) | (id & 0x80) << 5), length, value_of(in),
          in.take<std::uint8_t>() % 4);
  }
  m.issue(file);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  setenv("SOFTHCA_LOG", "error", 1);
  setenv("SOFTHCA_FABRIC", ("fuzz-" + std::to_string(getpid())).c_str(), 1);
  setenv("SOFTHCA_LINK", "eth", 0);
  good = static_cast<std::uint8_t *>(map(PROT_READ | PROT_WRITE));
  read_only = static_cast<std::uint8_t *>(map(PROT_READ));
  gone = static_cast<std::uint8_t *>(map(PROT_NONE));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Bytes in(data, size);
  const int fd = uverbs_open(0, O_RDWR | O_CLOEXEC);
  PROMISE(fd >= 0);
  File *const file = uverbs_file(fd);
  if (in.take<std::uint8_t>() % 16 != 0) get_context(file);
  for (int i = 0; i < 64 && !in.empty(); ++i) command(in, file);
  uverbs_close(fd);
  close(fd);
  return 0;
}
