#include "tool/audit/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace ibvexp::audit {

ProgressBar::ProgressBar() {
  const char *type = std::getenv("TERM");
  terminal_ = isatty(STDERR_FILENO) == 1 && (type == nullptr || std::string_view(type) != "dumb");
}

ProgressBar::~ProgressBar() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(std::size_t done, std::size_t total) {
  if (!terminal_ || total == 0) return;
  constexpr std::size_t width = 30;
  const std::size_t filled = width * done / total;
  fmt::print(stderr, "\r\033[K[{:<{}}] {} of {} files", std::string(filled, '#'), width, done,
             total);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace ibvexp::audit
