// Where a traced call came from: function, file and line, as far as the program that
// was traced is still there and says so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace ibvexp::audit {

class CallSites {
 public:
  CallSites();
  ~CallSites();
  CallSites(const CallSites &) = delete;
  CallSites &operator=(const CallSites &) = delete;

  // offset is an address as in the file. "module+0x12" at least, "main (a.c:7) in
  // module" at best.
  const std::string &describe(const std::string &module, std::uint64_t offset);

 private:
  struct Module;
  std::string look_up(const std::string &module, std::uint64_t offset);

  // Null: cannot be read.
  std::map<std::string, std::unique_ptr<Module>> modules_;
  std::map<std::pair<std::string, std::uint64_t>, std::string> known_;
};

}  // namespace ibvexp::audit
