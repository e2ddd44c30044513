// Inputs that are kept, through a target, without a fuzzer: for the suites.
//
//   REPLAY [--random COUNT SEED] [FILE|FOLDER...]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);
extern "C" int LLVMFuzzerInitialize(int *, char ***) __attribute__((weak));

namespace {

std::size_t inputs = 0;

void replay(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size());
  ++inputs;
}

// Inputs of any length up to most, by seed.
void make_up(std::uint64_t count, std::uint64_t seed, std::size_t most) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes;
  for (; count != 0; --count, ++inputs) {
    bytes.resize(random() % most + 1);
    // Small numbers are more telling than large ones.
    const std::uint64_t kind = random() % 3;
    for (std::uint8_t &byte : bytes)
      byte = static_cast<std::uint8_t>(
          kind == 0 || (kind == 1 && random() % 4 == 0) ? random() : random() % 16);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--random") == 0 && i + 2 < argc) {
      const std::uint64_t count = std::strtoull(argv[i + 1], nullptr, 0);
      make_up(count, std::strtoull(argv[i + 2], nullptr, 0), 2000);
      i += 2;
    } else if (!std::filesystem::is_directory(argv[i])) {
      replay(argv[i]);
    } else {
      for (const auto &entry : std::filesystem::directory_iterator(argv[i])) replay(entry.path());
    }
  }
  std::printf("%zu inputs\n", inputs);
  return inputs != 0 ? 0 : 1;
}
