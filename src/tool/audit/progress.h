// A progress bar on a terminal; nothing in a pipe.
#pragma once

#include <cstddef>

namespace ibvexp::audit {

class ProgressBar {
 public:
  // On standard error.
  ProgressBar();
  ~ProgressBar();
  void show(std::size_t done, std::size_t total);

 private:
  bool terminal_;
  bool shown_ = false;
  std::size_t filled_ = 0;
};

}  // namespace ibvexp::audit
