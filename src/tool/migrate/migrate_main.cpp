// ibvexp-migrate: rewrites sources from the experimental verbs to rdma-core.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "tool/command.h"
#include "tool/migrate/migration_report.h"
#include "tool/migrate/session.h"
#include "tool/migrate/unified_diff.h"
#include "tool/usage.h"
#include "tool/write_file.h"

namespace fs = std::filesystem;
using namespace ibvexp::migrate;
using ibvexp::tool::end_of_parsing;
using ibvexp::tool::write_file;

namespace {

using ibvexp::tool::exit_findings;
using ibvexp::tool::exit_ok;
using ibvexp::tool::exit_trouble;

// Headers lie where they are installed, or in the source tree for its tests.
std::string folder_of(const char *header, const char *in_source, const char *installed) {
#ifdef SOURCE_INCLUDE
  const fs::path place = fs::path(SOURCE_INCLUDE) / in_source;
#else
  static_cast<void>(in_source);
  const fs::path place = fs::path(INSTALLED_INCLUDE) / installed;
#endif
  static_cast<void>(installed);
  if (fs::exists(place / header)) return place;
  throw std::runtime_error(fmt::format("{} is not in {}", header, place.string()));
}

struct Choice {
  Options options;
  bool write = false, backup = false;
  std::string report, out_root;
};

// Where files below one folder go, and where they lie now.
class Place {
 public:
  Place(const Choice &choice, const Outcome &outcome) : choice_(choice) {
    for (const Files *files : {&outcome.files, &outcome.build_files})
      for (const auto &[path, file] : *files)
        common_ = common_.empty() ? fs::path(path).parent_path() : shared(common_, path);
  }

  void write(const fs::path &path, const std::string &text) const {
    if (choice_.out_root.empty()) {
      if (choice_.backup)
        fs::copy_file(path, path.string() + ".orig", fs::copy_options::overwrite_existing);
      return write_file(path, text);
    }
    const fs::path to = choice_.out_root / path.lexically_relative(common_);
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    if (error)
      throw std::runtime_error(
          fmt::format("cannot create {}: {}", to.parent_path().string(), error.message()));
    write_file(to, text);
  }

 private:
  static fs::path shared(const fs::path &a, const fs::path &b) {
    fs::path out;
    for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end() && *x == *y; ++x, ++y)
      out /= *x;
    return out;
  }

  const Choice &choice_;
  fs::path common_;
};

// Clang takes the language from the name, and says nothing of use where that fails.
void check_languages(const Options &options) {
  const auto chosen = [](const std::string &flag) { return flag.starts_with("-x"); };
  if (!options.build_dir.empty() || std::any_of(options.flags.begin(), options.flags.end(), chosen))
    return;
  for (const std::string &source : options.sources) {
    const std::string end = fs::path(source).extension();
    const auto known = {".c",  ".C", ".cc", ".cpp", ".cxx", ".c++",
                        ".cu", ".h", ".hh", ".hpp", ".hxx", ".i"};
    if (std::find(known.begin(), known.end(), end) == known.end())
      throw std::runtime_error(fmt::format(
          "{} is no C or C++ source by its name; the language stands behind --: -- -xc", source));
  }
}

int act(Choice choice) {
  check_languages(choice.options);
  // Results stand for the files themselves, not for links to them.
  for (std::string &source : choice.options.sources) source = fs::canonical(source);
  // Programs included <infiniband/verbs.h> alone: ours stands in front of rdma-core's.
  choice.options.headers = {folder_of("infiniband/mlx5_hw.h", "legacy", "libibverbs_exp-legacy"),
                            folder_of("infiniband/verbs_exp.h", ".", ".")};
  choice.options.helper = folder_of("ibvexp_migrate.h", "migrate", ".");
  if (choice.options.build_dir.empty())
    choice.options.flags.insert(choice.options.flags.begin(), "-D_GNU_SOURCE");
  const Outcome outcome = migrate(choice.options);
  if (!choice.report.empty())
    write_file(choice.report,
               choice.report.ends_with(".html") ? as_html(outcome) : as_json(outcome));
  if (!outcome.unread.empty()) {
    for (const std::string &error : outcome.unread) fmt::print(stderr, "{}\n", error);
    if (std::any_of(outcome.unread.begin(), outcome.unread.end(),
                    [](const std::string &error) { return error.ends_with("file not found"); }))
      fmt::print(stderr,
                 "ibvexp-migrate: folders of headers stand behind -- (-- -I FOLDER), or in the "
                 "compile_commands.json of the folder that -p names\n");
    fmt::print(stderr, "ibvexp-migrate: nothing was changed\n");
    return exit_trouble;
  }
  // What compiled before compiles afterwards, or stays as it is.
  const bool writes = choice.write || !choice.out_root.empty();
  const bool kept = writes && !outcome.failing.empty();
  const Place place(choice, outcome);
  for (const Files *files : {&outcome.files, &outcome.build_files})
    for (const auto &[path, file] : *files) {
      const std::string text = files == &outcome.files ? file.result() : file.changed();
      if (text == file.text || kept) continue;
      if (writes) place.write(path, text);
      else print_diff(path, text);
    }
  fmt::print(stderr, "{}", summary(outcome));
  if (kept)
    fmt::print(stderr,
               "ibvexp-migrate: nothing was written, since the result does not compile; without "
               "--write it is shown\n");
  if (!outcome.failing.empty()) return exit_trouble;
  return count(outcome.files).findings + left_in(outcome.build_files) == 0 ? exit_ok
                                                                           : exit_findings;
}

int run(int argc, char **argv) {
  Choice choice;
  CLI::App app("Rewrites C and C++ sources from the experimental verbs to rdma-core's",
               "ibvexp migrate");
  app.add_option("SOURCES", choice.options.sources, "Sources; headers beside them change too")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("-p", choice.options.build_dir, "Folder of compile_commands.json")
      ->check(CLI::ExistingDirectory);
  app.add_option("--headers", choice.options.own,
                 "Folder with headers of the program, which change too")
      ->check(CLI::ExistingDirectory)
      ->allow_extra_args(false)
      ->take_all();
  bool diff = false;
  auto *as_diff = app.add_flag("--diff", diff, "Print a unified diff (default)");
  auto *write = app.add_flag("--write", choice.write, "Change the files")->excludes(as_diff);
  app.add_flag("--backup", choice.backup, "Keep each changed file as FILE.orig")->needs(write);
  app.add_option("--out-root", choice.out_root,
                 "Write changed files below this folder, and leave the sources as they are")
      ->excludes(as_diff)
      ->excludes(write);
  app.add_option("--report", choice.report,
                 "Write what changed and what is left to this file, as HTML (.html) or JSON");
  app.add_flag("!--no-helper", choice.options.use_helper,
               "Convert nothing that needs a helper header (ibvexp_migrate.h and others)");
  app.footer(
      "Write flags of the compiler after --.\n"
      "Exit status: 0; 1 if something is left to do; 2 if a source does not compile.");
  // What stands behind -- is not ours.
  std::vector<std::string> own;
  int at = 1;
  for (; at < argc && std::string(argv[at]) != "--"; ++at) own.emplace_back(argv[at]);
  for (++at; at < argc; ++at) choice.options.flags.emplace_back(argv[at]);
  std::reverse(own.begin(), own.end());
  try {
    app.parse(own);
  } catch (const CLI::ParseError &e) {
    return end_of_parsing(app, e);
  }
  return act(std::move(choice));
}

}  // namespace

int main(int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "ibvexp-migrate: %s\n", e.what());
    return exit_trouble;
  }
}
