// Queues made by firmware commands (DEVX): their rings and doorbell records lie in
// umems, and only the program posts to them and polls them.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "catch.h"

namespace devx {

inline void store32(uint8_t *p, uint32_t v) {
  v = htobe32(v);
  std::memcpy(p, &v, sizeof v);
}
inline uint32_t load32(const uint8_t *p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return be32toh(v);
}

// A command's box. Fields count bits from the first byte's most significant one.
class Box {
 public:
  explicit Box(size_t bytes, uint32_t opcode = 0) : bytes_(bytes) { put(0, 16, opcode); }
  void put(uint32_t bit, uint32_t width, uint32_t value) {
    uint8_t *word = bytes_.data() + bit / 32 * 4;
    const uint32_t shift = 32 - bit % 32 - width;
    const uint32_t mask = (width == 32 ? ~0u : (1u << width) - 1) << shift;
    store32(word, (load32(word) & ~mask) | (value << shift & mask));
  }
  uint32_t get(uint32_t bit, uint32_t width) const {
    const uint32_t word = load32(bytes_.data() + bit / 32 * 4) >> (32 - bit % 32 - width);
    return width == 32 ? word : word & ((1u << width) - 1);
  }
  uint8_t *at(uint32_t byte) { return bytes_.data() + byte; }
  const uint8_t *data() const { return bytes_.data(); }
  uint8_t *data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  uint32_t status() const { return bytes_[0]; }

 private:
  std::vector<uint8_t> bytes_;
};

constexpr uint32_t bad_op = 0x2, bad_param = 0x3, bad_resource = 0x5, bad_qp_state = 0x10,
                   bad_input_length = 0x50;

struct Context {
  Context() {
    ibv_device **list = ibv_get_device_list(nullptr);
    REQUIRE((list != nullptr && list[0] != nullptr));
    mlx5dv_context_attr attr{};
    attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    ctx = mlx5dv_open_device(list[0], &attr);
    ibv_free_device_list(list);
    REQUIRE(ctx != nullptr);
    pd = ibv_alloc_pd(ctx);
    uar = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_BF);
    // Linux has none where writes are not combined.
    if (uar == nullptr) uar = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
    REQUIRE((pd != nullptr && uar != nullptr));
    REQUIRE(ibv_query_port(ctx, 1, &port) == 0);
    REQUIRE(ibv_query_gid(ctx, 1, 0, &gid) == 0);
    REQUIRE(mlx5dv_devx_query_eqn(ctx, 0, &eqn) == 0);
    mlx5dv_pd out{};
    mlx5dv_obj o{};
    o.pd = {pd, &out};
    REQUIRE(mlx5dv_init_obj(&o, MLX5DV_OBJ_PD) == 0);
    pdn = out.pdn;
  }
  ~Context() {
    mlx5dv_devx_free_uar(uar);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(ctx) == 0);
  }
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;
  bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }

  ibv_context *ctx = nullptr;
  ibv_pd *pd = nullptr;
  uint32_t pdn = 0, eqn = 0;
  mlx5dv_devx_uar *uar = nullptr;
  ibv_port_attr port{};
  ibv_gid gid{};
};

// Pages of memory, registered or not.
class Umem {
 public:
  Umem(const Context &c, size_t bytes, uint32_t access = IBV_ACCESS_LOCAL_WRITE) {
    memory_ = static_cast<uint8_t *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    std::memset(memory_, 0, (bytes + 4095) / 4096 * 4096);
    umem_ = mlx5dv_devx_umem_reg(c.ctx, memory_, bytes, access);
    REQUIRE(umem_ != nullptr);
  }
  ~Umem() {
    if (umem_ != nullptr) CHECK(deregister() == 0);
    std::free(memory_);
  }
  Umem(const Umem &) = delete;
  Umem &operator=(const Umem &) = delete;
  int deregister() {
    const int error = mlx5dv_devx_umem_dereg(umem_);
    if (error == 0) umem_ = nullptr;
    return error;
  }
  uint8_t *at(size_t offset) const { return memory_ + offset; }
  uint32_t *record(size_t offset) const { return reinterpret_cast<uint32_t *>(at(offset)); }
  uint32_t id() const { return umem_->umem_id; }

 private:
  uint8_t *memory_;
  mlx5dv_devx_umem *umem_;
};

// An object of a command; number 0: refused.
class Object {
 public:
  Object() = default;
  Object(const Context &c, const Box &in) { create(c, in); }
  ~Object() {
    if (object != nullptr) CHECK(destroy() == 0);
  }
  Object(const Object &) = delete;
  Object &operator=(const Object &) = delete;

  void create(const Context &c, const Box &in) {
    Box out(16);
    object = mlx5dv_devx_obj_create(c.ctx, in.data(), in.size(), out.data(), out.size());
    status = out.status();
    if (object != nullptr) number = out.get(72, 24);
  }
  int destroy() {
    const int error = mlx5dv_devx_obj_destroy(object);
    if (error == 0) object = nullptr;
    return error;
  }
  // Errno values; `status` of the last one.
  int modify(const Box &in) {
    Box out(16);
    const int error = mlx5dv_devx_obj_modify(object, in.data(), in.size(), out.data(), out.size());
    status = out.status();
    return error;
  }
  int query(const Box &in, Box &out) {
    const int error = mlx5dv_devx_obj_query(object, in.data(), in.size(), out.data(), out.size());
    status = out.status();
    return error;
  }
  // A box for a command about this object.
  Box command(uint32_t opcode, size_t bytes = 16) const {
    Box in(bytes, opcode);
    in.put(72, 24, number);
    return in;
  }

  mlx5dv_devx_obj *object = nullptr;
  uint32_t number = 0, status = 0;
};

// Why a command was refused: the firmware's status.
inline uint32_t refused(const Context &c, const Box &in) {
  errno = 0;
  const Object o(c, in);
  CHECK(o.object == nullptr);
  CHECK(errno == EREMOTEIO);
  return o.status;
}

// CREATE_CQ over a ring at the beginning of a umem, and a record.
inline Box create_cq(const Context &c, uint32_t log_entries, uint32_t ring, uint32_t record,
                     uint32_t record_offset) {
  constexpr uint32_t cqc = 128;
  Box in(272, 0x400);
  in.put(cqc + 99, 5, log_entries);
  in.put(cqc + 104, 24, c.uar->page_id);
  in.put(cqc + 184, 8, c.eqn);
  in.put(cqc + 32, 32, record);
  in.put(cqc + 480, 32, record_offset);
  in.put(704, 32, ring);
  return in;
}

class Cq {
 public:
  static constexpr uint32_t log_entries = 6, entries = 1u << log_entries;

  explicit Cq(const Context &c) : umem(c, 8192), uar_(c.uar) {
    for (uint32_t i = 0; i < entries; ++i) umem.at(i * 64)[63] = 0xf1;  // of hardware
    object.create(c, create_cq(c, log_entries, umem.id(), umem.id(), 4096));
    REQUIRE(object.object != nullptr);
  }

  // The next completion, or nullptr. Consumed by looking at it.
  const mlx5_cqe64 *poll() {
    auto *cqe = reinterpret_cast<mlx5_cqe64 *>(umem.at(consumed_ % entries * 64));
    const uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
    if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != (consumed_ / entries & 1))
      return nullptr;
    ++consumed_;
    __atomic_store_n(umem.record(4096), htobe32(consumed_ & 0xffffff), __ATOMIC_RELEASE);
    return cqe;
  }
  const mlx5_cqe64 *wait() {
    const mlx5_cqe64 *cqe;
    while ((cqe = poll()) == nullptr) {
    }
    return cqe;
  }
  // The opcode of the next completion.
  uint32_t wait_opcode() { return wait()->op_own >> 4; }
  // An event for the next one.
  void arm() {
    const uint32_t command = consumed_ & 0xffffff;
    __atomic_store_n(umem.record(4100), htobe32(command), __ATOMIC_RELEASE);
    const uint64_t doorbell = htobe64(uint64_t{command} << 32 | object.number);
    __atomic_store_n(reinterpret_cast<uint64_t *>(static_cast<uint8_t *>(uar_->base_addr) + 0x20),
                     doorbell, __ATOMIC_RELEASE);
  }

  Umem umem;
  Object object;

 private:
  const mlx5dv_devx_uar *uar_;
  uint32_t consumed_ = 0;
};

// Where a queue pair receives.
struct Receive {
  uint32_t type = 0;  // rq_type: its own queue, a shared one (1), none (3)
  uint32_t srqn = 0;
};

constexpr uint32_t rc = 0, dci = 5;
constexpr uint32_t qpc = 192;                 // bits
constexpr uint32_t primary_path = qpc + 192;  // ads

inline Box create_qp(const Context &c, uint32_t service, uint32_t cqn, uint32_t ring,
                     uint32_t record, const Receive &receive = {}) {
  Box in(272, 0x500);
  in.put(qpc + 8, 8, service);
  in.put(qpc + 19, 2, 3);
  in.put(qpc + 40, 24, c.pdn);
  in.put(qpc + 73, 4, 4);  // 16 receive WQEs of 16 bytes
  in.put(qpc + 81, 4, 6);  // 64 WQEBBs
  in.put(qpc + 104, 24, c.uar->page_id);
  in.put(qpc + 136, 24, 0x1234);
  in.put(qpc + 1000, 24, cqn);
  in.put(qpc + 1256, 24, cqn);
  in.put(qpc + 1381, 3, receive.type);
  in.put(qpc + 1384, 24, receive.srqn);
  in.put(qpc + 1312, 32, 8192);  // the record behind the rings
  in.put(qpc + 1824, 32, record);
  in.put(2112, 32, ring);
  return in;
}

class Qp {
 public:
  static constexpr uint32_t wqebbs = 64, receive_wqes = 16;

  Qp(const Context &c, uint32_t service, uint32_t cqn, const Receive &receive = {},
     bool data_in_completions = false, uint32_t cross_channel = 0)
      : umem(c, 12288), context_(c), own_queue_(service != dci && receive.type == 0) {
    Box in = create_qp(c, service, cqn, umem.id(), umem.id(), receive);
    in.put(qpc + 1584, 8, data_in_completions ? 0x11 : 0);
    in.put(qpc + 1181, 3, cross_channel);
    object.create(c, in);
    REQUIRE(object.object != nullptr);
  }

  Box to_init() const {
    Box in = object.command(0x502, 272);
    in.put(primary_path + 296, 8, 1);
    in.put(qpc + 1168, 2, 3);  // READ and WRITE
    return in;
  }
  Box to_rtr(uint32_t remote, const Context &there) const {
    Box in = object.command(0x503, 272);
    in.put(128, 32, 1 << 2);  // and atomics
    in.put(qpc + 64, 3, IBV_MTU_1024);
    in.put(qpc + 67, 5, 30);
    in.put(qpc + 168, 24, remote);
    in.put(qpc + 1160, 3, 2);
    in.put(qpc + 1164, 4, 3);
    in.put(qpc + 1170, 1, 1);
    in.put(qpc + 1187, 5, 1);
    in.put(qpc + 1192, 24, 7);
    in.put(primary_path + 48, 16, there.port.lid);
    in.put(primary_path + 88, 8, 64);
    std::memcpy(in.at((primary_path + 128) / 8), &there.gid, sizeof there.gid);
    in.put(primary_path + 272, 16, there.ethernet() ? 0xc123 : 0);
    in.put(primary_path + 296, 8, 1);
    return in;
  }
  Box to_rts() const {
    Box in = object.command(0x504, 272);
    in.put(qpc + 904, 3, 2);
    in.put(qpc + 909, 3, 7);
    in.put(qpc + 912, 3, 7);
    in.put(qpc + 968, 24, 7);
    in.put(primary_path + 64, 5, 14);
    return in;
  }
  void connect(uint32_t remote, const Context &there) {
    REQUIRE(object.modify(to_init()) == 0);
    REQUIRE(object.modify(to_rtr(remote, there)) == 0);
    REQUIRE(object.modify(to_rts()) == 0);
  }

  // The next WQE: a control segment of `ds` units, and what comes behind it.
  uint8_t *begin(uint8_t opcode, uint8_t ds) {
    uint8_t *w = umem.at(send_offset() + posted_ % wqebbs * 64);
    std::memset(w, 0, 64);
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg *>(w), posted_, opcode, 0, object.number,
                        MLX5_WQE_CTRL_CQ_UPDATE, ds, 0, 0);
    return w;
  }
  void ring(const uint8_t *wqe, uint32_t blocks = 1) {
    posted_ = static_cast<uint16_t>(posted_ + blocks);
    __atomic_store_n(umem.record(8196), htobe32(posted_), __ATOMIC_RELEASE);
    uint64_t control;
    std::memcpy(&control, wqe, sizeof control);
    __atomic_store_n(reinterpret_cast<uint64_t *>(context_.uar->reg_addr), control,
                     __ATOMIC_RELEASE);
  }
  static void data(uint8_t *at, const ibv_mr *mr, uint32_t bytes) {
    mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg *>(at), bytes, mr->lkey,
                        reinterpret_cast<uint64_t>(mr->addr));
  }
  void send(const ibv_mr *mr, uint32_t bytes) {
    uint8_t *w = begin(MLX5_OPCODE_SEND, 2);
    data(w + 16, mr, bytes);
    ring(w);
  }
  void access(uint8_t opcode, const ibv_mr *mr, uint32_t bytes, const ibv_mr *remote) {
    uint8_t *w = begin(opcode, 3);
    auto *raddr = reinterpret_cast<mlx5_wqe_raddr_seg *>(w + 16);
    raddr->raddr = htobe64(reinterpret_cast<uint64_t>(remote->addr));
    raddr->rkey = htobe32(remote->rkey);
    data(w + 32, mr, bytes);
    ring(w);
  }
  void receive(const ibv_mr *mr, uint32_t bytes) {
    data(umem.at(received_ % receive_wqes * 16), mr, bytes);
    ++received_;
    __atomic_store_n(umem.record(8192), htobe32(received_), __ATOMIC_RELEASE);
  }
  // QUERY_QP; the context begins at bit 192 of the answer.
  Box query() {
    Box out(272);
    REQUIRE(object.query(object.command(0x50b), out) == 0);
    return out;
  }
  uint32_t state() { return query().get(qpc, 4); }

  Umem umem;
  Object object;

 private:
  uint32_t send_offset() const { return own_queue_ ? receive_wqes * 16 : 0; }
  const Context &context_;
  bool own_queue_;
  uint16_t posted_ = 0, received_ = 0;
};

// Registered memory.
struct Memory {
  Memory(const Context &c, size_t n, uint8_t fill = 0) : bytes(n, fill) {
    constexpr int all = int{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_REMOTE_WRITE |
                        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mr = ibv_reg_mr(c.pd, bytes.data(), n, all);
    REQUIRE(mr != nullptr);
  }
  ~Memory() { CHECK(ibv_dereg_mr(mr) == 0); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  std::vector<uint8_t> bytes;
  ibv_mr *mr;
};

// A receive memory pool of 16 WQEs, each a segment that names its successor and one for data.
class Rmp {
 public:
  static constexpr uint32_t wqes = 16, stride = 32;
  static constexpr uint32_t wq = 640;  // bits
  enum Order { linked = 0, cyclic = 1 };

  Rmp(const Context &c, Order order) : umem(c, 8192) {
    for (uint16_t i = 0; i < wqes; ++i) {
      // Names another one than what follows: a cyclic queue does not look.
      const auto next = static_cast<uint16_t>((i + (order == linked ? 3 : 5)) % wqes);
      umem.at(i * stride)[3] = static_cast<uint8_t>(next);
    }
    object.create(c, command(c, order));
    REQUIRE(object.object != nullptr);
  }
  Box command(const Context &c, uint32_t type) const {
    Box in(80 + 192, 0x90c);
    in.put(256 + 8, 4, 1);  // ready
    in.put(wq, 4, type);
    in.put(wq + 72, 24, c.pdn);
    in.put(wq + 160, 32, 4096);
    in.put(wq + 268, 4, 5);
    in.put(wq + 283, 5, 4);
    in.put(wq + 320, 32, umem.id());
    in.put(wq + 352, 32, umem.id());
    return in;
  }
  void post(uint32_t index, const ibv_mr *mr, uint32_t bytes) {
    Qp::data(umem.at(index * stride + 16), mr, bytes);
    ++posted_;
    __atomic_store_n(umem.record(4096), htobe32(posted_), __ATOMIC_RELEASE);
  }

  Umem umem;
  Object object;

 private:
  uint16_t posted_ = 0;
};

// A shared queue that matches tags, of 16 WQEs. Striding: of 8 strides of 1024 bytes, each of which
// has a data segment, as UCX lays them out.
class Xrq {
 public:
  static constexpr uint32_t wqes = 16, stride = 256;  // bytes of a WQE
  static constexpr uint32_t xrqc = 128, wq = xrqc + 1024;
  static constexpr uint32_t stride_bytes = 1024, strides = 8;
  enum Type { linked = 0, cyclic = 1, striding_linked = 2, striding_cyclic = 3 };

  Xrq(const Context &c, uint32_t cqn) : umem(c, 8192), cqn_(cqn) {
    for (uint32_t i = 0; i < wqes; ++i)
      umem.at(i * stride)[3] = static_cast<uint8_t>((i + 1) % wqes);
  }
  Box command(const Context &c, uint32_t type) const {
    Box in(16 + 128 + 192, 0x717);
    in.put(xrqc + 20, 4, 1);
    in.put(xrqc + 40, 24, 0x123);
    in.put(xrqc + 72, 24, cqn_);
    in.put(xrqc + 256, 4, 4);
    in.put(wq, 4, type);
    in.put(wq + 72, 24, c.pdn);
    in.put(wq + 160, 32, 4096);
    in.put(wq + 268, 4, 8);
    in.put(wq + 283, 5, 4);
    in.put(wq + 308, 4, type >= striding_linked ? (3u - 9) & 0xf : 0);
    in.put(wq + 317, 3, type >= striding_linked ? 10 - 6 : 0);
    in.put(wq + 320, 32, umem.id());
    in.put(wq + 352, 32, umem.id());
    return in;
  }
  void post(const ibv_mr *mr, uint32_t offset) {
    for (uint32_t i = 0; i < strides; ++i)
      mlx5dv_set_data_seg(
          reinterpret_cast<mlx5_wqe_data_seg *>(umem.at(posted_ % wqes * stride + 16 + i * 16)),
          stride_bytes, mr->lkey, reinterpret_cast<uint64_t>(mr->addr) + offset + i * stride_bytes);
    ++posted_;
    __atomic_store_n(umem.record(4096), htobe32(posted_), __ATOMIC_RELEASE);
  }

  Umem umem;
  Object object;

 private:
  uint32_t cqn_;
  uint16_t posted_ = 0;
};

}  // namespace devx
