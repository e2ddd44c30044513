// The context of a work queue as commands carry it: wq of mlx5_ifc.h.
#pragma once

#include <array>

#include "base/fields.h"
#include "firmware/scope.h"

namespace softhca::firmware {

constexpr u32 work_queue_bytes = 64;  // of a work queue's context, before its pages
using WorkQueue = std::array<u8, work_queue_bytes>;

// Its fields, bits; those of 64 bits in bytes.
namespace wq {
constexpr u32 type = 0, signature = 4, page_offset = 43, limit = 48, pd = 72, uar_page = 104,
              hw_counter = 192, sw_counter = 224, log_stride = 268, log_page_size = 275,
              log_size = 283, dbr_umem_valid = 288, umem_valid = 289, log_strides = 308,
              two_byte_shift = 312, log_stride_bytes = 317, dbr_umem = 320, umem = 352;
constexpr u32 dbr_at = 16, umem_offset_at = 48, pages_at = 192;
enum Type : u32 { linked_list = 0, cyclic = 1, striding_list = 2, striding_cyclic = 3 };
}  // namespace wq

// Where the ring and the doorbell record of the context at `wq_at` in the box lie.
RingPlace wq_ring(const Command &, u32 wq_at);
RecordPlace wq_record(const u8 *context);

}  // namespace softhca::firmware
