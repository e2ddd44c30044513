// Copies between local memory by work request (MMO, the DMA engine).
#include <algorithm>

#include "model/device.h"
#include "model/requester.h"

namespace softhca {

// Behind the control segment: metadata with a place for the engine's notes,
// which this device does not need, then one data segment each for source and
// destination.
Syndrome execute_memcpy(const Qp &qp, const u8 *wqe, u32 ds) {
  constexpr u32 memcpy_ds = 4;
  constexpr u8 opmod_dma = 1;
  if (ds != memcpy_ds || wqe[0] != opmod_dma) return Syndrome::local_qp_op;
  const u8 *source = wqe + 2 * wqe_ds, *destination = wqe + 3 * wqe_ds;
  const u32 bytes = load_be32(source);
  if (load_be32(destination) != bytes) return Syndrome::local_qp_op;
  if (bytes == 0 || bytes > 1u << qp.device->caps.log_max_memcpy) return Syndrome::local_length;

  const Requester who{qp.pdn, qp.qpn};
  const MkeyTable &keys = process().mkeys;
  SpanList from, to;
  if (resolve(keys, load_be32(source + 4), load_be64(source + 8), bytes, 0, who, from) !=
          Syndrome::ok ||
      resolve(keys, load_be32(destination + 4), load_be64(destination + 8), bytes,
              access_local_write, who, to) != Syndrome::ok)
    return Syndrome::local_protection;
  std::vector<u8> chunk(std::min<u32>(bytes, 64 * 1024));
  for (u32 done = 0; done < bytes;) {
    const u32 n = std::min<u32>(static_cast<u32>(chunk.size()), bytes - done);
    if (!read_spans(from, done, chunk.data(), n) || !write_spans(to, done, chunk.data(), n))
      return Syndrome::local_protection;
    done += n;
  }
  return Syndrome::ok;
}

}  // namespace softhca
