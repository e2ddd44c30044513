#include "tool/migrate/unified_diff.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>

namespace ibvexp::migrate {

void print_diff(const std::string &path, const std::string &text) {
  if (fcntl(STDOUT_FILENO, F_GETFD) < 0) throw std::runtime_error("standard output is closed");
  std::fflush(stdout);
  // A file and not a pipe: neither side has to wait for the other.
  FILE *file = std::tmpfile();
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size() ||
      std::fflush(file) != 0)
    throw std::system_error(errno, std::generic_category(), "temporary file");
  const pid_t child = fork();
  if (child == 0) {
    lseek(fileno(file), 0, SEEK_SET);
    dup2(fileno(file), STDIN_FILENO);
    execlp("diff", "diff", "-u", "--label", path.c_str(), "--label", path.c_str(), path.c_str(),
           "-", nullptr);
    _exit(127);
  }
  std::fclose(file);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0)
    throw std::system_error(errno, std::generic_category(), "diff");
  constexpr int not_found = 127;
  if (WIFEXITED(status) && WEXITSTATUS(status) == not_found)
    throw std::runtime_error("diff is not installed; --write and --out-root do without");
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) throw std::runtime_error("diff failed");
}

}  // namespace ibvexp::migrate
