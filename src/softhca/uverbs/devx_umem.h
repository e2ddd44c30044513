// Memory that firmware commands name by a number: the rings and doorbell
// records of the queues that they make.
#pragma once

#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

struct Umem {
  u32 id = 0;
  u64 address = 0;
  u64 length = 0;
  bool writable = false;
};

// `bytes` at `offset` of the umem of that number, for `user`, which holds it from
// now on; whether the device writes there or only reads. A umem consists of pages: it
// reaches to the end of its last one.
enum class UmemUse : bool { read, write };
Status claim_umem(const File &, u32 id, u64 offset, u64 bytes, UmemUse, Hold &user, u8 *&at);
// The same for a doorbell record.
Status claim_umem_doorbell(const File &, u32 id, u64 offset, Hold &user, u32 *&record);

}  // namespace softhca::uverbs
