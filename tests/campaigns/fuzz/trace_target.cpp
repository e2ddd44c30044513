// The image that a traced process leaves behind, of any content: it becomes JSON.
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>

#include "bytes.h"
#include "trace/trace_document.h"
#include "trace/trace_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  using namespace ibvexp::trace;
  Bytes in(data, size);
  static const auto image = std::make_unique<Image>();
  static const auto room = std::make_unique<char[]>(record_bytes);
  auto *const bytes = reinterpret_cast<std::uint8_t *>(image.get());
  std::memset(bytes, 0, sizeof(Image));
  in.take_into(&image->header, sizeof(Header));
  // Some notes, and some rows that refer to them.
  for (std::uint32_t i = 0; i < note_count && !in.empty() && i < 4; ++i)
    in.take_into(&image->notes[i], sizeof(Note));
  while (!in.empty()) {
    const std::size_t at = offsetof(Image, rows) + in.below(row_count) * sizeof(Row);
    in.take_into(bytes + at, sizeof(Row));
  }
  const std::size_t length = write_record(*image, state_ended, room.get(), record_bytes);
  PROMISE(length != 0 && length <= record_bytes);
  PROMISE(nlohmann::json::accept(room.get(), room.get() + length));
  // In less room it is all or nothing.
  const std::size_t less = in.below(static_cast<std::uint32_t>(length));
  PROMISE(write_record(*image, state_ended, room.get(), less) == 0);
  return 0;
}
