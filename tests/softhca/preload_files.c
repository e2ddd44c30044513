// What a program sees of the device through libc: nodes, sysfs, descriptors.
// Run once with the library preloaded and once linked to it.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

// A call that must fail with an errno.
#define REFUSED(call, error) \
  do {                       \
    errno = 0;               \
    CHECK((call) < 0);       \
    CHECK(errno == (error)); \
  } while (0)

#define NODE "/dev/infiniband/uverbs0"
#define IBDEV "/sys/class/infiniband/mlx5_0"

static int early_result;  // the interface of neighbourhood() shows that it was configured

// Runs before the constructors of all libraries, ours included.
static void early(void) {
  struct stat st;
  early_result = stat(NODE, &st) == 0 && S_ISCHR(st.st_mode) && access("/", F_OK) == 0;
}
__attribute__((section(".preinit_array"), used)) static void (*const early_entry)(void) = early;

static unsigned sysfs_device(void) {
  unsigned major_number, minor_number;
  FILE *f = fopen("/sys/class/infiniband_verbs/uverbs0/dev", "r");
  CHECK(f);
  CHECK(fscanf(f, "%u:%u", &major_number, &minor_number) == 2);
  fclose(f);
  return (unsigned)makedev(major_number, minor_number);
}

static void check_node(const struct stat *st) {
  CHECK(S_ISCHR(st->st_mode));
  CHECK(st->st_rdev == sysfs_device());
}

static void status(void) {
  struct stat st;
  struct statx sx;
  CHECK(stat(NODE, &st) == 0);
  check_node(&st);
  CHECK(lstat(NODE, &st) == 0);
  check_node(&st);
  CHECK(fstatat(AT_FDCWD, NODE, &st, AT_SYMLINK_NOFOLLOW) == 0);
  check_node(&st);
  CHECK(statx(AT_FDCWD, NODE, 0, STATX_BASIC_STATS, &sx) == 0);
  CHECK(S_ISCHR(sx.stx_mode) && makedev(sx.stx_rdev_major, sx.stx_rdev_minor) == sysfs_device());

  CHECK(stat("/dev/infiniband", &st) == 0 && S_ISDIR(st.st_mode));
  CHECK(stat(IBDEV, &st) == 0 && S_ISDIR(st.st_mode));
  CHECK(lstat(IBDEV, &st) == 0 && S_ISLNK(st.st_mode));
  REFUSED(stat("/dev/infiniband/uverbs7", &st), ENOENT);
  REFUSED(stat("/dev/infiniband/uverbs00", &st), ENOENT);
  REFUSED(stat("/dev/infinibandx", &st), ENOENT);
  REFUSED(stat("/sys/class/infiniband/none", &st), ENOENT);

  CHECK(access(NODE, R_OK | W_OK) == 0);
  CHECK(access(IBDEV "/node_guid", R_OK) == 0);
  CHECK(faccessat(AT_FDCWD, IBDEV "/node_guid", R_OK, 0) == 0);
  REFUSED(access(IBDEV "/nothing", F_OK), ENOENT);
}

static void reading(void) {
  char text[64] = "";
  int fd = open(IBDEV "/node_type", O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  CHECK(read(fd, text, sizeof text - 1) > 0);
  CHECK(strcmp(text, "1: CA\n") == 0);
  close(fd);
  REFUSED(open(IBDEV "/node_type", O_RDWR), EACCES);
  REFUSED(open(IBDEV "/node_type", O_WRONLY | O_TRUNC), EACCES);
  REFUSED(open(IBDEV "/fresh", O_WRONLY | O_CREAT, 0600), ENOENT);
  REFUSED(open("/dev/infiniband/rdma_cm_of_another_world", O_RDWR), ENOENT);
  errno = 0;
  CHECK(fopen(IBDEV "/node_type", "w") == NULL && errno == EACCES);

  // As libibverbs reads: relative to the class directory.
  DIR *dir = opendir("/sys/class/infiniband_verbs");
  CHECK(dir);
  int found = 0;
  for (struct dirent *e; (e = readdir(dir));) found += !strcmp(e->d_name, "uverbs0");
  CHECK(found == 1);
  int device = openat(dirfd(dir), "uverbs0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(device >= 0);
  fd = openat(device, "ibdev", O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text) == 7 && !memcmp(text, "mlx5_0\n", 7));
  close(fd);
  close(device);
  closedir(dir);

  struct dirent **names;
  int n = scandir(IBDEV "/ports", &names, NULL, alphasort);
  CHECK(n == 3);
  while (n > 0) free(names[--n]);
  free(names);
}

static void links(void) {
  char path[PATH_MAX];
  ssize_t n = readlink(IBDEV, path, sizeof path - 1);
  CHECK(n > 0);
  path[n] = 0;
  CHECK(strcmp(path, "../../devices/pci5348:00/5348:00:00.0/infiniband/mlx5_0") == 0);
  CHECK(realpath(IBDEV "/device", path));
  CHECK(strcmp(path, "/sys/devices/pci5348:00/5348:00:00.0") == 0);
  CHECK(access(path, F_OK) == 0);
  char *allocated = realpath(NODE, NULL);
  CHECK(allocated && strcmp(allocated, NODE) == 0);
  free(allocated);
  CHECK(realpath("/usr/../usr", path) && strcmp(path, "/usr") == 0);
}

// In listings of what else the machine has, and by bus address.
static int listed(const char *directory, const char *name) {
  DIR *dir = opendir(directory);
  CHECK(dir);
  int found = 0;
  for (struct dirent *e; (e = readdir(dir));) found += !strcmp(e->d_name, name);
  closedir(dir);
  return found;
}

#define PCI "/sys/bus/pci/devices/5348:00:00.0"
static void neighbourhood(void) {
  char text[512] = "", path[PATH_MAX];
  CHECK(listed("/sys/class", "infiniband") == 1);
  CHECK(listed("/sys/class/", "infiniband_verbs") == 1);
  CHECK(access("/sys/class/net", F_OK) != 0 || listed("/sys/class", "net") == 1);
  CHECK(access("/sys/class/net/lo", F_OK) != 0 || listed("/sys/class/net", "lo") == 1);
  CHECK(listed("/sys/bus/pci/devices", "5348:00:00.0") == 1);
  CHECK(realpath(PCI, path) && strcmp(path, "/sys/devices/pci5348:00/5348:00:00.0") == 0);
  CHECK(access(PCI "/vendor", R_OK) == 0 && access(PCI "/resource", R_OK) == 0);
  int fd = open(PCI "/uevent", O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
  close(fd);
  CHECK(strstr(text, "\nPCI_SLOT_NAME=5348:00:00.0\n") && strstr(text, "DRIVER=mlx5_core\n"));
  ssize_t n = readlink(PCI "/driver", path, sizeof path - 1);
  CHECK(n > 0);
  path[n] = 0;
  CHECK(strcmp(strrchr(path, '/'), "/mlx5_core") == 0);

  // The interface that the configuration gives to the port.
  CHECK(realpath("/sys/class/net/softhca0/device", path));
  CHECK(strcmp(path, "/sys/devices/pci5348:00/5348:00:00.0") == 0);
  CHECK(listed("/sys/class/net/softhca0/device/infiniband", "mlx5_0") == 1);
  REFUSED(access("/sys/class/net/softhca1/device", F_OK), ENOENT);
}

// Nodes are open to all users, whichever made the fabric.
static void permissions(void) {
  REFUSED(access(NODE, X_OK), EACCES);
  CHECK(eaccess("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0);
  pid_t pid = fork();
  if (pid == 0) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
    _exit(access(NODE, R_OK | W_OK) == 0 && faccessat(AT_FDCWD, NODE, W_OK, 0) == 0 ? 0 : 1);
  }
  int child;
  CHECK(pid > 0 && waitpid(pid, &child, 0) == pid && child == 0);
}

static int is_device(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode);
}

static void descriptors(void) {
  int fd = open(NODE, O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0);
  CHECK(is_device(fd));
  CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  struct stat st;
  CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0);
  check_node(&st);
  REFUSED(ioctl(fd, TCGETS, &st), ENOTTY);

  int copies[4];
  copies[0] = dup(fd);
  copies[1] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
  copies[2] = dup2(fd, 200);
  copies[3] = dup3(fd, 201, O_CLOEXEC);
  CHECK(copies[1] >= 100 && copies[2] == 200 && copies[3] == 201);
  for (int i = 0; i < 4; ++i) CHECK(is_device(copies[i]));
  CHECK(dup2(fd, fd) == fd && is_device(fd));

  // A descriptor number that changes hands is what it is now.
  int null = open("/dev/null", O_RDWR);
  CHECK(dup2(null, copies[2]) == copies[2]);
  CHECK(fstat(copies[2], &st) == 0 && st.st_rdev == makedev(1, 3));
  close(copies[2]);
  CHECK(dup2(fd, null) == null && is_device(null));
  close(null);
  REFUSED(dup2(999, copies[0]), EBADF);
  CHECK(is_device(copies[0]));

  // vfork() lends the parent's memory to the child: what it closes stays open.
  pid_t pid = vfork();
  if (pid == 0) {
    close(fd);
    dup2(1, copies[0]);
    _exit(0);
  }
  CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
  CHECK(is_device(fd) && is_device(copies[0]));

  pid = fork();
  if (pid == 0) {
    int good = is_device(fd);
    close(fd);
    int fresh = open(NODE, O_RDWR);
    _exit(good && fresh >= 0 && is_device(fresh) ? 0 : 1);
  }
  int child;
  CHECK(pid > 0 && waitpid(pid, &child, 0) == pid && child == 0);
  CHECK(is_device(fd));

  CHECK(close_range(201, 201, 0) == 0);
  CHECK(close_range((unsigned)copies[1], ~0u, CLOSE_RANGE_CLOEXEC) == 0);
  CHECK(is_device(copies[1]));
  CHECK(close_range((unsigned)copies[1], ~0u, 0) == 0);
  REFUSED(fstat(copies[1], &st), EBADF);
  close(copies[0]);
  close(fd);
  null = open("/dev/null", O_RDWR);  // the same number again
  CHECK(fstat(null, &st) == 0 && st.st_rdev == makedev(1, 3));
  close(null);
}

static void sockets(void) {
  REFUSED(socket(AF_NETLINK, SOCK_STREAM, 20), ESOCKTNOSUPPORT);
  int fd = socket(AF_NETLINK, SOCK_RAW, 0);
  CHECK(fd >= 0);
  close(fd);
}

static void locks(void) {
  pthread_spinlock_t lock;
  pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
  CHECK(pthread_spin_lock(&lock) == 0);
  CHECK(pthread_spin_trylock(&lock) == EBUSY);
  CHECK(pthread_spin_unlock(&lock) == 0);
}

// A shell that goes into the tree and reads what is there.
static void standing(void) {
  char before[PATH_MAX], line[16];
  CHECK(getcwd(before, sizeof before));
  CHECK(chdir(IBDEV "/ports/1") == 0);
  FILE *f = fopen("state", "r");
  CHECK(f && fgets(line, sizeof line, f));
  fclose(f);
  CHECK(strcmp(line, "4: ACTIVE\n") == 0);
  CHECK(chdir(before) == 0);
  REFUSED(chdir(IBDEV "/nothing"), ENOENT);
}

// errno is not touched by what succeeds, ours or not.
static void quiet(void) {
  struct stat st;
  errno = 77;
  int fd = open(NODE, O_RDWR);
  CHECK(fd >= 0 && fstat(fd, &st) == 0 && stat(IBDEV, &st) == 0 && access(NODE, F_OK) == 0);
  int copy = dup(fd);
  CHECK(copy >= 0 && close(copy) == 0 && close(fd) == 0);
  CHECK(errno == 77);
}

int main(void) {
  CHECK(early_result);
  status();
  reading();
  links();
  neighbourhood();
  permissions();
  quiet();
  descriptors();
  sockets();
  locks();
  standing();
  return 0;
}
