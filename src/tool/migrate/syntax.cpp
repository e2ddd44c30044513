#include "tool/migrate/syntax.h"

#include <clang/AST/Attr.h>
#include <clang/AST/Decl.h>
#include <clang/AST/ExprCXX.h>
#include <clang/AST/ParentMapContext.h>
#include <clang/Basic/Builtins.h>
#include <clang/Lex/Lexer.h>

#include <algorithm>

#include "tool/migrate/rules.h"

namespace ibvexp::migrate {

namespace {

std::optional<Piece> piece_in_file(const clang::SourceManager &sources,
                                   clang::CharSourceRange range) {
  if (range.isInvalid() || !range.getBegin().isFileID() || !range.getEnd().isFileID()) return {};
  const auto [file, begin] = sources.getDecomposedLoc(range.getBegin());
  const auto [end_file, end] = sources.getDecomposedLoc(range.getEnd());
  if (file != end_file || end < begin) return {};
  return Piece{file, begin, end - begin};
}

const clang::RecordDecl *find_record(const clang::ASTContext &context, const std::string &tag) {
  const auto &name = context.Idents.get(tag);
  for (const clang::NamedDecl *found : context.getTranslationUnitDecl()->lookup(&name))
    if (const auto *record = llvm::dyn_cast<clang::RecordDecl>(found))
      if (const auto *definition = record->getDefinition()) return definition;
  return nullptr;
}

// Also through members without a name.
const clang::FieldDecl *find_field(const clang::RecordDecl &record, llvm::StringRef name) {
  for (const clang::FieldDecl *field : record.fields()) {
    if (field->getName() == name) return field;
    if (!field->getName().empty()) continue;
    if (const auto *inner = field->getType()->getAsRecordDecl())
      if (const auto *found = find_field(*inner, name)) return found;
  }
  return nullptr;
}

}  // namespace

std::string name_of(const clang::NamedDecl &decl) {
  return decl.getIdentifier() != nullptr ? decl.getName().str() : std::string();
}

std::optional<Piece> piece_of(const clang::ASTContext &context, clang::SourceRange tokens) {
  const auto &sources = context.getSourceManager();
  return piece_in_file(
      sources, clang::Lexer::makeFileCharRange(clang::CharSourceRange::getTokenRange(tokens),
                                               sources, context.getLangOpts()));
}

std::optional<Piece> token_at(const clang::ASTContext &context, clang::SourceLocation at) {
  const auto &sources = context.getSourceManager();
  const clang::SourceLocation spelled = sources.getSpellingLoc(at);
  // Glued together by ##: nowhere.
  if (spelled.isInvalid() || sources.isWrittenInScratchSpace(spelled)) return {};
  const auto [file, offset] = sources.getDecomposedLoc(spelled);
  return Piece{file, offset,
               clang::Lexer::MeasureTokenLength(spelled, sources, context.getLangOpts())};
}

std::vector<Piece> arguments_in_body(const clang::ASTContext &context, clang::SourceLocation name) {
  const auto &sources = context.getSourceManager();
  const auto at = token_at(context, name);
  if (!name.isMacroID() || sources.isMacroArgExpansion(name) || !at) return {};
  const llvm::StringRef text = sources.getBufferData(at->file);
  clang::Lexer lexer(clang::SourceLocation(), context.getLangOpts(), text.begin(),
                     text.begin() + at->offset + at->length, text.end());
  std::vector<Piece> found;
  clang::Token token;
  for (int depth = 0;;) {
    lexer.LexFromRawLexer(token);
    if (token.is(clang::tok::eof) || (!found.empty() && token.isAtStartOfLine())) return {};
    const std::size_t begin = lexer.getBufferLocation() - text.begin() - token.getLength();
    if (token.is(clang::tok::r_paren) && --depth == 0) return found;
    if (token.is(clang::tok::l_paren) && depth++ == 0) {
      found.push_back({at->file, begin + 1, 0});
    } else if (depth == 0) {
      return {};
    } else if (token.is(clang::tok::comma) && depth == 1) {
      found.push_back({at->file, begin + 1, 0});
    } else {
      if (found.back().length == 0) found.back().offset = begin;
      found.back().length = begin + token.getLength() - found.back().offset;
    }
  }
}

std::string text_of(const clang::ASTContext &context, const Piece &piece) {
  return context.getSourceManager()
      .getBufferData(piece.file)
      .substr(piece.offset, piece.length)
      .str();
}

std::optional<Piece> between(const clang::ASTContext &context, clang::SourceLocation from,
                             clang::SourceLocation to) {
  const auto &sources = context.getSourceManager();
  return piece_in_file(sources, clang::CharSourceRange::getCharRange(from, to));
}

const clang::Stmt *parent_of(clang::ASTContext &context, const clang::Stmt &of) {
  const clang::Stmt *at = &of;
  for (;;) {
    const auto parents = context.getParents(*at);
    if (parents.empty()) return nullptr;
    at = parents[0].get<clang::Stmt>();
    if (at == nullptr) return nullptr;
    if (!llvm::isa<clang::ParenExpr, clang::CastExpr, clang::ConstantExpr, clang::FullExpr>(at))
      return at;
  }
}

std::string owner_of(const clang::FieldDecl &field) {
  const clang::DeclContext *at = field.getParent();
  while (const auto *record = llvm::dyn_cast_or_null<clang::RecordDecl>(at)) {
    if (!record->getName().empty())
      return is_legacy(record->getName().str()) ? record->getName().str() : std::string();
    at = record->getDeclContext();
    // In C a structure without a name lies beside the one around it.
    if (!llvm::isa_and_nonnull<clang::RecordDecl>(at)) break;
  }
  return {};
}

std::string Chain::path() const {
  std::string out;
  for (const Step &step : steps) out += (out.empty() ? "" : ".") + step.field->getName().str();
  return out;
}

std::optional<Chain> chain_of(const clang::Expr &expression) {
  Chain chain, longest;
  const auto *at = llvm::dyn_cast<clang::MemberExpr>(expression.IgnoreParenImpCasts());
  while (at != nullptr) {
    const auto *field = llvm::dyn_cast<clang::FieldDecl>(at->getMemberDecl());
    if (field == nullptr) break;
    if (!field->getName().empty()) chain.steps.insert(chain.steps.begin(), {field, at});
    const std::string tag = field->getParent()->getName().str();
    // Inside it may lie structures of rdma-core, and it in one of the program.
    if (is_legacy(tag) && !chain.steps.empty()) {
      chain.type = tag;
      longest = chain;
    }
    if (at->isArrow()) break;
    at = llvm::dyn_cast<clang::MemberExpr>(at->getBase()->IgnoreParenImpCasts());
  }
  if (longest.type.empty()) return {};
  return longest;
}

std::vector<const clang::DeclRefExpr *> constants_in(const clang::Expr &expression) {
  std::vector<const clang::DeclRefExpr *> found;
  std::vector<const clang::Stmt *> left{&expression};
  while (!left.empty()) {
    const clang::Stmt *at = left.back();
    left.pop_back();
    if (at == nullptr) continue;
    if (const auto *name = llvm::dyn_cast<clang::DeclRefExpr>(at))
      if (llvm::isa<clang::EnumConstantDecl>(name->getDecl())) found.push_back(name);
    for (const clang::Stmt *child : at->children()) left.push_back(child);
  }
  return found;
}

static bool computes(const clang::ASTContext &context, const clang::FunctionDecl &function) {
  const auto *method = llvm::dyn_cast<clang::CXXMethodDecl>(&function);
  if (method != nullptr) return method->isConst() && method->getParent()->isInStdNamespace();
  return function.getBuiltinID() != 0 &&
         (function.hasAttr<clang::ConstAttr>() || function.hasAttr<clang::PureAttr>() ||
#if CLANG_VERSION_MAJOR >= 17
          context.BuiltinInfo.isConstWithoutErrnoAndExceptions(function.getBuiltinID()));
#else
          context.BuiltinInfo.isConstWithoutErrno(function.getBuiltinID()));
#endif
}

bool has_side_effects(const clang::ASTContext &context, const clang::Expr &expression) {
  if (!expression.HasSideEffects(context)) return false;
  const clang::Expr *inner = expression.IgnoreParenCasts();
  if (const auto *member = llvm::dyn_cast<clang::MemberExpr>(inner))
    return has_side_effects(context, *member->getBase());
  const auto *call = llvm::dyn_cast<clang::CallExpr>(inner);
  const auto *function = call == nullptr ? nullptr : call->getDirectCallee();
  if (function == nullptr || !computes(context, *function)) return true;
  if (const auto *of = llvm::dyn_cast<clang::CXXMemberCallExpr>(call))
    if (has_side_effects(context, *of->getImplicitObjectArgument())) return true;
  return std::any_of(call->arg_begin(), call->arg_end(), [&](const clang::Expr *argument) {
    return has_side_effects(context, *argument);
  });
}

bool has_member(const clang::ASTContext &context, const std::string &tag, const std::string &path) {
  const clang::RecordDecl *record = find_record(context, tag);
  llvm::StringRef rest = path;
  while (record != nullptr && !rest.empty()) {
    const auto [name, more] = rest.split('.');
    const clang::FieldDecl *field = find_field(*record, name);
    if (field == nullptr) return false;
    if (more.empty()) return true;
    record = field->getType()->getAsRecordDecl();
    rest = more;
  }
  return false;
}

bool has_constant(const clang::ASTContext &context, const std::string &name) {
  const auto &identifier = context.Idents.get(name);
  const auto found = context.getTranslationUnitDecl()->lookup(&identifier);
  return !found.empty();
}

}  // namespace ibvexp::migrate
