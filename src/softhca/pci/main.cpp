// softhca-pci SOCKET: the software HCA as a PCI function of a virtual machine. Listens on that
// Unix socket, serves one connection and ends with it.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "model/device.h"
#include "pci/vfio_user.h"

using namespace softhca;

namespace {

int fail(const char *what, int error) {
  std::fprintf(stderr, "softhca-pci: %s: %s\n", what, std::strerror(error));
  return 1;
}

// The connection of the virtual machine monitor, or -1 and errno.
int accept_one(const char *path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::strcpy(address.sun_path, path);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return -1;
  unlink(path);
  if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 ||
      listen(listener, 1) != 0)
    return -1;
  int connection;
  do {
    connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  } while (connection < 0 && errno == EINTR);
  const int error = errno;
  close(listener);
  unlink(path);
  errno = error;
  return connection;
}

// A guest can make the server keep much, but not all memory of the host: what needs more
// fails. Sanitizers take more themselves.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr rlim_t most = rlim_t{4} << 30;
  rlimit limit;
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur <= most) return;
  limit.rlim_cur = most;
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr,
                 "usage: softhca-pci SOCKET\n"
                 "The software HCA as a PCI function: QEMU's vfio-user-pci connects to SOCKET.\n");
    return argc == 2 && std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
  }
  limit_memory();
  firmware::GuestMemory memory;
  {
    const std::lock_guard lock(process().mutex);
    if (const int error = process().start(); error != 0)
      return fail("cannot start the device", error);
    if (!memory.reserve()) return fail("cannot reserve addresses for the guest's memory", errno);
  }
  const int connection = accept_one(argv[1]);
  if (connection < 0) return fail(argv[1], errno);
  auto *function = new pci::Function(process().devices.at(0), memory);
  const int error = pci::serve(connection, *function, memory);
  {
    const std::lock_guard lock(process().mutex);
    delete function;
  }
  return error != 0 ? fail("the connection of QEMU failed", error) : 0;
}
