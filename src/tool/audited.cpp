#include "tool/audited.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "tool/libraries.h"

namespace ibvexp::tool {

nlohmann::json audited(const Words &files, bool with_libraries) {
  const int report = memfd_create("report", MFD_CLOEXEC);
  if (report < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  Words command{"ibvexp", "audit", "--plain"};
  if (with_libraries) command.emplace_back("--recursive");
  command.emplace_back("--");
  command.insert(command.end(), files.begin(), files.end());
  std::vector<char *> words;
  for (std::string &word : command) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, report, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, own_path().c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  while (error == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  std::ifstream text("/proc/self/fd/" + std::to_string(report));
  close(report);
  if (error != 0 || status != 0)
    throw std::runtime_error(
        "ibvexp audit failed, and what the program reads behind its objects is not known");
  return nlohmann::json::parse(text);
}

}  // namespace ibvexp::tool
