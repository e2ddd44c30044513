// Names that the tables must cover, from the text files in facts/. One name per
// line; a second word, where there is one, belongs to the name. Lines that begin
// with # are comments.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace facts {

struct Fact {
  std::string name;
  std::string detail;
};

inline std::vector<Fact> parse(std::istream &in) {
  std::vector<Fact> facts;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    Fact &fact = facts.emplace_back();
    words >> fact.name >> fact.detail;
  }
  return facts;
}

inline std::vector<Fact> read(const std::string &path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return parse(file);
}

}  // namespace facts
