// The configuration of the software HCA: a document, and variables after it.
#include <string>

#include "bytes.h"
#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  // Variables stand behind a null byte, each ending with one.
  const std::string all(reinterpret_cast<const char *>(data), size);
  const std::size_t end = all.find('\0');
  const std::string document = all.substr(0, end);
  std::vector<std::string> variables;
  for (std::size_t at = end; at < all.size();) {
    const std::size_t next = all.find('\0', ++at);
    variables.push_back("SOFTHCA_" + all.substr(at, next == std::string::npos ? next : next - at));
    at = next;
  }
  softhca::Config config;
  std::string error;
  const bool good = softhca::parse_config(document, variables, config, error);
  // It says why not.
  PROMISE(good == error.empty());
  if (!good) return 0;
  PROMISE(!config.devices.empty());
  for (const auto &device : config.devices) PROMISE(!device.name.empty() && !device.ports.empty());
  return 0;
}
