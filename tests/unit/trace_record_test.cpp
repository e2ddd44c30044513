// The image of a process that is gone, which may be anybody's, as JSON.
#include "catch.h"

#include "trace/trace_document.h"
#include "trace/trace_record.h"

#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

using namespace ibvexp::trace;

namespace {

nlohmann::json written(const Image &image) {
  std::vector<char> room(record_bytes);
  const std::size_t length = write_record(image, state_ended, room.data(), room.size());
  REQUIRE(length > 0);
  return nlohmann::json::parse(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(length));
}

}  // namespace

TEST_CASE("a trace names a process by the longest host and numbers that there are") {
  const auto image = std::make_unique<Image>();
  Header &h = image->header;
  std::memset(h.host, 'h', sizeof(h.host));
  h.pid = -1;
  h.start_ticks = ~std::uint64_t{0};
  h.started = -1;
  const std::string most = "18446744073709551615";
  CHECK(written(*image)["id"] ==
        std::string(sizeof(h.host), 'h') + "." + most + "." + most + "." + most);
}

TEST_CASE("a trace is JSON, whatever an image says") {
  std::mt19937 random(GENERATE(0u, 1u, 2u));
  const auto image = std::make_unique<Image>();
  const auto fill = [&](void *at, std::size_t bytes) {
    auto *to = static_cast<unsigned char *>(at);
    for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(random());
  };
  fill(&image->header, sizeof(Header));
  image->header.notes_used = static_cast<std::uint32_t>(random());
  fill(static_cast<void *>(image->rows), sizeof(image->rows));
  fill(image->notes, sizeof(image->notes));
  const nlohmann::json record = written(*image);
  CHECK(record["rows"].size() == row_count);
  CHECK(record["state"] == "ended");
}
