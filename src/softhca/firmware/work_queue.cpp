#include "firmware/work_queue.h"

namespace softhca::firmware {

RingPlace wq_ring(const Command &c, u32 wq_at) {
  const u8 *context = c.in.data() + wq_at;
  const RingFields fields{.umem_offset_at = wq_at + wq::umem_offset_at,
                          .umem_id_at = wq_at + wq::umem / 8,
                          .umem_valid_bit = wq_at * 8 + wq::umem_valid,
                          .pages_at = wq_at + wq::pages_at};
  return ring_place(c, fields, get_field(context, wq::log_page_size, 5),
                    get_field(context, wq::page_offset, 5));
}

RecordPlace wq_record(const u8 *context) {
  return {get_field(context, wq::dbr_umem_valid, 1) != 0, get_field(context, wq::dbr_umem, 32),
          load_be64(context + wq::dbr_at)};
}

}  // namespace softhca::firmware
