#include "trace/trace.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstring>

#include "base/keep_errno.h"
#include "trace/trace_live.h"

namespace ibvexp::trace {

bool on_at_load = false;

namespace {

// The innermost call of this thread; a handler may come through another slot.
[[gnu::tls_model("initial-exec")]] thread_local Call *current = nullptr;

void add(std::atomic<std::uint64_t> &count, std::uint64_t n = 1) {
  if (n != 0) count.fetch_add(n, std::memory_order_relaxed);
}

// Claims the place of a row's first note.
bool claim(std::atomic<std::uint32_t> &place) {
  std::uint32_t none = 0;
  return place.load(std::memory_order_relaxed) == 0 &&
         place.compare_exchange_strong(none, note_pending, std::memory_order_relaxed);
}

// Copies a text; of a longer one the end, which says more of a path.
template <std::size_t n>
void copy(char (&to)[n], const char *from) {
  if (from == nullptr) return;
  const std::size_t length = std::strlen(from);
  const std::size_t skipped = length < n ? 0 : length - (n - 1);
  std::memcpy(to, from + skipped, length - skipped);
}

// Where in which file the caller is, so that addr2line finds the line.
void write_site(const void *site, const Header &header, Note &note) {
  Dl_info info{};
  link_map *map = nullptr;
  void *extra = nullptr;
  if (site == nullptr || dladdr1(site, &info, &extra, RTLD_DL_LINKMAP) == 0) return;
  map = static_cast<link_map *>(extra);
  // Inside the call instruction: behind it may be another line already.
  note.site = reinterpret_cast<std::uintptr_t>(site) - map->l_addr - 1;
  const bool is_program = map->l_name == nullptr || *map->l_name == '\0';
  copy(note.module, is_program ? header.program : map->l_name);
  copy(note.symbol, info.dli_sname);
}

// The next free note, or null.
Note *take_note(Image &image, std::uint32_t &number) {
  if (image.header.notes_used.load(std::memory_order_relaxed) >= note_count) return nullptr;
  const std::uint32_t index = image.header.notes_used.fetch_add(1, std::memory_order_relaxed);
  if (index >= note_count) return nullptr;
  number = index + 1;
  return &image.notes[index];
}

void write_reason(Note &note, const char *field, std::uint64_t value, const char *why) {
  if (why == nullptr) return;
  std::snprintf(note.reason, sizeof(note.reason), "%s 0x%llx: %s", field != nullptr ? field : "",
                static_cast<unsigned long long>(value), why);
}

}  // namespace

Call::Call(EntryId entry, const void *site) noexcept
    : image_(live_image()), outer_(current), site_(site), entry_(entry) {
  current = this;
}

Call::Seen *Call::find(FeatureId feature) noexcept {
  const RowIndex row = row_index(feature);
  for (std::uint32_t i = 0; i < seen_count_; ++i)
    if (seen_[i].row == row) return &seen_[i];
  return nullptr;
}

void Call::see(FeatureId feature) noexcept {
  if (Seen *known = find(feature)) {
    ++known->asked;
    return;
  }
  if (seen_count_ < seen_.size()) seen_[seen_count_++] = {row_index(feature), false, 1, 0};
}

void Call::flags(const char *field, std::uint64_t word, FeatureBits known) noexcept {
  if (word_count_ < words_.size()) words_[word_count_++] = {field, word};
  if (word == 0) return;
  for (const FeatureBit &b : known)
    if ((word & b.bit) != 0) see(b.id);
}

void Call::value(const char *field, std::uint64_t word, FeatureBits known) noexcept {
  if (word_count_ < words_.size()) words_[word_count_++] = {field, word};
  for (const FeatureBit &v : known)
    if (v.bit == word) return see(v.id);
}

void Call::achieved(std::uint64_t word, FeatureBits known) noexcept {
  if (word == 0) return;
  for (const FeatureBit &b : known)
    if ((word & b.bit) != 0)
      if (Seen *seen = find(b.id)) ++seen->done;
}

void Call::achieved_value(std::uint64_t word, FeatureBits known) noexcept {
  for (const FeatureBit &v : known)
    if (v.bit == word)
      if (Seen *seen = find(v.id)) ++seen->done;
}

void Call::withhold(FeatureId feature) noexcept {
  if (Seen *seen = find(feature)) seen->refused = true;
}

void Call::count_one(FeatureId feature) noexcept {
  Row &row = image_->rows[row_index(feature)];
  add(row.calls);
  add(row.successes);
  if (claim(row.first_call)) row.first_call.store(first_note(), std::memory_order_release);
}

void Call::brought(std::uint64_t word, FeatureBits known) noexcept {
  if (image_ == nullptr || word == 0) return;
  for (const FeatureBit &b : known)
    if ((word & b.bit) != 0) count_one(b.id);
}

void Call::brought_value(std::uint64_t word, FeatureBits known) noexcept {
  if (image_ == nullptr) return;
  for (const FeatureBit &v : known)
    if (v.bit == word) return count_one(v.id);
}

void Call::write_words(Note &note) const noexcept {
  std::size_t used = 0;
  for (std::uint32_t i = 0; i < word_count_; ++i) {
    char text[64];
    const auto length = static_cast<std::size_t>(
        std::snprintf(text, sizeof(text), "%s%s 0x%llx", i == 0 ? "" : ", ", words_[i].field,
                      static_cast<unsigned long long>(words_[i].value)));
    if (used + length >= sizeof(note.words)) break;
    std::memcpy(note.words + used, text, length);
    used += length;
  }
}

// Writes this call down; 0 when there is no room.
std::uint32_t Call::note() noexcept {
  std::uint32_t number = 0;
  Note *note = take_note(*image_, number);
  if (note == nullptr) return 0;
  const KeepErrno keep;
  std::memcpy(note->arguments, arguments_.data(), arity_ * sizeof(arguments_[0]));
  note->arity = arity_;
  note->error = error_;
  note->entry = row_index(entry_);
  write_site(site_, image_->header, *note);
  write_words(*note);
  write_reason(*note, reason_field_, reason_value_, reason_);
  return number;
}

// One note for everything that this call is the first of.
std::uint32_t Call::first_note() noexcept {
  if (first_note_ == 0) first_note_ = note();
  return first_note_;
}

void Call::begin() noexcept {
  if (image_ == nullptr) return;
  Row &row = image_->rows[row_index(entry_)];
  add(row.calls);
  if (claim(row.first_call)) row.first_call.store(first_note(), std::memory_order_release);
}

void Call::asked() noexcept {
  if (image_ == nullptr) return;
  for (std::uint32_t i = 0; i < seen_count_; ++i) {
    Row &row = image_->rows[seen_[i].row];
    add(row.calls, seen_[i].asked);
    if (claim(row.first_call)) row.first_call.store(first_note(), std::memory_order_release);
  }
  if (first_note_ != 0) write_words(image_->notes[first_note_ - 1]);
}

Call::~Call() {
  current = outer_;
  if (image_ == nullptr) return;
  std::uint32_t number = 0;
  bool written = false;
  const auto refused = [&](Row &row) {
    add(row.refusals);
    if (!claim(row.first_refusal)) return;
    if (!written) number = note();
    written = true;
    row.first_refusal.store(number, std::memory_order_release);
  };
  Row &row = image_->rows[row_index(entry_)];
  if (error_ == 0) add(row.successes);
  else if (error_ == ENOTSUP) refused(row);
  else add(row.failures);

  for (std::uint32_t i = 0; i < seen_count_; ++i) {
    const Seen &seen = seen_[i];
    Row &feature = image_->rows[seen.row];
    std::uint32_t left = seen.asked;
    if (seen.refused) {
      refused(feature);
      --left;
    }
    const std::uint32_t done = error_ == 0 ? left : (seen.done < left ? seen.done : left);
    add(feature.successes, done);
    add(feature.failures, left - done);
  }
}

void fail(int error) noexcept {
  if (current != nullptr) current->error_ = error;
}

void explain(const char *field, std::uint64_t value, const char *why) noexcept {
  if (current == nullptr) return;
  current->reason_field_ = field;
  current->reason_value_ = value;
  current->reason_ = why;
}

void refuse(FeatureId feature, const char *field, std::uint64_t value, const char *why) noexcept {
  explain(field, value, why);
  if (current != nullptr) {
    Call::Seen *seen = current->find(feature);
    if (seen == nullptr && current->image_ != nullptr) {
      // Seen here for the first time: a way of use that no word shows.
      if (current->seen_count_ == current->seen_.size()) return;
      current->see(feature);
      seen = &current->seen_[current->seen_count_ - 1];
      add(current->image_->rows[seen->row].calls);
    }
    if (seen != nullptr) seen->refused = true;
    return;
  }
  Image *image = live_image();
  if (image == nullptr) return;
  Row &row = image->rows[row_index(feature)];
  add(row.calls);
  add(row.refusals);
  if (!claim(row.first_refusal)) return;
  std::uint32_t number = 0;
  if (Note *note = take_note(*image, number)) {
    note->entry = row_count;
    note->error = ENOTSUP;
    write_reason(*note, field, value, why);
  }
  row.first_refusal.store(number, std::memory_order_release);
}

}  // namespace ibvexp::trace
