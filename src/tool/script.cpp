#include "tool/script.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>

namespace ibvexp::tool {
namespace {

namespace fs = std::filesystem;

// What a word expands to; nothing: it cannot be determined.
using Expansion = std::optional<std::string>;

struct ShellWord {
  std::string raw;  // as written
  Expansion value;
  bool pattern = false;  // of "case", or of file names
};

using ShellCommand = std::vector<ShellWord>;

bool contains(std::initializer_list<std::string_view> list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') &&
         std::all_of(text.begin(), text.end(), letter);
}

// After these comes another command.
bool is_reserved(std::string_view word) {
  return contains({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "exec",
                   "command", "nohup", "setsid"},
                  word);
}

// These take the program among their arguments.
bool is_launcher(std::string_view name) {
  return contains(
      {"env", "nice", "ionice", "chrt", "taskset", "numactl", "timeout", "stdbuf", "sudo", "mpirun",
       "mpiexec", "oshrun", "srun", "valgrind", "strace", "ltrace", "gdb", "ibvexp"},
      name);
}

bool is_shell_name(std::string_view name) {
  return contains({"sh", "bash", "dash", "ash", "ksh", "zsh"}, name);
}

// What their own program is says nothing.
bool is_interpreter(std::string_view name) {
  for (const std::string_view start : {"python", "perl", "ruby", "node", "java", "tclsh"})
    if (name.starts_with(start)) return true;
  return false;
}

bool is_shell(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with("#!")) return false;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find_first_of(" \t/!#", at), line.size());
    if (is_shell_name(line.substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

// Reads a script word by word, with what its variables are at that place.
class Script {
 public:
  Script(const fs::path &file, std::string_view text)
      : file_(fs::absolute(file)), folder_(folder_of_script()), text_(text) {}

  Started read() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(out_);
  }

 private:
  std::string folder_of_script() const { return file_.parent_path().string(); }

  char peek(std::size_t n = 0) const { return at_ + n < text_.size() ? text_[at_ + n] : '\0'; }

  void step() {
    const char c = peek();
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '\\' && peek(1) == '\n') {
      at_ += 2;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '<' || c == '>') {
      redirection();
    } else if (c == '&' && peek(1) == '>') {
      ++at_;
    } else if (c == '(' && peek(1) == '(' && command_.empty()) {
      // Arithmetic.
      at_ = text_.find("))", at_);
      at_ = at_ == text_.npos ? text_.size() : at_ + 2;
    } else if (c == '\n' || c == ';' || c == '|' || c == '&' || c == '(' || c == ')') {
      end_command();
      if (c == '(') folders_.push_back(folder_);
      if (c == ')' && !folders_.empty()) {
        folder_ = folders_.back();
        folders_.pop_back();
      }
      ++at_;
      if (c == '\n') skip_documents();
    } else {
      command_.push_back(word());
    }
  }

  void redirection() {
    const bool document = peek() == '<' && peek(1) == '<' && peek(2) != '<';
    at_ = std::min(text_.find_first_not_of("<>&|-", at_), text_.size());
    while (peek() == ' ' || peek() == '\t') ++at_;
    if (at_ == text_.size() || std::string_view("\n;|&()").find(peek()) != std::string_view::npos)
      return;
    const ShellWord target = word();
    if (document) documents_.push_back(target.value.value_or(target.raw));
  }

  // Here-documents begin behind the line that names them.
  void skip_documents() {
    for (const std::string &end : documents_) {
      while (at_ < text_.size()) {
        const std::size_t stop = std::min(text_.find('\n', at_), text_.size());
        std::string_view line = text_.substr(at_, stop - at_);
        at_ = std::min(stop + 1, text_.size());
        line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
        if (line == end) break;
      }
    }
    documents_.clear();
  }

  ShellWord word() {
    ShellWord out;
    out.value = "";
    const std::size_t start = at_;
    char quote = '\0';
    while (at_ < text_.size()) {
      const char c = peek();
      if (quote == '\0' && std::string_view(" \t\r\n;|&()<>").find(c) != std::string_view::npos)
        break;
      if (quote == '\'' && c != '\'') {
        append(out, std::string(1, c));
        ++at_;
      } else if ((c == '"' && quote != '\'') || c == '\'') {
        if (c == '\'' && quote == '"') append(out, "'");
        else quote = quote == c ? '\0' : c;
        ++at_;
      } else if (c == '\\') {
        if (peek(1) != '\n') append(out, std::string(1, peek(1)));
        at_ = std::min(at_ + 2, text_.size());
      } else if (c == '$' || c == '`') {
        append(out, expansion());
      } else {
        if (quote == '\0' && (c == '*' || c == '?')) out.pattern = true;
        append(out, std::string(1, c));
        ++at_;
      }
    }
    out.raw = text_.substr(start, at_ - start);
    return out;
  }

  static void append(ShellWord &word, const Expansion &more) {
    if (!more) word.value.reset();
    else if (word.value) *word.value += *more;
  }

  // Of "$", "${", "$(" or "`", whose end it leaves.
  Expansion expansion() {
    // $"text" and $'text' are quotes of another kind.
    if (peek(1) == '"' || peek(1) == '\'') {
      ++at_;
      return "";
    }
    if (peek() == '`') {
      const std::size_t end = text_.find('`', at_ + 1);
      return substitution(at_ + 1, std::min(end, text_.size()));
    }
    if (peek(1) == '(') {
      std::size_t end = at_ + 2;
      for (int open = 1; end < text_.size(); ++end) {
        if (text_[end] == '(') ++open;
        if (text_[end] == ')' && --open == 0) break;
      }
      return substitution(at_ + 2, end);
    }
    if (peek(1) == '{') {
      const std::size_t end = std::min(text_.find('}', at_), text_.size());
      const std::string_view name = text_.substr(at_ + 2, end - at_ - 2);
      at_ = std::min(end + 1, text_.size());
      if (name == "0%/*") return folder_of_script();
      return variable(name);
    }
    ++at_;
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_.substr(at_, end + 1 - at_))) ++end;
    if (end == at_ && at_ < text_.size()) ++end;  // $0, $1, $@
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end;
    return variable(name);
  }

  Expansion variable(std::string_view name) const {
    if (name == "0" || name == "BASH_SOURCE" || name == "BASH_SOURCE[0]") return file_.string();
    if (name == "PWD") return folder_;
    const auto it = variables_.find(name);
    return it == variables_.end() ? Expansion() : it->second;
  }

  // Of commands that name folders and files: the last one says it.
  Expansion substitution(std::size_t from, std::size_t to) {
    if (depth_ == deepest) {
      at_ = std::min(to + 1, text_.size());
      return {};
    }
    Script inner(file_, text_.substr(from, to - from));
    inner.depth_ = depth_ + 1;
    inner.variables_ = variables_;
    inner.folder_ = folder_;
    at_ = std::min(to + 1, text_.size());
    while (inner.at_ < inner.text_.size()) inner.step();
    inner.end_command();
    return inner.said_;
  }

  void end_command() {
    ShellCommand command;
    command.swap(command_);
    said_.reset();
    auto at = command.begin();
    bool options = false;  // of a reserved word
    for (; at != command.end(); ++at) {
      if (is_assignment(*at)) assign(*at);
      else if (is_reserved(at->raw)) options = true;
      else if (!options || !at->raw.starts_with('-')) break;
    }
    if (at == command.end()) return;
    const std::string name = file_name(*at);
    const auto argument = std::find_if(at + 1, command.end(),
                                       [](const ShellWord &w) { return !w.raw.starts_with('-'); });
    const Expansion first = argument != command.end() ? argument->value : Expansion();
    if (contains({"export", "readonly", "local", "declare", "typeset"}, name)) {
      for (; at != command.end(); ++at)
        if (is_assignment(*at)) assign(*at);
    } else if (name == "dirname") {
      if (first) said_ = fs::path(*first).parent_path().string();
      if (said_ == "") said_ = ".";
    } else if (name == "readlink" || name == "realpath") {
      said_ = first;
    } else if (name == "pwd") {
      said_ = folder_;
    } else if (name == "cd" || name == "pushd") {
      folder_ = first ? located(*first) : Expansion();
    } else {
      start(ShellCommand(at, command.end()));
    }
  }

  static std::string file_name(const ShellWord &word) {
    return word.value ? fs::path(*word.value).filename().string() : "";
  }

  static bool is_assignment(const ShellWord &word) {
    return is_name(std::string_view(word.raw).substr(
               0, std::min(word.raw.find('='), word.raw.size()))) &&
           word.raw.find('=') != std::string::npos;
  }

  void assign(const ShellWord &word) {
    const std::size_t equals = word.raw.find('=');
    Expansion value;
    if (word.value) value = word.value->substr(equals + 1);
    // Behind "if" it may be either.
    const auto [it, is_new] = variables_.emplace(word.raw.substr(0, equals), value);
    if (!is_new && it->second != value) it->second.reset();
  }

  Expansion located(const std::string &name) const {
    if (name.starts_with('/')) return name;
    return folder_ ? Expansion((fs::path(*folder_) / name).string()) : Expansion();
  }

  // The file that a word with a folder names, if it is there.
  std::optional<fs::path> file_of(const ShellWord &word) const {
    if (!word.value || word.value->find('/') == std::string::npos) return {};
    const Expansion path = located(*word.value);
    std::error_code error;
    if (!path || !fs::is_regular_file(*path, error)) return {};
    return fs::path(*path).lexically_normal();
  }

  void start(const ShellCommand &command) {
    const ShellWord &first = command.front();
    if (first.pattern) return;
    const std::string name = file_name(first);
    // "$SUDO ./program" is one of a launcher as well.
    if (!first.value || is_launcher(name) || is_shell_name(name))
      for (auto at = command.begin() + 1; at != command.end(); ++at)
        if (const auto file = file_of(*at);
            file && (is_shell_name(name) || access(file->c_str(), X_OK) == 0))
          return take(*file);
    if (is_launcher(name) || is_shell_name(name)) return;
    if (is_interpreter(name))
      return unknown("the program that ", first, " runs cannot be determined");
    if (const auto file = file_of(first)) return take(*file);
    // Names without a folder are the system's, and not looked up.
    if (first.raw.find_first_of("/$`") == std::string::npos) return;
    if (first.value) unknown("", first, " does not exist");
    else unknown("the program that ", first, " starts cannot be determined");
  }

  void unknown(const char *before, const ShellWord &word, const char *behind) {
    const std::size_t line = std::min(word.raw.find_first_of("\n\r\t\33"), word.raw.size());
    const std::size_t shown = std::min(line, longest);
    if (out_.unknown.empty())
      out_.unknown =
          before + word.raw.substr(0, shown) + (shown < word.raw.size() ? "..." : "") + behind;
  }

  void take(fs::path program) {
    std::error_code error;
    if (fs::equivalent(program, file_, error)) return;
    if (std::find(out_.programs.begin(), out_.programs.end(), program) == out_.programs.end())
      out_.programs.push_back(std::move(program));
  }

  static constexpr int deepest = 8;
  static constexpr std::size_t longest = 60;  // of a name in a report

  fs::path file_;
  Expansion folder_;                // where relative names are looked up
  std::vector<Expansion> folders_;  // outside of "("
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;  // of substitutions
  ShellCommand command_;
  std::vector<std::string> documents_;
  std::map<std::string, Expansion, std::less<>> variables_;
  Expansion said_;  // by the last command
  Started out_;
};

// libtool's wrappers name their program in a comment, and find it in a way of their own.
std::optional<fs::path> wrapped_by_libtool(const fs::path &script, std::string_view text) {
  constexpr std::string_view words = "temporary wrapper script for ";
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + words.size());
  const fs::path file = script.parent_path() / rest.substr(0, rest.find_first_of(" \n"));
  std::error_code error;
  if (!fs::is_regular_file(file, error) || fs::equivalent(file, script, error)) return {};
  return file;
}

}  // namespace

Started started_by(const fs::path &script, std::string_view text) {
  if (const auto program = wrapped_by_libtool(script, text)) return {{*program}, {}};
  if (!is_shell(text)) return {};
  return Script(script, text).read();
}

}  // namespace ibvexp::tool
