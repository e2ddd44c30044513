// The image of a process that is gone, which may be any file, as JSON.
#include "trace/trace_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "trace/trace_document.h"

using namespace ibvexp::trace;

namespace {

// A file that is shortened as soon as its size has been asked for.
dev_t device_of_short = 0;
ino_t short_lived = 0;
std::string path_of_short;

}  // namespace

// In front of the C library's.
extern "C" int fstat(int fd, struct stat *st) noexcept {
  const int error = fstatat(fd, "", st, AT_EMPTY_PATH);
  if (error == 0 && short_lived != 0 && st->st_ino == short_lived &&
      st->st_dev == device_of_short) {
    short_lived = 0;
    REQUIRE(truncate(path_of_short.c_str(), 0) == 0);
  }
  return error;
}

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

TEST_CASE("an image that is shortened while it is read is left alone") {
  char folder[] = "/tmp/image-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/trace.json", live = file + ".host.1.1.live";
  const auto image = std::make_unique<Image>();
  std::memcpy(image->header.magic, image_magic.data(), sizeof(image->header.magic));
  image->header.tables = tables_hash;
  std::ofstream(live, std::ios::binary)
      .write(reinterpret_cast<const char *>(image.get()), sizeof(Image));
  REQUIRE(is_image(image.get(), sizeof(Image)));
  struct stat st;
  REQUIRE(stat(live.c_str(), &st) == 0);
  path_of_short = live;
  device_of_short = st.st_dev;
  short_lived = st.st_ino;
  CHECK(gather(file.c_str(), true) == 0);
  CHECK(short_lived == 0);
  CHECK(std::filesystem::exists(live));
  std::filesystem::remove_all(folder);
}
