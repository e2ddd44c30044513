#include "tool/child.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <system_error>

#include "tool/program.h"

namespace ibvexp::tool {

namespace {

volatile pid_t child = 0;

// A signal that a process sent to us is meant for the program. What the terminal sent has
// reached it already.
void pass_on(int number, siginfo_t *info, void *) {
  const int kept = errno;
  if (child > 0 && info->si_code != SI_KERNEL && info->si_pid != child) kill(child, number);
  errno = kept;
}

constexpr std::initializer_list<int> passed = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                                               SIGUSR2, SIGALRM, SIGWINCH, SIGCONT};

}  // namespace

int exec_program(const std::string &file, const std::vector<std::string> &arguments) {
  std::vector<char *> pointers;
  for (const std::string &a : arguments) pointers.push_back(const_cast<char *>(a.c_str()));
  pointers.push_back(nullptr);
  execv(file.c_str(), pointers.data());
  // As a shell does with a script that does not name its interpreter.
  if (errno == ENOEXEC) {
    pointers.front() = const_cast<char *>(file.c_str());
    pointers.insert(pointers.begin(), const_cast<char *>("sh"));
    execv("/bin/sh", pointers.data());
  }
  return errno;
}

int run_program(const std::string &file, const std::vector<std::string> &arguments) {
  // Between fork and handlers nothing may get lost.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t self = getpid();
  // A copy of this process would cost more than all else here. The child only executes.
  const pid_t made = vfork();
  if (made < 0) throw std::system_error(errno, std::generic_category(), "vfork");
  if (made == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    // A launcher that kills us means the program.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(exit_cannot_run);
    const int error = exec_program(file, arguments);
    fmt::print(stderr, "ibvexp: {}: {}\n", file, std::strerror(error));
    _exit(exit_cannot_run);
  }
  child = made;
  for (const int number : passed) {
    struct sigaction now, ours{};
    // What this process ignores, the program ignores too.
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;
    ours.sa_sigaction = pass_on;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(number, &ours, nullptr);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);

  int status = 0;
  for (;;) {
    const pid_t got = waitpid(made, &status, WUNTRACED);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), "waitpid");
    if (!WIFSTOPPED(status)) break;
    // Stopped as a whole, for the shell's job control.
    raise(SIGSTOP);
    kill(made, SIGCONT);
  }
  child = 0;
  return status;
}

void end_as(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    // The program has left its core file.
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    raise(number);
    _exit(128 + number);
  }
  std::fflush(nullptr);
  _exit(WEXITSTATUS(wait_status));
}

}  // namespace ibvexp::tool
