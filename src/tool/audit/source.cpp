#include "tool/audit/source.h"

#include "tool/audit/subjects.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ibvexp::audit {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool contains(std::string_view text, std::string_view part) {
  return memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

// Most files of a tree have none of these.
bool is_worth_reading(std::string_view text) {
  return contains(text, "ibv_") || contains(text, "IBV_") || contains(text, "verbs_exp") ||
         contains(text, "mlx5_hw");
}

// Names with the API's prefix somewhere inside, such as HAVE_IBV_EXP_QP_ATTR.
bool is_build_switch(std::string_view word) {
  return word.find("IBV_EXP_") != std::string_view::npos && !word.starts_with("IBV_EXP_");
}

class Scanner {
 public:
  Scanner(std::string_view text, FileReport &report) : text_(text), report_(report) {}

  void source() {
    read();
    // A member counts in files that use the API: others may have one of that name.
    if (report_.uses.empty()) return;
    for (const auto &[subject, place] : members_) {
      report_.uses.push_back(make_use(*subject, Evidence::code));
      report_.uses.back().line = place.first;
      report_.uses.back().column = place.second;
    }
    std::stable_sort(report_.uses.begin(), report_.uses.end(), [](const Use &a, const Use &b) {
      return std::pair(a.line, a.column) < std::pair(b.line, b.column);
    });
  }

  // Comments of a build file start with # or dnl, as whole lines.
  void build_file() {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      const std::string_view line = text_.substr(at_, end - at_);
      const std::size_t first = line.find_first_not_of(" \t");
      const std::string_view body = first == std::string_view::npos ? "" : line.substr(first);
      if (body.starts_with("dnl") || (body.starts_with("#") && !body.starts_with("#include"))) {
        at_ = end;
      } else {
        while (at_ < end) {
          if (is_word(text_[at_])) word(Evidence::probe);
          else ++at_;
        }
      }
      if (at_ < text_.size()) next_line();
    }
  }

 private:
  void read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') next_line();
      else if (c == '/' && peek(1) == '/') skip_line_comment();
      else if (c == '/' && peek(1) == '*') skip_block_comment();
      else if (c == '"') string();
      else if (c == '\'') character();
      else if (c == '#' && begins_line_) directive();
      else if (is_word(c)) word(in_condition_ ? Evidence::probe : Evidence::code);
      else {
        if (c == '\\' && peek(1) == '\n') {
          ++at_;  // the directive goes on
          newline();
          continue;
        }
        if (c != ' ' && c != '\t' && c != '\r') begins_line_ = false;
        ++at_;
      }
    }
  }

  char peek(std::size_t n) const { return at_ + n < text_.size() ? text_[at_ + n] : '\0'; }

  void newline() {
    ++at_;
    ++line_;
    line_start_ = at_;
  }

  void next_line() {
    newline();
    begins_line_ = true;
    in_condition_ = false;
  }

  void skip_line_comment() {
    const std::size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
  }

  void skip_block_comment() {
    at_ += 2;
    while (at_ < text_.size() && !(text_[at_] == '*' && peek(1) == '/')) {
      if (text_[at_] == '\n') newline();
      else ++at_;
    }
    at_ = std::min(at_ + 2, text_.size());
  }

  // Strings that are just a name are found too: dlsym() and setenv() are given them.
  void string() {
    begins_line_ = false;
    const bool raw = at_ > 0 && text_[at_ - 1] == 'R';
    if (raw) return raw_string();
    const std::size_t open = at_++;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      if (text_[at_] == '\\' && peek(1) != '\0') {
        if (peek(1) == '\n') {
          ++at_;
          newline();
        } else {
          at_ += 2;
        }
      } else if (at_ == open + 1 && is_word(text_[at_]) && is_whole_string()) {
        word(Evidence::string);
      } else {
        ++at_;
      }
    }
    if (at_ < text_.size() && text_[at_] == '"') ++at_;
  }

  bool is_whole_string() const {
    std::size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return end < text_.size() && text_[end] == '"';
  }

  void raw_string() {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos || open - at_ > 20) {
      ++at_;
      return;
    }
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const std::size_t end = std::min(text_.find(close, open), text_.size());
    while (at_ < end) {
      if (text_[at_] == '\n') newline();
      else ++at_;
    }
    at_ = std::min(end + close.size(), text_.size());
  }

  // Also the mark between digits, which opens nothing.
  void character() {
    begins_line_ = false;
    std::size_t i = at_ + 1;
    for (; i < text_.size() && i < at_ + 12 && text_[i] != '\n'; ++i) {
      if (text_[i] == '\\') ++i;
      else if (text_[i] == '\'') break;
    }
    at_ = i < text_.size() && text_[i] == '\'' ? i + 1 : at_ + 1;
  }

  void directive() {
    begins_line_ = false;
    ++at_;
    while (peek(0) == ' ' || peek(0) == '\t') ++at_;
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    in_condition_ = name == "if" || name == "ifdef" || name == "ifndef" || name == "elif" ||
                    name == "elifdef" || name == "elifndef";
    if (name == "include") include();
  }

  void include() {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view rest = text_.substr(at_, end - at_);
    if (contains(rest, "mlx5_hw.h") || contains(rest, "mlx4_hw.h"))
      add(private_layout(), Evidence::code, at_, std::string(rest));
    at_ = end;
  }

  void word(Evidence evidence) {
    begins_line_ = false;
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view w = text_.substr(start, at_ - start);
    if (w.size() < 5) return;
    if (const Subject *s = subject_of(w)) {
      // Only programs name an environment variable as a word of its own.
      if (evidence == Evidence::string || is_name_of_api(w)) add(*s, evidence, start, "");
    } else if (const Subject *m = member(w, start)) {
      members_.push_back({m, {line_, static_cast<std::uint32_t>(start - line_start_ + 1)}});
    } else if (is_experimental(w)) {
      if (evidence != Evidence::string) add(unknown_name(w), evidence, start, "");
    } else if (w.starts_with("ibv_mlx5_exp_get_")) {
      add(private_layout(), evidence, start, std::string(w));
    } else if (evidence == Evidence::probe && is_build_switch(w)) {
      add(unknown_switch(w), evidence, start, std::string(w));
    } else if (evidence == Evidence::probe && w == "mlx5_hw") {
      add(private_layout(), evidence, start, "mlx5_hw.h");
    }
  }

  // A structure member that has a row, by its name behind a point or an arrow.
  const Subject *member(std::string_view w, std::size_t start) const {
    const bool reached =
        start > 0 && (text_[start - 1] == '.' || (start > 1 && text_.substr(start - 2, 2) == "->"));
    return reached ? refused_member(w) : nullptr;
  }

  static bool is_name_of_api(std::string_view w) {
    return w.starts_with("ibv_") || w.starts_with("IBV_") || w.starts_with("verbs_") ||
           w.starts_with("rdma_");
  }

  // HAVE_IBV_EXP_X asks for X, which a row may be about.
  static const Subject &unknown_switch(std::string_view w) {
    const std::string_view inner = w.substr(w.find("IBV_EXP_"));
    if (const Subject *s = subject_of(inner)) return *s;
    std::string lower(inner);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (const Subject *s = subject_of(lower)) return *s;
    static const Subject any{"build switch",
                             "build switch",
                             "Build configuration",
                             "",
                             "A macro that the build defines when it finds the API.",
                             Severity::fine,
                             Effort::adapt,
                             false,
                             {}};
    return any;
  }

  void add(const Subject &s, Evidence evidence, std::size_t start, std::string detail) {
    Use use = make_use(s, evidence);
    use.line = line_;
    use.column = static_cast<std::uint32_t>(start - line_start_ + 1);
    use.detail = std::move(detail);
    report_.uses.push_back(std::move(use));
  }

  std::string_view text_;
  FileReport &report_;
  std::vector<std::pair<const Subject *, std::pair<std::uint32_t, std::uint32_t>>> members_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::uint32_t line_ = 1;
  bool begins_line_ = true;
  bool in_condition_ = false;
};

}  // namespace

FileKind kind_by_name(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  static constexpr std::array builds{"CMakeLists.txt", "configure.ac",      "configure.in",
                                     "meson.build",    "meson_options.txt", "Makefile",
                                     "Makefile.am",    "Makefile.in",       "GNUmakefile",
                                     "SConstruct",     "wscript",           "BUILD"};
  if (std::find(builds.begin(), builds.end(), name) != builds.end()) return FileKind::build_file;
  if (name.ends_with(".in")) name.remove_suffix(3);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return FileKind::other;
  const std::string_view suffix = name.substr(dot + 1);
  static constexpr std::array sources{"c",   "h",   "cc", "hh",  "cpp", "hpp", "cxx", "hxx",
                                      "c++", "h++", "C",  "H",   "inl", "inc", "ipp", "tcc",
                                      "cu",  "cuh", "i",  "def", "pyx", "pxd"};
  static constexpr std::array build_suffixes{"m4", "ac", "cmake", "mk", "am", "mak"};
  if (std::find(sources.begin(), sources.end(), suffix) != sources.end()) return FileKind::source;
  if (std::find(build_suffixes.begin(), build_suffixes.end(), suffix) != build_suffixes.end())
    return FileKind::build_file;
  return FileKind::other;
}

void audit_source(std::string_view text, FileReport &report) {
  if (is_worth_reading(text)) Scanner(text, report).source();
}

void audit_build_file(std::string_view text, FileReport &report) {
  if (is_worth_reading(text)) Scanner(text, report).build_file();
}

}  // namespace ibvexp::audit
