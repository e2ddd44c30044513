// Walks the table of genuine answers against the library:
//   walk LINK [-v] [-d] SECTION...    LINK: ib or eth; -v prints each difference
// A difference that differs.def does not list is an error, and so is one that it lists and that is
// none. -d: on the kernel's own driver, where a card may lack what the preloaded device has, so that
// the genuine answer is never an error.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "rig.h"

namespace truth {
namespace {

struct Listed {
  const char *section, *lines, *kind;
};
const Listed listed[] = {
#define DIFFERS(section, lines, kind, subject, reason) {#section, lines, #kind},
#include "differs.def"
#undef DIFFERS
};

// The numbers of `lines` on a link layer: "3 7-9 12@eth". @driver: on the kernel's own driver.
void add_lines(std::map<int, std::string> &all, const Listed &entry, const std::string &link,
               bool on_driver) {
  for (auto word : words(entry.lines)) {
    const auto at = word.find('@');
    if (at != std::string::npos) {
      const auto only = word.substr(at + 1);
      if (only != link && !(on_driver && only == "driver")) continue;
      word.resize(at);
    }
    const auto dash = word.find('-');
    const int first = std::stoi(word);
    const int last = dash == std::string::npos ? first : std::stoi(word.substr(dash + 1));
    for (int id = first; id <= last; ++id)
      if (!all.emplace(id, entry.kind).second)
        throw std::runtime_error("listed twice: " + std::string(entry.section) + ' ' + word);
  }
}

struct Walk {
  std::string link;
  bool verbose = false, on_driver = false;
  Verbs verbs;
  int lines = 0, equal = 0, errors = 0;
  std::map<std::string, int> kinds;

  void section(const std::string &path) {
    const auto name = std::filesystem::path(path).stem().string();
    std::map<int, std::string> differing;
    for (const auto &entry : listed)
      if (name == entry.section) add_lines(differing, entry, link, on_driver);
    Rig rig(link.c_str());
    for (const auto &line : read_section(path, link)) {
      if (!line.asked) continue;
      const auto verb = verbs.find(line.call.verb);
      if (verb == verbs.end()) throw std::runtime_error("no such verb: " + line.call.verb);
      Answer ours{"not called", {}};
      verb->second(rig, line.call, ours);
      if (line.id == 0) continue;  // what follows shows whether it succeeded
      ++lines;
      const bool same = agrees(line.genuine, ours);
      const auto found = differing.find(line.id);
      const bool is_listed = found != differing.end();
      if (same) ++equal;
      if (is_listed) ++kinds[found->second];
      if (same && is_listed && !on_driver) error(name, line, "listed, and no difference", ours);
      if (!same && !is_listed) error(name, line, "differs", ours);
      if (!same && is_listed && verbose) print(name, line, found->second.c_str(), ours);
      if (is_listed) differing.erase(found);
    }
    for (const auto &[id, kind] : differing) {
      std::printf("%s %d is listed as %s, and there is no such line on %s\n", name.c_str(), id,
                  kind.c_str(), link.c_str());
      ++errors;
    }
  }

  void error(const std::string &section, const Line &line, const char *what, const Answer &ours) {
    ++errors;
    print(section, line, what, ours);
  }
  void print(const std::string &section, const Line &line, const char *what, const Answer &ours) {
    Answer shown{ours.outcome, {}};
    for (const auto &[name, value] : ours.members)
      if (line.genuine.members.contains(name)) shown.members[name] = value;
    std::printf("%s %d %s: %s\n    genuine: %s\n    ours:    %s\n", section.c_str(), line.id, what,
                line.text.c_str(), line.genuine.text().c_str(), shown.text().c_str());
  }
};

}  // namespace
}  // namespace truth

int main(int argc, char **argv) {
  truth::Walk walk;
  if (argc < 3) return 2;
  walk.link = argv[1];
  truth::add_device_verbs(walk.verbs);
  truth::add_qp_verbs(walk.verbs);
  truth::add_memory_verbs(walk.verbs);
  truth::add_queue_verbs(walk.verbs);
  truth::add_transfer_verbs(walk.verbs);
  truth::add_other_verbs(walk.verbs);
  try {
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "-v") walk.verbose = true;
      else if (word == "-d") walk.on_driver = true;
      else walk.section(word);
    }
  } catch (const std::exception &problem) {
    std::printf("%s\n", problem.what());
    return 1;
  }
  std::printf("%d lines, %d equal (%d %%)", walk.lines, walk.equal,
              walk.lines > 0 ? walk.equal * 100 / walk.lines : 0);
  for (const auto &[kind, count] : walk.kinds) std::printf(", %d %s", count, kind.c_str());
  std::printf("; %d errors\n", walk.errors);
  return walk.errors == 0 ? 0 : 1;
}
