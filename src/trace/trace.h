// Counts of what a program asks for, row by row, when IBVEXP_TRACE names a file.
//
// Off, the table holds the plain functions, and symbols and refusals test one
// flag. On, each call that passes the boundary is a Call: it counts the entry
// point and every feature that trace_observe.h sees in the arguments.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "table/feature_bits.h"
#include "trace/trace_image.h"

namespace ibvexp::trace {

// Set when the library is loaded, constant from then on. IBVEXP_WITHOUT_TRACE
// exists for the test that measures what the flag costs.
#ifdef IBVEXP_WITHOUT_TRACE
inline constexpr bool compiled = false;
#else
inline constexpr bool compiled = true;
#endif
[[gnu::visibility("hidden")]] extern bool on_at_load;
inline bool on() { return compiled && on_at_load; }

class Call {
 public:
  Call(EntryId entry, const void *site) noexcept;
  ~Call();
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  template <class T>
  void argument(T value) noexcept {
    if (arity_ == arguments_.size()) return;
    if constexpr (std::is_pointer_v<T>)
      arguments_[arity_++] = reinterpret_cast<std::uintptr_t>(value);
    else arguments_[arity_++] = static_cast<std::uint64_t>(value);
  }

  // A word of flags or one value of the arguments. field is a literal.
  void flags(const char *field, std::uint64_t word, FeatureBits known) noexcept;
  void value(const char *field, std::uint64_t word, FeatureBits known) noexcept;

  // Counts the entry point, before anything behind a pointer is looked at: a
  // crash shall find it counted.
  void begin() noexcept;
  // Counts what was seen, before the call is made.
  void asked() noexcept;

  // Of what was asked for, after the call. withhold: not granted. achieved: done
  // although the call failed further on.
  void withhold(FeatureId feature) noexcept;
  void achieved(std::uint64_t flags, FeatureBits known) noexcept;
  void achieved_value(std::uint64_t value, FeatureBits known) noexcept;

  // Something that the call brought rather than asked for.
  void brought(std::uint64_t flags, FeatureBits known) noexcept;
  void brought_value(std::uint64_t value, FeatureBits known) noexcept;

  bool failed() const noexcept { return error_ != 0; }

 private:
  friend void fail(int error) noexcept;
  friend void refuse(FeatureId feature, const char *field, std::uint64_t value,
                     const char *why) noexcept;
  friend void explain(const char *field, std::uint64_t value, const char *why) noexcept;

  struct Seen {
    RowIndex row;
    bool refused;
    std::uint32_t asked;
    std::uint32_t done;
  };
  struct Word {
    const char *field;
    std::uint64_t value;
  };

  Seen *find(FeatureId feature) noexcept;
  void see(FeatureId feature) noexcept;
  void count_one(FeatureId feature) noexcept;
  std::uint32_t note() noexcept;
  std::uint32_t first_note() noexcept;
  void write_words(Note &note) const noexcept;

  Image *image_;
  std::uint32_t first_note_ = 0;
  Call *outer_;
  const void *site_;
  EntryId entry_;
  int error_ = 0;
  std::uint32_t arity_ = 0;
  std::uint32_t seen_count_ = 0;
  std::uint32_t word_count_ = 0;
  const char *reason_field_ = nullptr;
  const char *reason_ = nullptr;
  std::uint64_t reason_value_ = 0;
  std::array<std::uint64_t, max_arguments> arguments_;
  std::array<Seen, 56> seen_;
  std::array<Word, 12> words_;
};

// Of the call that this thread is in, if any: its answer, ...
void fail(int error) noexcept;
// ... a feature that is refused (counted also outside of a call), ...
void refuse(FeatureId feature, const char *field, std::uint64_t value, const char *why) noexcept;
// ... and why it fails. field and why are literals.
void explain(const char *field, std::uint64_t value, const char *why) noexcept;

}  // namespace ibvexp::trace
