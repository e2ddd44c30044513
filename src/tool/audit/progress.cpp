#include "tool/audit/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tool/plural.h"

namespace ibvexp::audit {

ProgressBar::ProgressBar() {
  const char *type = std::getenv("TERM");
  terminal_ = isatty(STDERR_FILENO) == 1 && (type == nullptr || std::string_view(type) != "dumb");
}

ProgressBar::~ProgressBar() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(std::size_t done, std::size_t total) {
  if (!terminal_) return;
  constexpr std::size_t width = 30;
  // Libraries join while others are read: the bar waits for them.
  if (total != 0) filled_ = std::max(filled_, width * done / total);
  if (total == 0) fmt::print(stderr, "\r\033[K{} read", tool::plural(done, "file"));
  else
    fmt::print(stderr, "\r\033[K[{:<{}}] {} of {}", std::string(filled_, '#'), width, done,
               tool::plural(total, "file"));
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace ibvexp::audit
