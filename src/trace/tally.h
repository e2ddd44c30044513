// What `ibvexp run` reads when its program has ended: how many processes had the
// library and opened a device with it, what was refused, and in which file the first
// crash was. All processes of the program map this file, so it outlives a crash; without
// `ibvexp run` there is none, and nothing is counted.
#pragma once

#include "trace/trace_image.h"

namespace ibvexp::trace {

struct Tally {
  char magic[8];
  std::uint64_t tables;                           // tables_hash of who made the file
  std::atomic<std::uint32_t> processes;           // that loaded the library, and each exec()
  std::atomic<std::uint32_t> openers;             // of these, that opened a device
  std::atomic<std::uint32_t> searches;            // calls of ibv_get_device_list()
  std::atomic<std::uint32_t> finds;               // of these, that returned a device
  std::atomic<std::uint32_t> refused[row_count];  // by row_index()
  std::atomic<std::uint32_t> hidden[row_count];   // capabilities that a switch would have shown
  // The first process that crashed after it had opened a device, if the signal came from an
  // instruction and the process had left that signal alone.
  std::atomic<std::uint32_t> crashes;
  char crashed_in[4096];  // the file of that instruction; empty: none
};

inline constexpr char tally_magic[8] = "ibvexpT";

// Makes the file what the library takes. Returns null, with errno, if it cannot be.
// The mapping stays until the process ends.
Tally *make_tally(const char *file) noexcept;

// Maps such a file. Null if it cannot be, or is of another build.
Tally *open_tally(const char *file) noexcept;

// The rest is for the library.

// Maps the file, if there is one, and counts this process.
void join_tally(const char *file) noexcept;

// A call that was answered ENOTSUP, or a feature that was refused: what a trace counts as
// refusals. From any thread; one test of a pointer without a file.
void count_refusal(RowIndex row) noexcept;
// A capability that an answer left out, and that a switch would have shown. As above.
void count_hidden(RowIndex row) noexcept;
// Whether there is such a file.
bool is_counting() noexcept;

// From now on the object is noted in which this process crashes. The default action follows
// as it would have come; a handler of the program's own stays. Once is enough.
void note_crashes() noexcept;

// A call of ibv_get_device_list(), and whether it returned a device.
void count_search(bool found) noexcept;

// A device was opened: counts the process at its first call.
void count_opener() noexcept;

}  // namespace ibvexp::trace
