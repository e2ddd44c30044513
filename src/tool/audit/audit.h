// Runs an audit over files and trees, on all processors.
#pragma once

#include <functional>

#include "tool/audit/report.h"

namespace ibvexp::audit {

struct Options {
  std::vector<std::string> paths;
  std::vector<std::string> exclude;  // names of folders that are not entered
  bool recursive = false;            // also the libraries that binaries load
  unsigned threads = 0;              // 0: one per processor
};

// Called now and then from one thread: files done, and how many there are; 0 while that is
// not known.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

// Never fails as a whole: what cannot be read is a FileReport with an error.
Report run(const Options &options, const Progress &progress);

}  // namespace ibvexp::audit
