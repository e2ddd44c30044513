#include "tool/audit/source.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tool/audit/subjects.h"

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

enum class Language : std::uint8_t { c, rust, go };

Language language_of(std::string_view path) {
  return path.ends_with(".rs")   ? Language::rust
         : path.ends_with(".go") ? Language::go
                                 : Language::c;
}

// Words behind which a name is used, not declared.
bool begins_expression(std::string_view word) {
  static constexpr std::array words{"return", "case", "goto", "else", "do",  "sizeof", "typeof",
                                    "throw",  "in",   "and",  "or",   "not", "defined"};
  return std::find(words.begin(), words.end(), word) != words.end();
}

struct Suppression {
  std::uint32_t line;              // 0: the whole file
  std::vector<std::string> names;  // all without
};

class Scanner {
 public:
  Scanner(std::string_view text, Language language, FileReport &report, bool declares_layouts)
      : text_(text),
        language_(language),
        report_(report),
        is_header_of_layouts_(declares_layouts) {}

  void source() {
    read();
    add_members();
    suppress();
  }

  void add_members() {
    // A member counts in files that use the API: others may have one of that name.
    if (report_.uses.empty()) return;
    for (const auto &[subject, place] : members_) {
      Use use = make_use(*subject, Evidence::code);
      use.line = place.first;
      use.column = place.second;
      if (!report_.add(std::move(use))) return;
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
        comment(line, line_);
        at_ = end;
      } else {
        while (at_ < end) {
          if (is_word(text_[at_])) word(Evidence::probe);
          else ++at_;
        }
      }
      if (at_ < text_.size()) next_line();
    }
    suppress();
  }

 private:
  void suppress() {
    for (Use &u : report_.uses)
      u.suppressed = std::any_of(suppressions_.begin(), suppressions_.end(),
                                 [&](const Suppression &s) { return suppresses(s, u); });
  }

  void read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') next_line();
      else if (c == '/' && peek(1) == '/') skip_line_comment();
      else if (c == '/' && peek(1) == '*') skip_block_comment();
      else if (c == '`' && language_ == Language::go) quoted_lines('`');
      else if (c == '"') string();
      else if (c == '\'') character();
      else if (c == '#' && begins_line_ && language_ == Language::c) directive();
      else if (is_word(c)) word(in_condition_ ? Evidence::probe : Evidence::code);
      else {
        if (c == '\\' && peek(1) == '\n') {
          ++at_;  // the directive goes on
          newline();
          continue;
        }
        if (c != ' ' && c != '\t' && c != '\r') {
          begins_line_ = false;
          last_ = c;
          follow(c);
        }
        ++at_;
      }
    }
  }

  // Bodies of enumerations, where names are declared.
  void follow(char c) {
    if (c == '{') in_enum_ = std::exchange(enum_ahead_, false);
    else if (c == '}') in_enum_ = false;
    else if (c == ';' || c == '(' || c == ')') enum_ahead_ = false;
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
    defines_ = false;
    // What a directive ended with does not go on.
    if (std::exchange(in_directive_, false)) last_ = '\n';
  }

  void skip_line_comment() {
    if (is_preamble()) {
      at_ += 2;
      return;
    }
    const std::size_t start = at_;
    at_ = std::min(text_.find('\n', at_), text_.size());
    comment(text_.substr(start, at_ - start), line_);
  }

  void skip_block_comment() {
    if (is_preamble()) {
      at_ += 2;
      return;
    }
    const std::size_t start = at_;
    const std::uint32_t line = line_;
    at_ += 2;
    while (at_ < text_.size() && !(text_[at_] == '*' && peek(1) == '/')) {
      if (text_[at_] == '\n') newline();
      else ++at_;
    }
    at_ = std::min(at_ + 2, text_.size());
    comment(text_.substr(start, at_ - start), line);
  }

  // ibvexp-audit: ignore [NAME...] is about the line that it stands on, or the next
  // one if it has a line to itself; ignore-file about all lines.
  void comment(std::string_view text, std::uint32_t line) {
    constexpr std::string_view mark = "ibvexp-audit:";
    const std::size_t at = text.find(mark);
    if (at == std::string_view::npos) return;
    std::string words(text.substr(at + mark.size(), text.find('\n', at) - at - mark.size()));
    for (char &c : words)
      if (!is_word(c) && c != '-') c = ' ';
    Suppression out{begins_line_ ? line_ + 1 : line, {}};
    bool first = true, whole_file = false, valid = false;
    for_each_word(words, ' ', [&](std::string_view word) {
      if (first) {
        whole_file = word == "ignore-file";
        valid = whole_file || word == "ignore";
      } else if (is_experimental(word) || word.starts_with("mlx5_hw")) {
        out.names.emplace_back(word);
      }
      first = false;
    });
    if (whole_file) out.line = 0;
    if (valid) suppressions_.push_back(std::move(out));
  }

  bool suppresses(const Suppression &s, const Use &u) const {
    return (s.line == 0 || s.line == u.line) &&
           (s.names.empty() ||
            std::any_of(s.names.begin(), s.names.end(),
                        [&](const std::string &n) { return u.subject->name.starts_with(n); }));
  }

  // In Go, comments in front of `import "C"` are C.
  bool is_preamble() {
    if (language_ != Language::go) return false;
    if (preamble_end_ == std::string_view::npos) preamble_end_ = find_preamble_end();
    return at_ >= preamble_start_ && at_ < preamble_end_;
  }

  std::size_t find_preamble_end() {
    const std::size_t import = text_.find("\nimport \"C\"");
    if (import == std::string_view::npos) return 0;
    // Back over lines that are comments or belong to one.
    std::size_t start = import;
    if (text_.substr(0, import).ends_with("*/")) {
      start = std::min(text_.rfind("/*", import), import);
    } else {
      while (start > 0) {
        const std::size_t line = text_.rfind('\n', start - 1) + 1;
        if (text_.substr(line, 2) != "//") break;
        start = line == 0 ? 0 : line - 1;
      }
    }
    preamble_start_ = start;
    return import;
  }

  // A string over several lines, in which nothing is escaped.
  void quoted_lines(char quote) {
    begins_line_ = false;
    ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\n') newline();
      else ++at_;
    }
    ++at_;
  }

  // Strings that are just a name are found too: dlsym() and setenv() are given them.
  void string() {
    begins_line_ = false;
    last_ = '"';
    if (language_ == Language::c && at_ > 0 && text_[at_ - 1] == 'R') return raw_string();
    if (language_ == Language::rust && at_ > 0 && (text_[at_ - 1] == '#' || text_[at_ - 1] == 'r'))
      return raw_rust_string();
    const std::size_t open = at_++;
    while (at_ < text_.size() && text_[at_] != '"' &&
           (text_[at_] != '\n' || language_ == Language::rust)) {
      if (text_[at_] == '\n') {
        newline();
      } else if (text_[at_] == '\\' && peek(1) != '\0') {
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

  // r"...", r#"..."#: ends with as many marks as stand in front.
  void raw_rust_string() {
    std::size_t marks = 0;
    while (marks < at_ && text_[at_ - 1 - marks] == '#') ++marks;
    const std::string close = "\"" + std::string(marks, '#');
    const std::size_t end = std::min(text_.find(close, at_ + 1), text_.size());
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
    defines_ = name == "define";
    in_directive_ = true;
    if (name == "include") include();
    else if (name == "if") open_condition();
    else if (name == "ifdef" || name == "ifndef") constant_.push_back('?');
    else if (name.starts_with("el")) alternative();
    else if (name == "endif" && !constant_.empty()) constant_.pop_back();
  }

  // '0' or '1' for a condition that is just that, '?' for any other.
  void open_condition() {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view rest = text_.substr(at_, end - at_);
    rest = rest.substr(0, std::min(rest.find("/*"), rest.find("//")));
    std::string bare;
    for (const char c : rest)
      if (std::string_view(" \t\r()").find(c) == std::string_view::npos) bare += c;
    const char value = bare == "0" || bare == "false"  ? '0'
                       : bare == "1" || bare == "true" ? '1'
                                                       : '?';
    constant_.push_back(value);
    if (value == '0') skip_disabled();
  }

  // Of `#if 1`, nothing else counts; of `#if 0`, it does.
  void alternative() {
    if (!constant_.empty() && constant_.back() == '1') skip_disabled();
  }

  // Up to the directive that ends this part, which is read then.
  void skip_disabled() {
    int depth = 0;
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      at_ = end;
      if (at_ == text_.size()) return;
      next_line();
      std::size_t i = at_;
      const auto blank = [&] {
        while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) ++i;
      };
      blank();
      if (i >= text_.size() || text_[i] != '#') continue;
      ++i;
      blank();
      const std::string_view name = text_.substr(i, 5);
      if (name.starts_with("if")) ++depth;
      else if (depth == 0 && (name.starts_with("el") || name == "endif")) return;
      else if (name == "endif") --depth;
    }
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
    if (evidence == Evidence::code && declares()) evidence = Evidence::declaration;
    if (w.size() >= 5) name(w, evidence, start);
    enum_ahead_ = enum_ahead_ || w == "enum";
    defines_ = false;
    last_ = 'w';
    last_word_ = w;
  }

  void name(std::string_view w, Evidence evidence, std::size_t start) {
    // C.struct_ibv_exp_x
    if (language_ == Language::go && w.starts_with("struct_")) w.remove_prefix(7);
    if (const Subject *s = subject_of(w)) {
      // Only programs name an environment variable as a word of its own.
      if (evidence == Evidence::string || is_name_of_api(w)) add(*s, evidence, start, "");
    } else if (const Subject *c = bound_constant(w)) {
      add(*c, evidence, start, "");
    } else if (const Subject *m = member(w, start)) {
      members_.push_back({m, {line_, static_cast<std::uint32_t>(start - line_start_ + 1)}});
    } else if (language_ == Language::c && !is_header_of_layouts_ && defines_private_structure(w)) {
      members_.push_back(
          {&private_layout(), {line_, static_cast<std::uint32_t>(start - line_start_ + 1)}});
    } else if (is_experimental(w)) {
      if (evidence == Evidence::declaration) report_.declared.emplace_back(w);
      else if (evidence != Evidence::string) add(unknown_name(w), evidence, start, "");
    } else if (w.starts_with("ibv_mlx5_exp_get_")) {
      add(private_layout(), evidence, start, std::string(w));
    } else if (evidence == Evidence::probe && is_build_switch(w)) {
      add(unknown_switch(w), evidence, start, std::string(w));
    } else if (evidence == Evidence::probe && w == "mlx5_hw") {
      add(private_layout(), evidence, start, "mlx5_hw.h");
    }
  }

  // Whether the word that was just read is declared there: a macro, an enumerator,
  // a function. A file that brings the API's declarations asks for nothing.
  bool declares() const {
    if (defines_) return true;
    if (in_enum_ && (last_ == '{' || last_ == ',')) return true;
    if (language_ == Language::rust || language_ == Language::go) {
      static constexpr std::array words{"fn", "const", "static", "type", "mod", "func", "var"};
      return last_ == 'w' && std::find(words.begin(), words.end(), last_word_) != words.end();
    }
    std::size_t next = at_;
    while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
    if (next >= text_.size() || text_[next] != '(') return false;
    return (last_ == 'w' || last_ == '*') && !begins_expression(last_word_);
  }

  // Generated bindings put the enumeration in front: ibv_exp_x_IBV_EXP_Y.
  static const Subject *bound_constant(std::string_view w) {
    const std::size_t at = w.find("_IBV_EXP_");
    return at == std::string_view::npos || !w.starts_with("ibv_") ? nullptr
                                                                  : subject_of(w.substr(at + 1));
  }

  // A structure member that has a row, by its name behind a point or an arrow.
  const Subject *member(std::string_view w, std::size_t start) const {
    const bool reached =
        start > 0 && (text_[start - 1] == '.' || (start > 1 && text_.substr(start - 2, 2) == "->"));
    return reached && !becomes_nothing() ? refused_member(w, inner_member()) : nullptr;
  }

  // The member that is reached through the one that was just read; empty: none.
  std::string_view inner_member() const {
    const std::size_t from = text_.substr(at_, 2) == "->" ? at_ + 2 : at_ + 1;
    if (peek(0) != '.' && from == at_ + 1) return {};
    std::size_t end = from;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(from, end - from);
  }

  // Whether the member that was just read is set to zero: that asks for nothing.
  bool becomes_nothing() const {
    constexpr std::string_view blank = " \t\r\n";
    const auto next = [&](std::size_t i) {
      return std::min(text_.find_first_not_of(blank, i), text_.size());
    };
    std::size_t i = next(at_);
    if (i == text_.size() || text_[i] != '=') return false;
    const std::size_t value = next(i + 1);
    for (i = value; i < text_.size() && is_word(text_[i]);) ++i;
    const std::string_view word = text_.substr(value, i - value);
    if (word != "0" && word != "NULL" && word != "nullptr") return false;
    i = next(i);
    return i < text_.size() && std::string_view(",;})").find(text_[i]) != std::string_view::npos;
  }

  // libmlx5's structures, which a program that has a copy of them reads: what was just
  // read is the name, and the body follows.
  bool defines_private_structure(std::string_view w) const {
    static constexpr std::array names{"mlx5_cq", "mlx5_qp", "mlx5_srq", "mlx5_rwq"};
    if (std::find(names.begin(), names.end(), w) == names.end() || last_word_ != "struct")
      return false;
    const std::size_t next = text_.find_first_not_of(" \t\r\n", at_);
    return last_ == 'w' && next != std::string_view::npos && text_[next] == '{';
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
                             Severity::works,
                             Effort::adapt,
                             {}};
    return any;
  }

  void add(const Subject &s, Evidence evidence, std::size_t start, std::string detail) {
    Use use = make_use(s, evidence);
    use.line = line_;
    use.column = static_cast<std::uint32_t>(start - line_start_ + 1);
    use.detail = std::move(detail);
    report_.add(std::move(use));
  }

  std::string_view text_;
  Language language_;
  FileReport &report_;
  bool is_header_of_layouts_;  // mlx5_hw.h itself, which asks for nothing until it is included
  std::vector<std::pair<const Subject *, std::pair<std::uint32_t, std::uint32_t>>> members_;
  std::vector<Suppression> suppressions_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::uint32_t line_ = 1;
  bool begins_line_ = true;
  bool in_condition_ = false;
  bool in_directive_ = false, defines_ = false;
  bool in_enum_ = false, enum_ahead_ = false;
  char last_ = '\n';  // the last character that means something, 'w' of a word
  std::string_view last_word_;
  std::vector<char> constant_;  // of conditions that are open
  std::size_t preamble_start_ = 0, preamble_end_ = std::string_view::npos;
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
                                      "cu",  "cuh", "i",  "def", "pyx", "pxd", "rs",  "go"};
  static constexpr std::array build_suffixes{"m4", "ac", "cmake", "mk", "am", "mak"};
  if (std::find(sources.begin(), sources.end(), suffix) != sources.end()) return FileKind::source;
  if (std::find(build_suffixes.begin(), build_suffixes.end(), suffix) != build_suffixes.end())
    return FileKind::build_file;
  return FileKind::other;
}

void audit_source(std::string_view path, std::string_view text, FileReport &report) {
  if (is_worth_reading(text))
    Scanner(text, language_of(path), report, path.ends_with("mlx5_hw.h")).source();
}

void audit_build_file(std::string_view text, FileReport &report) {
  if (is_worth_reading(text)) Scanner(text, Language::c, report, false).build_file();
}

}  // namespace ibvexp::audit
