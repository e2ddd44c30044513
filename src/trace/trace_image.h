// What a traced process counts, as it lies in the file that it maps while it
// runs: counts written in place survive a crash, a kill and exec(). Programs
// read JSON (docs/trace.schema.json); this is what JSON is made from, by the
// process itself or by whoever finds the file of one that is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "table/compat.h"

namespace ibvexp::trace {

// Entry points first, then features.
using RowIndex = std::uint16_t;
inline constexpr std::size_t row_count = entries.size() + features.size();

constexpr RowIndex row_index(EntryId id) { return static_cast<RowIndex>(id); }
constexpr RowIndex row_index(FeatureId id) {
  return static_cast<RowIndex>(entries.size() + static_cast<std::size_t>(id));
}
constexpr std::string_view name_of_row(std::size_t index) {
  return index < entries.size() ? entries[index].name : features[index - entries.size()].name;
}

struct Row {
  std::atomic<std::uint64_t> calls;
  std::atomic<std::uint64_t> successes;
  std::atomic<std::uint64_t> refusals;  // answered ENOTSUP, or left out of an answer
  std::atomic<std::uint64_t> failures;  // any other error
  // Notes, counted from 1. 0: none; note_pending: about to be there.
  std::atomic<std::uint32_t> first_call;
  std::atomic<std::uint32_t> first_refusal;
};

inline constexpr std::uint32_t note_pending = ~0u;
inline constexpr std::uint32_t note_count = 256;
inline constexpr std::size_t max_arguments = 8;

// One call, written down because it was the first of some row. Text is cut to
// fit and ends with a null.
struct Note {
  std::uint64_t arguments[max_arguments];
  std::uint64_t site;  // of the call instruction, as in the module's file
  std::uint32_t arity;
  std::int32_t error;  // 0: none, or the call had not returned
  RowIndex entry;      // row_count: outside of any entry point
  char module[190];    // file of the caller
  char symbol[64];     // exported function of the caller, if known
  char words[192];     // "comp_mask 0x1, exp_create_flags 0x100"
  char reason[192];    // why it failed
};

struct Header {
  char magic[8];
  std::uint64_t tables;  // tables_hash of the writer
  std::uint64_t start_ticks;
  std::uint64_t pid_namespace;
  std::int64_t started;  // seconds since 1970
  std::int32_t pid;
  std::int32_t parent;
  std::atomic<std::uint32_t> notes_used;
  std::uint32_t reserved;
  char host[64];
  char program[512];
  char command[1024];  // arguments, each ended by a null
  char version[16];
  char beyond[256];  // IBVEXP_BEYOND
};

struct Image {
  Header header;
  Row rows[row_count];
  Note notes[note_count];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared with other processes");

inline constexpr std::string_view image_magic = "ibvexpT1";

// Keeps images of other releases apart, whose rows are others.
inline constexpr std::uint64_t tables_hash = [] {
  std::uint64_t hash = 14695981039346656037u;
  for (std::size_t i = 0; i < row_count; ++i)
    for (const char c : name_of_row(i))
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash ^ sizeof(Image);
}();

}  // namespace ibvexp::trace
