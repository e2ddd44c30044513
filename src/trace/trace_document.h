// FILE of IBVEXP_TRACE: one JSON document that processes append themselves to,
// and that is valid between any two writes (docs/trace.schema.json).
#pragma once

#include <cstddef>
#include <string_view>

#include "trace/trace_image.h"

namespace ibvexp::trace {

// How far a process has come, in the words of the schema.
inline constexpr std::string_view state_running = "running";  // wrote itself on SIGUSR1
inline constexpr std::string_view state_exited = "exited";    // wrote itself at exit
// Found when it was gone: exec(), _exit(), a signal.
inline constexpr std::string_view state_ended = "ended";

// Locks FILE for as long as it lives. Uses nothing that a signal handler may
// not use.
class Document {
 public:
  // errno value in error(): also EEXIST, when the file exists and is something
  // else, and EILSEQ, when it is a trace but damaged.
  explicit Document(const char *path) noexcept;
  ~Document();
  Document(const Document &) = delete;
  Document &operator=(const Document &) = delete;

  int error() const noexcept { return error_; }

  // Appends a process; 0 or an errno value.
  int append(const Image &image, std::string_view state) noexcept;

 private:
  int fd_ = -1;
  int error_ = 0;
};

// What a Document error means.
const char *explain_error(int error) noexcept;

// Whether the bytes are an image that this release can read.
bool is_image(const void *bytes, std::size_t size) noexcept;

// "FILE.HOST.PID.START.live", with the identity of this process.
struct Identity {
  char host[64];
  int pid;
  std::uint64_t start_ticks;
  std::uint64_t pid_namespace;
};
Identity own_identity() noexcept;
int live_name(char *out, std::size_t size, const char *file, const Identity &who) noexcept;

// Appends the images beside FILE whose processes are gone, and removes them.
// Returns how many; those that cannot be read are left alone. own_too: also one
// with the identity of this process, as exec() leaves it.
int gather(const char *file, bool own_too) noexcept;

}  // namespace ibvexp::trace
