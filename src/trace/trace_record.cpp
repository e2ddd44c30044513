#include "trace/trace_record.h"

#include <cstring>
#include <ctime>

#include "table/feature_rows.h"

namespace ibvexp::trace {

namespace {

// JSON text into a buffer. Too much is noticed at the end.
class Writer {
 public:
  Writer(char *out, std::size_t size) : start_(out), at_(out), end_(out + size) {}

  std::size_t length() const { return full_ ? 0 : static_cast<std::size_t>(at_ - start_); }

  void raw(std::string_view text) {
    if (static_cast<std::size_t>(end_ - at_) < text.size()) {
      full_ = true;
      return;
    }
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
  }

  void number(std::uint64_t n) {
    char digits[20];
    char *from = digits + sizeof(digits);
    do *--from = static_cast<char>('0' + n % 10);
    while ((n /= 10) != 0);
    raw({from, static_cast<std::size_t>(digits + sizeof(digits) - from)});
  }

  void hex(std::uint64_t n) {
    char digits[16];
    char *from = digits + sizeof(digits);
    do *--from = "0123456789abcdef"[n % 16];
    while ((n /= 16) != 0);
    raw("\"0x");
    raw({from, static_cast<std::size_t>(digits + sizeof(digits) - from)});
    raw("\"");
  }

  // Text that need not be UTF-8: what is not becomes U+FFFD.
  void text(std::string_view s) {
    raw("\"");
    while (!s.empty()) {
      const auto c = static_cast<unsigned char>(s[0]);
      std::size_t taken = 1;
      if (c == '"' || c == '\\') {
        const char escaped[] = {'\\', s[0]};
        raw({escaped, 2});
      } else if (c < 0x20 || c == 0x7f) {
        const char escaped[] = {
            '\\', 'u', '0', '0', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
        raw({escaped, 6});
      } else if (c < 0x80) {
        raw(s.substr(0, 1));
      } else if ((taken = sequence(s)) != 0) {
        raw(s.substr(0, taken));
      } else {
        raw("\\ufffd");
        taken = 1;
      }
      s.remove_prefix(taken);
    }
    raw("\"");
  }

  void key(std::string_view name) {
    raw(first_ ? "\"" : ",\"");
    first_ = false;
    raw(name);
    raw("\":");
  }
  void open(std::string_view bracket) {
    raw(bracket);
    first_ = true;
  }
  void close(std::string_view bracket) {
    raw(bracket);
    first_ = false;
  }
  void separate() {
    if (!first_) raw(",\n");
    first_ = false;
  }

 private:
  // Length of a well-formed sequence of more than one byte, or 0.
  static std::size_t sequence(std::string_view s) {
    const auto byte = [&](std::size_t i) {
      return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u;
    };
    const auto more = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
    const unsigned c = byte(0), d = byte(1);
    if (c >= 0xc2 && c <= 0xdf && more(1)) return 2;
    if (c == 0xe0 && d < 0xa0) return 0;
    if (c == 0xed && d > 0x9f) return 0;
    if (c >= 0xe0 && c <= 0xef && more(1) && more(2)) return 3;
    if ((c == 0xf0 && d < 0x90) || (c == 0xf4 && d > 0x8f)) return 0;
    if (c >= 0xf0 && c <= 0xf4 && more(1) && more(2) && more(3)) return 4;
    return 0;
  }

  char *start_, *at_, *end_;
  bool first_ = true;
  bool full_ = false;
};

template <std::size_t n>
std::string_view view(const char (&text)[n]) {
  return {text, strnlen(text, n)};
}

// "2026-11-21T17:35:33Z". gmtime() may lock; this is the civil calendar by hand.
void write_time(Writer &out, std::int64_t seconds) {
  const std::int64_t days = seconds / 86400, rest = seconds % 86400;
  const std::int64_t z = days + 719468, era = z / 146097, doe = z - era * 146097;
  const std::int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
  const std::int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
  const std::int64_t day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
  const std::int64_t year = yoe + era * 400 + (month <= 2 ? 1 : 0);
  char text[] = "0000-00-00T00:00:00Z";
  const auto put = [&](int at, int width, std::int64_t value) {
    for (int i = width; i-- > 0; value /= 10) text[at + i] = static_cast<char>('0' + value % 10);
  };
  put(0, 4, year);
  put(5, 2, month);
  put(8, 2, day);
  put(11, 2, rest / 3600);
  put(14, 2, rest / 60 % 60);
  put(17, 2, rest % 60);
  out.text({text, sizeof(text) - 1});
}

void write_arguments(Writer &out, const Header &h) {
  out.open("[");
  std::string_view rest(h.command, sizeof(h.command));
  while (!rest.empty() && rest[0] != '\0') {
    const std::size_t length = strnlen(rest.data(), rest.size());
    out.separate();
    out.text(rest.substr(0, length));
    rest.remove_prefix(length < rest.size() ? length + 1 : length);
  }
  out.close("]");
}

void write_header(Writer &out, const Header &h, std::string_view state) {
  out.key("id");
  char id[sizeof(h.host) + 3 * sizeof(".18446744073709551615")];
  std::size_t used = 0;
  const auto add = [&](std::string_view text) {
    std::memcpy(id + used, text.data(), text.size());
    used += text.size();
  };
  const auto add_number = [&](std::uint64_t n) {
    char digits[20];
    Writer number(digits, sizeof(digits));
    number.number(n);
    add({digits, number.length()});
  };
  add(view(h.host));
  add(".");
  add_number(static_cast<std::uint64_t>(h.pid));
  add(".");
  add_number(h.start_ticks);
  add(".");
  add_number(static_cast<std::uint64_t>(h.started));
  out.text({id, used});
  out.key("host");
  out.text(view(h.host));
  out.key("pid");
  out.number(static_cast<std::uint64_t>(h.pid));
  out.key("parent");
  out.number(static_cast<std::uint64_t>(h.parent));
  out.key("started");
  write_time(out, h.started);
  out.key("written");
  write_time(out, time(nullptr));
  out.key("state");
  out.text(state);
  out.key("program");
  out.text(view(h.program));
  out.key("arguments");
  write_arguments(out, h);
  out.key("library");
  out.text(view(h.version));
  out.key("beyond");
  out.open("[");
  for_each_word(view(h.beyond), ',', [&](std::string_view word) {
    out.separate();
    out.text(word);
  });
  out.close("]");
}

bool asked_beyond(const Header &h, Beyond b) {
  bool found = false;
  if (is_switch(b))
    for_each_word(view(h.beyond), ',',
                  [&](std::string_view word) { found = found || word == info(b).name; });
  return found;
}

void write_note_number(Writer &out, std::string_view key, const std::atomic<std::uint32_t> &place) {
  const std::uint32_t number = place.load(std::memory_order_acquire);
  if (number == 0 || number > note_count) return;
  out.key(key);
  out.number(number - 1);
}

void write_row(Writer &out, const Header &h, const Row &row, std::size_t index) {
  const bool entry = index < entries.size();
  const Feature feature =
      entry ? Feature{} : feature_row(static_cast<FeatureId>(index - entries.size()));
  const Answer &answer = entry ? entries[index].answer : feature.answer;
  const Family family = entry ? entries[index].family : feature.family;
  out.separate();
  out.open("{");
  out.key("name");
  out.text(entry ? entries[index].name : feature.name);
  out.key("kind");
  out.text(entry ? "entry" : name_of(feature.kind));
  out.key("family");
  out.text(name_of(family));
  out.key("verdict");
  out.text(name_of(effective(answer, asked_beyond(h, answer.beyond)).verdict));
  const auto count = [&](std::string_view key, const std::atomic<std::uint64_t> &value) {
    out.key(key);
    out.number(value.load(std::memory_order_relaxed));
  };
  count("calls", row.calls);
  count("successes", row.successes);
  count("refusals", row.refusals);
  count("failures", row.failures);
  write_note_number(out, "first_call", row.first_call);
  write_note_number(out, "first_refusal", row.first_refusal);
  out.close("}");
}

void write_note(Writer &out, const Note &note) {
  out.separate();
  out.open("{");
  if (note.entry < entries.size()) {
    out.key("entry");
    out.text(entries[note.entry].name);
  }
  out.key("arguments");
  out.open("[");
  for (std::uint32_t i = 0; i < note.arity && i < max_arguments; ++i) {
    if (i != 0) out.raw(",");
    out.hex(note.arguments[i]);
  }
  out.close("]");
  const auto text = [&](std::string_view key, std::string_view value) {
    if (value.empty()) return;
    out.key(key);
    out.text(value);
  };
  text("words", view(note.words));
  if (note.module[0] != '\0') {
    out.key("module");
    out.text(view(note.module));
    out.key("offset");
    out.hex(note.site);
  }
  text("symbol", view(note.symbol));
  if (note.error != 0) {
    out.key("errno");
    out.number(static_cast<std::uint32_t>(note.error));
  }
  text("reason", view(note.reason));
  out.close("}");
}

}  // namespace

std::size_t write_record(const Image &image, std::string_view state, char *out,
                         std::size_t size) noexcept {
  Writer writer(out, size);
  const Header &h = image.header;
  writer.open("{");
  write_header(writer, h, state);

  writer.key("rows");
  writer.open("[\n");
  for (std::size_t i = 0; i < row_count; ++i)
    if (image.rows[i].calls.load(std::memory_order_relaxed) != 0)
      write_row(writer, h, image.rows[i], i);
  writer.close("]");

  writer.key("notes");
  writer.open("[\n");
  const std::uint32_t used = h.notes_used.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used && i < note_count; ++i) write_note(writer, image.notes[i]);
  writer.close("]");
  writer.key("notes_lost");
  writer.number(used > note_count ? used - note_count : 0);
  writer.close("}");
  return writer.length();
}

}  // namespace ibvexp::trace
