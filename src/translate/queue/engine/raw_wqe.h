// One send queue entry as the device reads it, for what rdma-core has no builder
// for: at most 63 units of 16 bytes, first the control segment.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ibvexp::engine {

class RawWqe {
 public:
  static constexpr std::size_t unit = 16;
  static constexpr std::size_t capacity = 63 * unit;

  // imm in network byte order.
  void begin(std::uint8_t opcode, std::uint8_t modifier, __be32 imm = 0) {
    size_ = 0;
    auto &control = append<mlx5_wqe_ctrl_seg>();
    control.opmod_idx_opcode = htobe32(std::uint32_t{modifier} << 24 | opcode);
    control.imm = imm;
  }

  // A zeroed segment behind the others.
  template <class Segment>
  Segment &append() {
    static_assert(sizeof(Segment) % unit == 0);
    return *static_cast<Segment *>(append(sizeof(Segment)));
  }
  // bytes: a multiple of 16, and not more than room().
  void *append(std::size_t bytes) {
    void *at = image_ + size_;
    std::memset(at, 0, bytes);
    size_ += bytes;
    return at;
  }

  std::size_t size() const { return size_; }
  const std::uint8_t *image() const { return image_; }
  std::size_t room() const { return capacity - size_; }

  // Completes the control segment. flags: MLX5_WQE_CTRL_*.
  const void *finish(std::uint32_t qp_num, std::uint8_t flags) {
    auto &control = *reinterpret_cast<mlx5_wqe_ctrl_seg *>(image_);
    control.qpn_ds = htobe32(qp_num << 8 | static_cast<std::uint32_t>(size_ / unit));
    control.fm_ce_se = flags;
    return image_;
  }

 private:
  alignas(64) std::uint8_t image_[capacity];
  std::size_t size_ = 0;
};

}  // namespace ibvexp::engine
