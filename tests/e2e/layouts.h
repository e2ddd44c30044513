// The members of the legacy structures, as recorded from the last release: what a
// test needs to change any of them without naming it.
#pragma once

#include <cstddef>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// A number or a pointer somewhere in a structure; members of unions overlap.
struct Leaf {
  std::string path;
  std::size_t offset;
  std::size_t size;
  std::string pointee;  // of pointers: what they lead to; "*" for another pointer
};

struct Layout {
  std::size_t size = 0;
  std::vector<Leaf> leaves;
};

class Layouts {
 public:
  explicit Layouts(const char *file) {
    std::ifstream in(file);
    facts_ = nlohmann::json::parse(in).at("structs");
  }

  // Null for a structure that the legacy headers do not show.
  const Layout *find(const std::string &name) {
    const auto known = layouts_.find(name);
    if (known != layouts_.end()) return &known->second;
    const auto fact = facts_.find("struct " + name);
    if (fact == facts_.end()) return nullptr;
    Layout layout;
    layout.size = fact->at("size");
    add(fact->at("members"), "", 0, layout.leaves);
    return &layouts_.emplace(name, std::move(layout)).first->second;
  }

 private:
  // A member is its name, offset, size and type.
  void add(const nlohmann::json &members, const std::string &prefix, std::size_t base,
           std::vector<Leaf> &to) {
    for (const auto &member : members) {
      const std::string name = member[0].is_null() ? "" : member[0].get<std::string>();
      const std::string path = prefix + (prefix.empty() || name.empty() ? "" : ".") + name;
      const std::size_t offset = base + member[1].get<std::size_t>();
      const auto &type = member[3];
      if (type.is_object()) {
        for (const auto &nested : type) add(nested, path, offset, to);
        continue;
      }
      add_named(type.get<std::string>(), path, offset, member[2].get<std::size_t>(), to);
    }
  }

  void add_named(std::string type, const std::string &path, std::size_t offset, std::size_t size,
                 std::vector<Leaf> &to) {
    for (const char *word : {"const ", "struct ", "union "})
      if (type.rfind(word, 0) == 0) type.erase(0, std::string(word).size());
    if (type.find("(*)") != std::string::npos) return;  // functions are not called by us
    if (const auto star = type.find(" *"); star != std::string::npos) {
      const bool deeper = type.find('*', star + 2) != std::string::npos;
      to.push_back({path, offset, size, deeper ? "*" : type.substr(0, star)});
      return;
    }
    if (const auto fact = facts_.find("struct " + type); fact != facts_.end())
      return add(fact->at("members"), path, offset, to);
    if (size == 1 || size == 2 || size == 4 || size == 8) to.push_back({path, offset, size, ""});
  }

  nlohmann::json facts_;
  std::map<std::string, Layout> layouts_;
};
