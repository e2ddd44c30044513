// Signature offload: data in blocks, each with a signature behind it in memory, on the
// wire, or in both. The device makes, checks, replaces and strips them on the way.
// Layouts and rules: mlx5 headers of Linux and rdma-core.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/prm.h"
#include "base/types.h"
#include "model/memory.h"

namespace softhca {

struct Cq;
struct Requester;
class MkeyTable;

// What stands behind each block in memory, or on the wire.
struct SignatureDomain {
  enum class Kind : u8 { none, crc32, crc32c, dif_crc, dif_checksum } kind = Kind::none;
  u32 block_bytes = 0;
  u32 psv = 0;                  // what the first block's is computed from
  bool counts = false;          // the reference tag goes up by one with each block
  bool escape_app = false;      // an application tag of all ones: not checked
  bool escape_app_ref = false;  // the same if the reference tag is so, too
  u32 bytes() const;            // of one signature
  bool is_dif() const { return kind == Kind::dif_crc || kind == Kind::dif_checksum; }
};

// What the byte stream format of a memory key says (struct mlx5_bsf).
struct SignatureRules {
  SignatureDomain memory, wire;
  u8 check = 0;  // bytes of an arriving signature that have to be right, highest bit first
  u8 copy = 0;   // bytes that go from one domain to the other as they are
  // Data bytes in a block: the same in both domains.
  u32 block_bytes() const {
    return memory.kind != SignatureDomain::Kind::none ? memory.block_bytes : wire.block_bytes;
  }
  // Bytes of a block as requests count them: signatures that only one of the domains
  // has come and go on the way and are not part of a request's length.
  u32 counted_bytes() const;
};

inline constexpr u32 bsf_bytes = 64;
// False: not a format that the device knows.
bool parse_signature(const u8 *bsf, SignatureRules &);

// PSVs: the transient signature at the beginning of a transfer.
class PsvTable {
 public:
  u32 create(u32 pdn);
  void destroy(u32 index) { psvs_.erase(index); }
  // SET_PSV. False: no such one in the protection domain.
  bool set(u32 index, u32 pdn, u64 value);
  u64 value(u32 index) const;

 private:
  struct Psv {
    u32 pdn;
    u64 value;
  };
  std::unordered_map<u32, Psv> psvs_;
  u32 next_ = 1;
};
PsvTable &psvs();

// A signature that was not as expected.
struct SignatureError {
  u32 key = 0;
  bool in_memory = false;
  u16 syndrome = 0;
  u64 expected = 0, actual = 0;
  u64 offset = 0;  // of the block, in the stream that was checked
};

// The signature of block `number` (from 0) in a domain that begins with `start`.
void make_signature(const SignatureDomain &, u64 start, u64 number, const u8 *data, u8 *out);

// The part of a request that lies under a key with signatures.
struct SignedPart {
  u32 key = 0;
  SignatureRules rules;
  u64 first_block = 0;
  u64 blocks = 0;
  u64 position = 0;  // in the message
  SpanList memory;
  std::vector<u8> wire;  // as it goes over the wire
  std::optional<SignatureError> error;
};

// Resolves [address, address + length) under `key` and makes room for what goes over
// the wire. nullptr: the key has no signatures, or may not be used like that.
std::unique_ptr<SignedPart> open_signed(const MkeyTable &, u32 key, u64 address, u64 length,
                                        u32 need, const Requester &);
// Memory to wire, and back. False: a memory fault.
bool gather_signed(SignedPart &);
// `message_bytes`: of the whole message, where less has arrived than there is room for.
// False, too, when it ends inside a block.
bool scatter_signed(SignedPart &, u64 message_bytes);

// Reports the error of a part, if its key is still to report one.
void report_signature_error(MkeyTable &, const SignedPart &, Cq *);

}  // namespace softhca
