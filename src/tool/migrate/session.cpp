#include "tool/migrate/session.h"

#include <clang/AST/ASTConsumer.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Basic/Version.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendActions.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/Lexer.h>
#include <clang/Lex/PPCallbacks.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Tooling/ArgumentsAdjusters.h>
#include <clang/Tooling/CompilationDatabase.h>
#include <clang/Tooling/Tooling.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>

#include "tool/migrate/build_files.h"
#include "tool/migrate/conditions.h"
#include "tool/migrate/rewriter.h"

namespace fs = std::filesystem;

namespace ibvexp::migrate {

namespace {

using namespace clang;

// The files that may be changed: the sources, what lies beside or below them, and in
// the folders that were named.
class Register {
 public:
  Register(const Options &options, Files &files) : files_(files) {
    for (const std::string &source : options.sources)
      folders_.insert(fs::canonical(source).parent_path());
    for (const std::string &folder : options.own) folders_.insert(fs::canonical(folder));
    for (const std::string &folder : options.headers)
      not_these_.insert(fs::weakly_canonical(folder));
    not_these_.insert(fs::weakly_canonical(options.helper));
  }

  // Of the source that is read now.
  void begin(std::set<std::string> &touched) { touched_ = &touched; }

  File *find(const SourceManager &sources, FileID id) {
    const FileEntry *entry = sources.getFileEntryForID(id);
    if (entry == nullptr) return nullptr;
    const std::string name = entry->tryGetRealPathName().str();
    if (name.empty() || !is_ours(name)) return nullptr;
    const auto [found, fresh] = files_.try_emplace(name);
    if (fresh) read(found->second, sources, id);
    if (touched_ != nullptr) touched_->insert(name);
    return &found->second;
  }

  // What the preprocessor leaves out is all that some files have of the interface.
  void enter(const SourceManager &sources, FileID id) {
    const FileEntry *entry = sources.getFileEntryForID(id);
    const std::string name = entry != nullptr ? entry->tryGetRealPathName().str() : "";
    if (name.empty() || files_.count(name) != 0 || !is_ours(name)) return;
    File file;
    read(file, sources, id);
    if (!file.uses.empty()) find(sources, id);
  }

 private:
  bool is_ours(const fs::path &file) const {
    const auto below = [&](const fs::path &folder) {
      return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first ==
             folder.end();
    };
    return std::any_of(folders_.begin(), folders_.end(), below) &&
           std::none_of(not_these_.begin(), not_these_.end(), below);
  }

  // The text, and the legacy names in it, in parts that are not compiled as well.
  static void read(File &file, const SourceManager &sources, FileID id) {
    file.text = sources.getBufferData(id).str();
    file.take_out_comments();
    const char *begin = file.text.data();
    LangOptions plain;
    Lexer lexer(SourceLocation(), plain, begin, begin, begin + file.text.size());
    Token token;
    while (!lexer.LexFromRawLexer(token)) {
      if (token.isNot(tok::raw_identifier)) continue;
      const std::string name = token.getRawIdentifier().str();
      if (is_legacy(name)) file.uses.emplace(token.getRawIdentifier().data() - begin, name);
    }
  }

  Files &files_;
  std::set<fs::path> folders_, not_these_;
  std::set<std::string> *touched_ = nullptr;
};

using OnOwn = std::function<void(const std::string &name)>;
using OnMacro = std::function<void(File &, std::size_t offset, const std::string &name)>;

// What one pass does.
struct Pass {
  std::function<void(ASTContext &)> visit;
  OnMacro on_macro;
  OnOwn on_own;
  std::function<void(const std::string &source)> begin;
  std::function<void(const std::string &macro, const std::string &path)> on_definition;
};

// What is not in the tree: directives, and names that are macros of the header.
class Directives : public PPCallbacks {
 public:
  Directives(const SourceManager &sources, Register &files, const Pass &pass)
      : sources_(sources), files_(files), pass_(pass) {}

  void FileChanged(SourceLocation place, FileChangeReason why, SrcMgr::CharacteristicKind,
                   FileID) override {
    if (why == EnterFile) files_.enter(sources_, sources_.getFileID(place));
  }

  void MacroDefined(const Token &name, const MacroDirective *) override {
    const std::string own = name.getIdentifierInfo()->getName().str();
    if (pass_.on_definition && !sources_.isInSystemHeader(name.getLocation())) {
      const FileEntry *entry = sources_.getFileEntryForID(sources_.getFileID(name.getLocation()));
      if (entry != nullptr) pass_.on_definition(own, entry->tryGetRealPathName().str());
    }
    if (is_legacy(own) && files_.find(sources_, sources_.getFileID(name.getLocation())) != nullptr)
      pass_.on_own(own);
  }

  void MacroExpands(const Token &name, const MacroDefinition &, SourceRange,
                    const MacroArgs *) override {
    const std::string legacy = name.getIdentifierInfo()->getName().str();
    if (!is_legacy(legacy)) return;
    const auto [id, offset] =
        sources_.getDecomposedLoc(sources_.getSpellingLoc(name.getLocation()));
    if (File *file = files_.find(sources_, id)) pass_.on_macro(*file, offset, legacy);
  }

#if CLANG_VERSION_MAJOR >= 19
  void InclusionDirective(SourceLocation, const Token &, StringRef name, bool,
                          CharSourceRange range, OptionalFileEntryRef, StringRef, StringRef,
                          const Module *, bool, SrcMgr::CharacteristicKind) override {
#elif CLANG_VERSION_MAJOR >= 16
  void InclusionDirective(SourceLocation, const Token &, StringRef name, bool,
                          CharSourceRange range, OptionalFileEntryRef, StringRef, StringRef,
                          const Module *, SrcMgr::CharacteristicKind) override {
#elif CLANG_VERSION_MAJOR == 15
  void InclusionDirective(SourceLocation, const Token &, StringRef name, bool,
                          CharSourceRange range, Optional<FileEntryRef>, StringRef, StringRef,
                          const Module *, SrcMgr::CharacteristicKind) override {
#else
  void InclusionDirective(SourceLocation, const Token &, StringRef name, bool,
                          CharSourceRange range, const FileEntry *, StringRef, StringRef,
                          const Module *, SrcMgr::CharacteristicKind) override {
#endif
    const auto [id, offset] = sources_.getDecomposedLoc(range.getBegin());
    if (File *file = files_.find(sources_, id))
      file->includes[offset] = {sources_.getFileOffset(range.getEnd()) - offset, name.str()};
  }

 private:
  const SourceManager &sources_;
  Register &files_;
  const Pass &pass_;
};

class Action : public ASTFrontendAction {
 public:
  Action(Register &files, const Pass &pass) : files_(files), pass_(pass) {}

  bool BeginSourceFileAction(CompilerInstance &compiler) override {
    if (pass_.begin) pass_.begin(getCurrentFile().str());
    compiler.getPreprocessor().addPPCallbacks(
        std::make_unique<Directives>(compiler.getSourceManager(), files_, pass_));
    return true;
  }

  std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance &, StringRef) override {
    struct Consumer : ASTConsumer {
      explicit Consumer(const Pass &p) : pass(p) {}
      void HandleTranslationUnit(ASTContext &context) override { pass.visit(context); }
      const Pass &pass;
    };
    return std::make_unique<Consumer>(pass_);
  }

 private:
  Register &files_;
  const Pass &pass_;
};

class Factory : public tooling::FrontendActionFactory {
 public:
  Factory(Register &files, Pass pass) : files_(files), pass_(std::move(pass)) {}
  std::unique_ptr<FrontendAction> create() override {
    return std::make_unique<Action>(files_, pass_);
  }

 private:
  Register &files_;
  const Pass pass_;
};

// Errors as text, one line each.
class Collect : public DiagnosticConsumer {
 public:
  explicit Collect(Register *files) : files_(files) {}
  std::vector<std::string> errors;

  void HandleDiagnostic(DiagnosticsEngine::Level level, const Diagnostic &what) override {
    DiagnosticConsumer::HandleDiagnostic(level, what);
    if (level < DiagnosticsEngine::Error || is_expected(what)) return;
    SmallString<200> text;
    what.FormatDiagnostic(text);
    std::string where;
    if (what.hasSourceManager() && what.getLocation().isValid())
      where = what.getLocation().printToString(what.getSourceManager()) + ": ";
    errors.push_back(where + text.str().str());
  }

 private:
  // What an earlier run left, with a comment.
  bool is_expected(const Diagnostic &what) const {
    if (files_ == nullptr || !what.hasSourceManager() || what.getLocation().isInvalid())
      return false;
    const SourceManager &sources = what.getSourceManager();
    const auto [id, offset] = sources.getDecomposedLoc(sources.getExpansionLoc(what.getLocation()));
    File *file = files_->find(sources, id);
    return file != nullptr && file->leave_again(offset);
  }

  Register *files_;
};

std::unique_ptr<tooling::CompilationDatabase> database(const Options &options) {
  if (options.build_dir.empty())
    return std::make_unique<tooling::FixedCompilationDatabase>(".", options.flags);
  std::string error;
  auto found = tooling::CompilationDatabase::loadFromDirectory(options.build_dir, error);
  if (!fs::exists(fs::path(options.build_dir) / "compile_commands.json"))
    error = fmt::format("there is no compile_commands.json in {}", options.build_dir);
  if (!found) throw std::runtime_error(error);
  for (const std::string &source : options.sources)
    if (found->getCompileCommands(source).empty())
      throw std::runtime_error(fmt::format(
          "{} is not in {}/compile_commands.json; its flags can stand behind -- instead", source,
          options.build_dir));
  return found;
}

// The folder of the compiler's own headers has the name of a release, or of a major one.
std::string resources() {
  std::error_code error;
  for (const auto &entry : fs::directory_iterator(CLANG_RESOURCES, error))
    if (fs::exists(entry.path() / "include/stddef.h")) return entry.path();
  throw std::runtime_error("Clang's own headers are missing below " CLANG_RESOURCES
                           ": install libclang-common-*-dev");
}

// The compiler's own headers are Clang's, wherever this program lies.
tooling::ArgumentsAdjuster flags(const std::vector<std::string> &folders) {
  std::vector<std::string> more{"-resource-dir=" + resources(), "-w", "-ferror-limit=0",
                                "-fno-caret-diagnostics"};
  for (const std::string &folder : folders) more.insert(more.end(), {"-isystem", folder});
  return tooling::getInsertArgumentAdjuster(more, tooling::ArgumentInsertPosition::END);
}

// What will be there is looked up in the tree, so it has to be there already.
std::vector<std::string> with_helpers() {
  std::vector<std::string> more;
  for (const char *header :
       {"ibvexp_migrate.h", "ibvexp_requests.h", "ibvexp_families.h", "ibvexp_xrc.h"})
    more.insert(more.end(), {"-include", header});
  return more;
}

// What is compiled, and how.
struct Task {
  const tooling::CompilationDatabase &commands;
  std::vector<std::string> sources;
  std::vector<std::string> folders;
  std::vector<std::string> more;             // flags
  std::map<std::string, std::string> texts;  // instead of those of the files
  std::vector<std::string> first = {};       // flags in front of the program's own
};

std::vector<std::string> run(const Task &task, tooling::FrontendActionFactory &factory,
                             Register *files) {
  tooling::ClangTool tool(task.commands, task.sources);
  Collect errors(files);
  tool.setDiagnosticConsumer(&errors);
  tool.setPrintErrorMessage(false);
  tool.appendArgumentsAdjuster(flags(task.folders));
  tool.appendArgumentsAdjuster(
      tooling::getInsertArgumentAdjuster(task.more, tooling::ArgumentInsertPosition::END));
  tool.appendArgumentsAdjuster(
      tooling::getInsertArgumentAdjuster(task.first, tooling::ArgumentInsertPosition::BEGIN));
  for (const auto &[path, text] : task.texts) tool.mapVirtualFile(path, text);
  tool.run(&factory);
  return errors.errors;
}

std::vector<std::string> compile(const Task &task) {
  const auto factory = tooling::newFrontendActionFactory<SyntaxOnlyAction>();
  return run(task, *factory, nullptr);
}

std::map<std::string, std::string> results(const Files &files) {
  std::map<std::string, std::string> texts;
  for (const auto &[path, file] : files) texts[path] = file.result();
  return texts;
}

// A program that also compiles without the experimental header has macros that say so.
class OtherConfiguration {
 public:
  OtherConfiguration(const Options &options, const tooling::CompilationDatabase &commands,
                     const Files &files, const std::map<std::string, std::string> &definitions)
      : options_(options), commands_(commands), definitions_(definitions) {
    for (const auto &[path, file] : files)
      for (const std::string &macro : macros_around_legacy(file.text)) macros_.insert(macro);
    for (const std::string &macro : macros_) undefined_.push_back("-U" + macro);
    if (macros_.empty()) return;
    std::map<std::string, std::string> before;
    for (const auto &[path, file] : files) before[path] = file.text;
    for (const std::string &source : options.sources)
      if (compile(task(source, before, false)).empty()) sources_.push_back(source);
  }

  // The sources that compiled there before, and would not with these results.
  std::set<std::string> broken_by(const Files &files) const {
    std::set<std::string> broken;
    for (const std::string &source : sources_)
      if (!compile(task(source, results(files), true)).empty()) broken.insert(source);
    return broken;
  }

  const std::set<std::string> &macros() const { return macros_; }

 private:
  // Where the flags lead to the experimental header, nothing compiles with rdma-core alone.
  Task task(const std::string &source, std::map<std::string, std::string> texts, bool after) const {
    texts["/ibvexp-alone/infiniband/verbs_exp.h"] = "#error\n";
    for (const auto &[macro, path] : definitions_)
      if (macros_.contains(macro) && !texts.contains(path)) texts[path] = read(path);
    for (auto &[path, text] : texts) text = without_definitions(text, macros_);
    return {commands_,
            {source},
            after ? std::vector{options_.helper} : std::vector<std::string>(),
            undefined_,
            std::move(texts),
            {"-I/ibvexp-alone"}};
  }

  static std::string read(const std::string &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const Options &options_;
  const tooling::CompilationDatabase &commands_;
  const std::map<std::string, std::string> &definitions_;  // path by macro
  std::set<std::string> macros_;
  std::vector<std::string> undefined_, sources_;
};

// Files that one source reads change together or not at all.
void leave_alone(Files &files, const std::map<std::string, std::set<std::string>> &read_by,
                 const std::set<std::string> &sources, const std::set<std::string> &macros) {
  const auto changes = [&](const std::string &path) { return !files.at(path).edits.empty(); };
  std::set<std::string> alone;
  for (bool more = true; more;) {
    more = false;
    for (const auto &[source, read] : read_by) {
      const bool touched = std::any_of(read.begin(), read.end(),
                                       [&](const auto &path) { return alone.contains(path); });
      if (!touched && !sources.contains(source)) continue;
      for (const std::string &path : read)
        if (changes(path)) more |= alone.insert(path).second;
    }
  }
  for (const std::string &path : alone)
    files.at(path).leave_alone(fmt::format("{}", fmt::join(macros, " ")));
}

}  // namespace

Outcome migrate(const Options &options) {
  Outcome outcome;
  const auto commands = database(options);
  Register files(options, outcome.files);
  Rules rules(options.use_helper);
  std::map<std::string, std::set<std::string>> read_by;
  std::map<std::string, std::string> definitions;
  const auto find_in = [&](const SourceManager &sources) {
    return [&](FileID id) { return files.find(sources, id); };
  };
  const auto begin = [&](const std::string &source) { files.begin(read_by[source]); };
  Factory looking(
      files,
      {[&](ASTContext &context) {
         const FindFile find = find_in(context.getSourceManager());
         look(context, find, rules);
       },
       [&](File &, std::size_t, const std::string &name) { rules.note_use(name); },
       [&](const std::string &name) { rules.note_own(name); }, begin,
       [&](const std::string &macro, const std::string &path) { definitions[macro] = path; }});
  std::vector<std::string> folders = options.headers;
  folders.push_back(options.helper);
  const Task as_it_is{*commands, options.sources, folders, with_helpers(), {}};
  outcome.unread = run(as_it_is, looking, &files);
  if (!outcome.unread.empty()) return outcome;
  for (const auto &[path, file] : outcome.files) rules.note_modern(file.text);

  Factory rewriting(files, {[&](ASTContext &context) {
                              const FindFile find = find_in(context.getSourceManager());
                              rewrite(context, find, rules);
                            },
                            [&](File &file, std::size_t at, const std::string &name) {
                              rewrite_macro(file, at, name, rules);
                            },
                            [](const std::string &) {},
                            begin,
                            {}});
  run(as_it_is, rewriting, &files);
  for (auto &[path, file] : outcome.files) {
    std::erase_if(file.uses, [&](const auto &use) { return rules.own().contains(use.second); });
    file.settle();
  }

  const OtherConfiguration other(options, *commands, outcome.files, definitions);
  Files with_includes = outcome.files;
  change_includes(with_includes, options.helper);
  std::set<std::string> broken;
  for (const std::string &source : other.broken_by(with_includes))
    broken.insert(fs::canonical(source));
  if (broken.empty()) {
    outcome.files = std::move(with_includes);
  } else {
    leave_alone(outcome.files, read_by, broken, other.macros());
    change_includes(outcome.files, options.helper);
  }

  bool whole = true;
  for (const auto &[path, file] : outcome.files) whole = whole && file.whole();
  if (whole)
    outcome.failing =
        compile({*commands, options.sources, {options.helper}, {}, results(outcome.files)});
  outcome.needs_mlx5 = needs_mlx5(outcome.files);
  outcome.build_files = change_build_files(options.sources, outcome.needs_mlx5, whole, rules);
  return outcome;
}

}  // namespace ibvexp::migrate
