#include "tool/migrate/session.h"

#include <clang/AST/ASTConsumer.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendActions.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/Lexer.h>
#include <clang/Lex/PPCallbacks.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Tooling/ArgumentsAdjusters.h>
#include <clang/Tooling/CompilationDatabase.h>
#include <clang/Tooling/Tooling.h>

#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>

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

  File *find(const SourceManager &sources, FileID id) {
    const FileEntry *entry = sources.getFileEntryForID(id);
    if (entry == nullptr) return nullptr;
    const std::string name = entry->tryGetRealPathName().str();
    if (name.empty() || !is_ours(name)) return nullptr;
    const auto [found, fresh] = files_.try_emplace(name);
    if (fresh) read(found->second, sources, id);
    return &found->second;
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
};

using OnOwn = std::function<void(const std::string &name)>;
using OnMacro = std::function<void(File &, std::size_t offset, const std::string &name)>;

// What is not in the tree: directives, and names that are macros of the header.
class Directives : public PPCallbacks {
 public:
  Directives(const SourceManager &sources, Register &files, const OnMacro &on_macro,
             const OnOwn &on_own)
      : sources_(sources), files_(files), on_macro_(on_macro), on_own_(on_own) {}

  void MacroDefined(const Token &name, const MacroDirective *) override {
    const std::string own = name.getIdentifierInfo()->getName().str();
    if (is_legacy(own) && files_.find(sources_, sources_.getFileID(name.getLocation())) != nullptr)
      on_own_(own);
  }

  void MacroExpands(const Token &name, const MacroDefinition &, SourceRange,
                    const MacroArgs *) override {
    const std::string legacy = name.getIdentifierInfo()->getName().str();
    if (!is_legacy(legacy)) return;
    const auto [id, offset] =
        sources_.getDecomposedLoc(sources_.getSpellingLoc(name.getLocation()));
    if (File *file = files_.find(sources_, id)) on_macro_(*file, offset, legacy);
  }

  void InclusionDirective(SourceLocation, const Token &, StringRef name, bool,
                          CharSourceRange range, const FileEntry *, StringRef, StringRef,
                          const Module *, SrcMgr::CharacteristicKind) override {
    const auto [id, offset] = sources_.getDecomposedLoc(range.getBegin());
    if (File *file = files_.find(sources_, id))
      file->includes[offset] = {sources_.getFileOffset(range.getEnd()) - offset, name.str()};
  }

 private:
  const SourceManager &sources_;
  Register &files_;
  const OnMacro &on_macro_;
  const OnOwn &on_own_;
};

// What one pass does.
struct Pass {
  std::function<void(ASTContext &)> visit;
  OnMacro on_macro;
  OnOwn on_own;
};

class Action : public ASTFrontendAction {
 public:
  Action(Register &files, const Pass &pass) : files_(files), pass_(pass) {}

  bool BeginSourceFileAction(CompilerInstance &compiler) override {
    compiler.getPreprocessor().addPPCallbacks(std::make_unique<Directives>(
        compiler.getSourceManager(), files_, pass_.on_macro, pass_.on_own));
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
  std::vector<std::string> errors;

  void HandleDiagnostic(DiagnosticsEngine::Level level, const Diagnostic &what) override {
    DiagnosticConsumer::HandleDiagnostic(level, what);
    if (level < DiagnosticsEngine::Error) return;
    SmallString<200> text;
    what.FormatDiagnostic(text);
    std::string where;
    if (what.hasSourceManager() && what.getLocation().isValid())
      where = what.getLocation().printToString(what.getSourceManager()) + ": ";
    errors.push_back(where + text.str().str());
  }
};

std::unique_ptr<tooling::CompilationDatabase> database(const Options &options) {
  if (options.build_dir.empty())
    return std::make_unique<tooling::FixedCompilationDatabase>(".", options.flags);
  std::string error;
  auto found = tooling::CompilationDatabase::loadFromDirectory(options.build_dir, error);
  if (!found) throw std::runtime_error(error);
  return found;
}

// The compiler's own headers are Clang's, wherever this program lies.
tooling::ArgumentsAdjuster flags(const std::vector<std::string> &folders) {
  std::vector<std::string> more{"-resource-dir=" CLANG_RESOURCES, "-w", "-ferror-limit=0"};
  for (const std::string &folder : folders) more.insert(more.end(), {"-isystem", folder});
  // What will be there is looked up in the tree, so it has to be there already.
  for (const char *header :
       {"ibvexp_migrate.h", "ibvexp_requests.h", "ibvexp_families.h", "ibvexp_xrc.h"})
    more.insert(more.end(), {"-include", header});
  return tooling::getInsertArgumentAdjuster(more, tooling::ArgumentInsertPosition::END);
}

std::vector<std::string> run(const Options &options, const tooling::CompilationDatabase &commands,
                             const std::vector<std::string> &folders,
                             tooling::FrontendActionFactory &factory, const Files *instead) {
  tooling::ClangTool tool(commands, options.sources);
  Collect errors;
  tool.setDiagnosticConsumer(&errors);
  tool.setPrintErrorMessage(false);
  tool.appendArgumentsAdjuster(flags(folders));
  std::vector<std::pair<std::string, std::string>> texts;
  if (instead != nullptr)
    for (const auto &[path, file] : *instead) texts.emplace_back(path, file.result());
  for (const auto &[path, text] : texts) tool.mapVirtualFile(path, text);
  tool.run(&factory);
  return errors.errors;
}

}  // namespace

Outcome migrate(const Options &options) {
  Outcome outcome;
  const auto commands = database(options);
  Register files(options, outcome.files);
  Rules rules(options.use_helper);
  const auto find_in = [&](const SourceManager &sources) {
    return [&](FileID id) { return files.find(sources, id); };
  };
  Factory looking(files,
                  {[&](ASTContext &context) {
                     const FindFile find = find_in(context.getSourceManager());
                     look(context, find, rules);
                   },
                   [&](File &, std::size_t, const std::string &name) { rules.note_use(name); },
                   [&](const std::string &name) { rules.note_own(name); }});
  std::vector<std::string> folders = options.headers;
  folders.push_back(options.helper);
  outcome.unread = run(options, *commands, folders, looking, nullptr);
  if (!outcome.unread.empty()) return outcome;

  Factory rewriting(files, {[&](ASTContext &context) {
                              const FindFile find = find_in(context.getSourceManager());
                              rewrite(context, find, rules);
                            },
                            [&](File &file, std::size_t at, const std::string &name) {
                              rewrite_macro(file, at, name, rules);
                            },
                            [](const std::string &) {}});
  run(options, *commands, folders, rewriting, nullptr);
  for (auto &[path, file] : outcome.files) {
    std::erase_if(file.uses, [&](const auto &use) { return rules.own().contains(use.second); });
    file.settle();
  }
  change_includes(outcome.files, options.helper);

  bool whole = true;
  for (const auto &[path, file] : outcome.files) whole = whole && file.whole();
  if (whole) {
    const auto checking = tooling::newFrontendActionFactory<SyntaxOnlyAction>();
    outcome.failing = run(options, *commands, {options.helper}, *checking, &outcome.files);
  }
  return outcome;
}

}  // namespace ibvexp::migrate
