// Compares what the audit finds in a stripped binary with what the debug
// information of its unstripped copy says.
//
//     audit-recall UNSTRIPPED STRIPPED
#include <algorithm>
#include <cstdio>
#include <exception>
#include <set>

#include "table/compat.h"
#include "tool/audit/binary/debug_info.h"
#include "tool/audit/binary/table_calls.h"

using namespace ibvexp::audit;

namespace {

constexpr double least_recall = 0.99;
// The generated file calls more; fewer means that the truth is missing.
constexpr std::size_t least_verbs = 50;

std::string verb_of(int from_end) {
  const int size = static_cast<int>(ibvexp::slots.size() * sizeof(void *));
  if (from_end > size) return "slot " + std::to_string(from_end);
  return std::string(
      ibvexp::slots[static_cast<std::size_t>(size - from_end) / sizeof(void *)].entry);
}

std::set<std::string> found_in(const char *path) {
  const ElfImage image(path);
  if (!image.symbols().empty() &&
      std::any_of(image.symbols().begin(), image.symbols().end(), [](const NamedAddress &s) {
        return s.name.find("ibv_exp_") != std::string::npos;
      }))
    throw InputError("is not stripped");
  std::set<std::string> out;
  for (const SlotSite &s : find_dispatch(image).sites) out.insert(verb_of(s.from_end));
  return out;
}

void list(const char *what, const std::set<std::string> &a, const std::set<std::string> &without) {
  for (const std::string &name : a)
    if (!without.contains(name)) std::printf("%s: %s\n", what, name.c_str());
}

}  // namespace

int main(int argc, char **argv) try {
  if (argc != 3) return 2;
  const ElfImage unstripped(argv[1]);
  const std::set<std::string> truth = DebugInfo(unstripped).verbs_with_code();
  const std::set<std::string> found = found_in(argv[2]);
  std::size_t right = 0;
  for (const std::string &name : found) right += truth.contains(name) ? 1 : 0;
  const double recall =
      truth.empty() ? 0 : static_cast<double>(right) / static_cast<double>(truth.size());
  std::printf("%zu verbs in the debug information, %zu found, recall %.3f, %zu false\n",
              truth.size(), found.size(), recall, found.size() - right);
  list("missed", truth, found);
  list("false", found, truth);
  return truth.size() >= least_verbs && recall >= least_recall && right == found.size() ? 0 : 1;
} catch (const std::exception &e) {
  std::fprintf(stderr, "audit-recall: %s\n", e.what());
  return 2;
}
