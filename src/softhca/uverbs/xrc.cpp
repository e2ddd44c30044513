// XRC domains, and opening a target QP by its number.
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "uverbs/dispatch.h"
#include "uverbs/queue.h"

namespace softhca::uverbs {

namespace {

// ib_uverbs_open_xrcd. Domains are named by an inode, within this process.
int open_xrcd(File &file, Attrs &attrs) {
  ib_uverbs_open_xrcd req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (!file.caps().xrc) return EOPNOTSUPP;
  const int fd = static_cast<int>(req.fd);
  XrcDomain *domain = nullptr;
  struct stat st {};
  if (fd != -1) {
    // Through the kernel, not through the interposed fstat.
    if (syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) != 0) return EBADF;
    domain = find_xrc_domain(file.device_number, st.st_dev, st.st_ino);
    if (domain == nullptr && (req.oflags & O_CREAT) == 0) return EAGAIN;
    if (domain != nullptr && (req.oflags & O_EXCL) != 0) return EINVAL;
  }
  const ib_uverbs_open_xrcd_resp resp{file.objects.reserve()};
  if (const int error = respond(attrs, resp); error != 0) return error;
  if (domain == nullptr) {
    domain = make_xrc_domain(file.device_number);
    domain->named = fd != -1;
    domain->dev = st.st_dev;
    domain->inode = st.st_ino;
  }
  file.objects.insert(resp.xrcd_handle, std::make_unique<XrcdObject>(file, domain));
  return 0;
}

int xrcd_destroy(File &file, Attrs &attrs) {
  return destroy(file, attrs, UVERBS_ATTR_DESTROY_XRCD_HANDLE);
}

// ib_uverbs_open_qp: a further handle. `pd_handle` holds the XRC domain.
int open_qp(File &file, Attrs &attrs) {
  ib_uverbs_open_qp req{};
  if (const int error = request(attrs, req); error != 0) return error;
  int error = 0;
  XrcdObject *xrcd = file.objects.get<XrcdObject>(req.pd_handle, error);
  if (xrcd == nullptr) return error;
  const auto it = xrcd->domain->targets.find(req.qpn);
  if (req.qp_type != IB_UVERBS_QPT_XRC_TGT || it == xrcd->domain->targets.end()) return EINVAL;
  SharedQp *shared = it->second;

  ib_uverbs_create_qp_resp resp{};
  resp.qp_handle = file.objects.reserve();
  resp.qpn = shared->qp->qpn;
  if (error = respond(attrs, resp); error != 0) return error;
  auto object = std::make_unique<QpObject>(file);
  object->open_target(shared, xrcd, req.user_handle, file.async);
  file.objects.insert(resp.qp_handle, std::move(object));
  return 0;
}

constexpr AttrSpec destroy_specs[] = {
    destroyed(UVERBS_ATTR_DESTROY_XRCD_HANDLE, ObjectClass::xrcd)};
constexpr Method methods[] = {
    {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, "XRCD/DESTROY", xrcd_destroy, destroy_specs},
};
constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_OPEN_XRCD, "WRITE/OPEN_XRCD", sizeof(ib_uverbs_open_xrcd),
     sizeof(ib_uverbs_open_xrcd_resp), open_xrcd},
    {IB_USER_VERBS_CMD_OPEN_QP, "WRITE/OPEN_QP", sizeof(ib_uverbs_open_qp),
     sizeof(ib_uverbs_create_qp_resp), open_qp},
};

}  // namespace

constinit const Family xrc_family = {methods, commands};

}  // namespace softhca::uverbs
