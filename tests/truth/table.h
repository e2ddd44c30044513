// A section of the table, line by line: a number, a call with its arguments, and what MLNX_OFED
// 4.9 answered, on one link layer or on both. README.md has the format.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace truth {

// What came back: how the call ended, and members that it wrote. `kept`: a member that still has
// the pattern that the caller had put there.
struct Answer {
  std::string outcome;
  std::map<std::string, std::string> members;

  std::string text() const {
    std::string all = outcome;
    for (const auto &[name, value] : members) all += ' ' + name + '=' + value;
    return all;
  }
};

inline std::string name_of(int error) {
  const char *name = strerrorname_np(std::abs(error));
  if (name == nullptr || error == 0) return std::to_string(error);
  return error < 0 ? std::string("-") + name : name;
}

struct Call {
  std::string verb;
  std::map<std::string, std::string> arguments;

  bool has(const std::string &name) const { return arguments.contains(name); }
  std::string text(const std::string &name, const std::string &otherwise = {}) const {
    const auto found = arguments.find(name);
    return found == arguments.end() ? otherwise : found->second;
  }
  std::uint64_t number(const std::string &name, std::uint64_t otherwise = 0) const {
    const auto found = arguments.find(name);
    if (found == arguments.end()) return otherwise;
    const char *begin = found->second.c_str();
    char *end = nullptr;
    const std::uint64_t value = *begin == '-'
                                    ? static_cast<std::uint64_t>(std::strtoll(begin, &end, 0))
                                    : std::strtoull(begin, &end, 0);
    if (end == begin || *end != '\0') throw std::runtime_error(name + " is no number");
    return value;
  }
  int integer(const std::string &name, int otherwise = 0) const {
    return static_cast<int>(number(name, static_cast<std::uint64_t>(otherwise)));
  }
};

struct Line {
  int id = 0;  // 0: prepares what follows
  std::string text;
  Call call;
  bool asked = true;  // on this link layer
  Answer genuine;
};

inline std::vector<std::string> words(const std::string &text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

inline std::pair<std::string, std::string> split_member(const std::string &word) {
  const auto equals = word.find('=');
  if (equals == std::string::npos) throw std::runtime_error("no value: " + word);
  return {word.substr(0, equals), word.substr(equals + 1)};
}

inline Line parse_line(const std::string &text, const std::string &link) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, '|');) parts.push_back(part);
  Line line;
  auto call = words(parts.at(0));
  if (call.size() < 2) throw std::runtime_error("no call: " + text);
  line.id = call[0] == "-" ? 0 : std::stoi(call[0]);
  line.call.verb = call[1];
  for (std::size_t i = 1; i < call.size(); ++i) {
    line.text += (i == 1 ? "" : " ") + call[i];
    if (i > 1) line.call.arguments.insert(split_member(call[i]));
  }
  if (line.id == 0) return line;

  line.asked = false;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    auto answer = words(parts[i]);
    if (answer.empty()) throw std::runtime_error("no answer: " + text);
    if (answer[0] == "ib:" || answer[0] == "eth:") {
      if (answer[0] != link + ':') continue;
      answer.erase(answer.begin());
    }
    line.asked = true;
    line.genuine.outcome = answer.at(0);
    for (std::size_t word = 1; word < answer.size(); ++word)
      if (!line.genuine.members.insert(split_member(answer[word])).second)
        throw std::runtime_error("twice: " + text);
  }
  return line;
}

inline std::vector<Line> read_section(const std::string &path, const std::string &link) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<Line> lines;
  int last = 0;
  for (std::string text; std::getline(in, text);) {
    if (text.empty() || text[0] == '#') continue;
    lines.push_back(parse_line(text, link));
    if (lines.back().id == 0) continue;
    if (lines.back().id <= last) throw std::runtime_error("out of order: " + text);
    last = lines.back().id;
  }
  return lines;
}

// Numbers by value, everything else by its letters.
inline bool same_value(const std::string &one, const std::string &other) {
  if (one == other) return true;
  char *end_of_one = nullptr, *end_of_other = nullptr;
  const auto a = std::strtoull(one.c_str(), &end_of_one, 0);
  const auto b = std::strtoull(other.c_str(), &end_of_other, 0);
  return !one.empty() && !other.empty() && *end_of_one == '\0' && *end_of_other == '\0' && a == b;
}

// Whether an answer is the genuine one in everything that the table says of it.
inline bool agrees(const Answer &genuine, const Answer &ours) {
  const bool failed = ours.outcome != "ok" && ours.outcome != "none";
  if (genuine.outcome != ours.outcome && !(genuine.outcome == "fails" && failed)) return false;
  for (const auto &[name, value] : genuine.members) {
    const auto found = ours.members.find(name);
    if (found == ours.members.end() || !same_value(value, found->second)) return false;
  }
  return true;
}

}  // namespace truth
