#include "tool/migrate/rewriter.h"

#include <clang/AST/ParentMapContext.h>
#include <clang/AST/RecursiveASTVisitor.h>
#include <clang/Lex/Lexer.h>
#include <fmt/core.h>
#include <llvm/Support/Path.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <sstream>

#include "tool/migrate/conditions.h"
#include "tool/migrate/syntax.h"

namespace ibvexp::migrate {

namespace {

using namespace clang;

bool in_files(ASTContext &context, const FindFile &find, const Decl &decl) {
  const auto &sources = context.getSourceManager();
  return find(sources.getFileID(sources.getExpansionLoc(decl.getLocation()))) != nullptr;
}

// Only what stands in the files at hand is visited.
template <class Visitor>
void visit_files(ASTContext &context, const FindFile &find, Visitor &visitor) {
  for (Decl *decl : context.getTranslationUnitDecl()->decls())
    if (in_files(context, find, *decl)) visitor.TraverseDecl(decl);
}

class Looker : public RecursiveASTVisitor<Looker> {
 public:
  explicit Looker(Rules &rules) : rules_(rules) {}

  bool VisitNamedDecl(NamedDecl *decl) {
    const std::string name = name_of(*decl);
    if (!is_legacy(name)) return true;
    const auto *tag = dyn_cast<TagDecl>(decl);
    const auto *function = dyn_cast<FunctionDecl>(decl);
    // A forward declaration defines nothing.
    if (tag != nullptr && !tag->isThisDeclarationADefinition()) return true;
    if (function != nullptr && !function->isThisDeclarationADefinition()) return true;
    rules_.note_own(name);
    return true;
  }

  bool VisitDeclRefExpr(DeclRefExpr *name) {
    if (isa<EnumConstantDecl>(name->getDecl())) rules_.note_use(name->getDecl()->getName().str());
    return true;
  }
  bool VisitMemberExpr(MemberExpr *member) {
    note(dyn_cast<FieldDecl>(member->getMemberDecl()));
    return true;
  }
  bool VisitDesignatedInitExpr(DesignatedInitExpr *init) {
    for (const auto &designator : init->designators())
      if (designator.isFieldDesignator()) note(field_of(designator));
    return true;
  }

 private:
  void note(const FieldDecl *field) {
    if (field == nullptr) return;
    const std::string owner = field->getParent()->getName().str();
    if (!owner.empty()) rules_.note_use(owner + "." + field->getName().str());
  }

  Rules &rules_;
};

// Variables that memset() clears.
class Cleared : public RecursiveASTVisitor<Cleared> {
 public:
  bool VisitCallExpr(CallExpr *call) {
    const FunctionDecl *function = call->getDirectCallee();
    if (function == nullptr || name_of(*function) != "memset") return true;
    const auto *address = dyn_cast<UnaryOperator>(call->getArg(0)->IgnoreParenCasts());
    if (address == nullptr || address->getOpcode() != UO_AddrOf) return true;
    if (const auto *name = dyn_cast<DeclRefExpr>(address->getSubExpr()->IgnoreParenImpCasts()))
      variables.insert(name->getDecl());
    return true;
  }
  std::set<const ValueDecl *> variables;
};

class Rewriter : public RecursiveASTVisitor<Rewriter> {
 public:
  Rewriter(ASTContext &context, const FindFile &find, const Rules &rules)
      : context_(context), find_(find), rules_(rules) {}

  bool VisitTagTypeLoc(TagTypeLoc type) {
    const std::string name = type.getDecl()->getName().str();
    if (!concerns(name)) return true;
    const TypeRule *rule = rules_.type(name);
    if (rule == nullptr) leave(type.getNameLoc(), Kind::no_rule, name);
    else if (rule->modern.empty()) leave(type.getNameLoc(), Kind::form, name);
    else exchange(type.getNameLoc(), std::string(rule->modern), Kind::type, name);
    return true;
  }

  bool VisitTypedefTypeLoc(TypedefTypeLoc type) {
    const std::string name = name_of(*type.getTypePtr()->getDecl());
    if (!concerns(name)) return true;
    const NameRule *rule = rules_.name(name);
    if (rule == nullptr) leave(type.getNameLoc(), Kind::no_rule, name);
    else exchange(type.getNameLoc(), std::string(rule->modern), Kind::type, name);
    return true;
  }

  // A variable that is no longer needed. The statements that use it are removed where they are met.
  bool VisitDeclStmt(DeclStmt *statement) {
    for (const Decl *decl : statement->decls()) {
      const auto *variable = dyn_cast<VarDecl>(decl);
      if (variable == nullptr || !is_unneeded(*variable)) continue;
      if (statement->isSingleDecl()) remove_statement(*statement, Kind::gone, type_of(*variable));
    }
    return true;
  }

  bool VisitDeclRefExpr(DeclRefExpr *name) {
    const std::string legacy = name_of(*name->getDecl());
    if (const auto *variable = dyn_cast<VarDecl>(name->getDecl())) {
      if (is_unneeded(*variable)) use_of_unneeded(*name, *variable);
      return true;
    }
    if (!concerns(legacy) || seen_.count(name) != 0) return true;
    if (isa<FunctionDecl>(name->getDecl())) {
      // As a pointer, where the arguments are the same.
      const CallRule *rule = rules_.call(legacy);
      const auto *function = cast<FunctionDecl>(name->getDecl());
      if (rule != nullptr && takes_all(*rule, function->getNumParams()))
        exchange(name->getLocation(), std::string(rule->modern), Kind::call, legacy);
      else leave(name->getLocation(), rule != nullptr ? Kind::form : Kind::no_rule, legacy);
    } else if (isa<EnumConstantDecl>(name->getDecl())) {
      constant(*name, legacy);
    }
    return true;
  }

  bool VisitMemberExpr(MemberExpr *member) {
    if (seen_.count(member) != 0) return true;
    const auto chain = chain_of(*member);
    if (!chain || !concerns(chain->type)) return true;
    for (const auto &step : chain->steps) seen_.insert(step.expression);
    for (const Expr *at = member;
         const auto *inner = dyn_cast<MemberExpr>(at->IgnoreParenImpCasts()); at = inner->getBase())
      seen_.insert(inner);
    const std::string legacy = chain->type + "." + chain->path();
    const auto [first, last] = names_of(*chain);
    if (const SetRule *rule = rules_.set(chain->type, chain->path())) {
      if (!set_by_function(*member, *chain, *rule)) leave(first, Kind::form, legacy);
      return true;
    }
    if (const SetRule *rule = rules_.get(chain->type, chain->path());
        rule != nullptr && get_by_function(*member, *chain, *rule))
      return true;
    if (const BinaryOperator *op = overwritten(*member, *chain);
        op != nullptr && remove_statement(*op, Kind::gone, legacy)) {
      for (const DeclRefExpr *name : constants_in(*op->getRHS())) seen_.insert(name);
      return true;
    }
    const auto to = modern_path(*chain);
    if (!to) return leave(first, Kind::form, legacy), true;
    if (to->empty()) {
      gone_member(*member, *chain, first);
      return true;
    }
    if (*to == chain->path()) return true;
    exchange_range(first, last, *to, Kind::member, legacy);
    return true;
  }

  bool VisitDesignatedInitExpr(DesignatedInitExpr *init) {
    if (!seen_.insert(init).second) return true;
    Chain chain;
    SourceLocation first, last;
    for (const auto &designator : init->designators()) {
      const FieldDecl *field = designator.isFieldDesignator() ? field_of(designator) : nullptr;
      if (field == nullptr) return true;
      if (chain.steps.empty()) {
        chain.type = field->getParent()->getName().str();
        first = designator.getFieldLoc();
      }
      chain.steps.push_back({field, nullptr});
      last = designator.getFieldLoc();
    }
    if (!is_legacy(chain.type)) return true;
    const auto to = modern_path(chain);
    const std::string legacy = chain.type + "." + chain.path();
    const SetRule *rule = rules_.set(chain.type, chain.path());
    if (rule != nullptr && initialise_by_function(*init, legacy, *rule)) return true;
    if (!to) leave(first, Kind::form, legacy);
    else if (to->empty()) note_losses(*init->getInit()), remove_initializer(*init, legacy);
    else if (*to != chain.path()) exchange_range(first, last, *to, Kind::member, legacy);
    return true;
  }

  // Initialisers of which none is left.
  bool VisitInitListExpr(InitListExpr *list) {
    if (const InitListExpr *written = list->getSyntacticForm())
      list = const_cast<InitListExpr *>(written);
    if (list->getNumInits() == 0 || !seen_.insert(list).second) return true;
    for (const Expr *init : list->inits()) {
      const auto *designated = dyn_cast<DesignatedInitExpr>(init);
      if (designated == nullptr || designated->size() != 1 ||
          !designated->getDesignator(0)->isFieldDesignator() ||
          has_side_effects(context_, *designated->getInit()))
        return true;
      const FieldDecl *field = field_of(*designated->getDesignator(0));
      if (field == nullptr) return true;
      const Chain chain{field->getParent()->getName().str(), {{field, nullptr}}};
      const auto to = is_legacy(chain.type) ? modern_path(chain) : std::nullopt;
      if (!to || !to->empty()) return true;
    }
    if (const auto piece = piece_of(context_, list->getSourceRange()))
      edit(*piece, context_.getLangOpts().CPlusPlus ? "{}" : "{0}", Kind::gone, "");
    return true;
  }

  bool VisitBinaryOperator(BinaryOperator *op) {
    if (seen_.count(op) != 0) return true;
    // mask |= BIT, of a bit that is left out.
    if (op->getOpcode() == BO_OrAssign && goes(*op->getRHS()) && is_statement(*op) &&
        !has_side_effects(context_, *op->getLHS())) {
      note_losses(*op->getRHS());
      remove_statement(*op, Kind::gone,
                       constants_in(*op->getRHS()).front()->getDecl()->getName().str());
    }
    if (op->getOpcode() == BO_And || is_test(*op)) bit_test(*op);
    else if (op->getOpcode() == BO_EQ || op->getOpcode() == BO_NE) comparison(*op);
    else if (op->getOpcode() == BO_Or) mask(*op), initiator_to_rts(*op);
    return true;
  }

  bool VisitCallExpr(CallExpr *call) {
    const auto *callee = dyn_cast<DeclRefExpr>(call->getCallee()->IgnoreParenImpCasts());
    if (callee == nullptr || !isa<FunctionDecl>(callee->getDecl())) return true;
    const std::string legacy = name_of(*callee->getDecl());
    const CallRule *rule = rules_.call(legacy);
    if (!concerns(legacy) && rule == nullptr) return true;
    seen_.insert(callee);
    if (rule == nullptr) leave(callee->getLocation(), Kind::no_rule, legacy);
    else if (!arguments(*call, *rule)) leave(callee->getLocation(), Kind::form, legacy);
    else exchange(callee->getLocation(), std::string(rule->modern), Kind::call, legacy);
    return true;
  }

 private:
  bool concerns(const std::string &name) const {
    return is_legacy(name) && !rules_.own().contains(name);
  }

  static std::string type_of(const VarDecl &variable) {
    const auto *record = variable.getType()->getAsRecordDecl();
    return record == nullptr ? std::string() : record->getName().str();
  }

  bool is_unneeded(const VarDecl &variable) const {
    if (isa<ParmVarDecl>(variable)) return false;
    const TypeRule *rule = rules_.type(type_of(variable));
    return rule != nullptr && rule->modern.empty();
  }

  // Edits

  File *file_of(const Piece &piece) { return find_(piece.file); }

  void edit(const Piece &piece, std::string text, Kind kind, const std::string &legacy) {
    File *file = file_of(piece);
    if (file == nullptr) return;
    if (kind == Kind::gone && !loss(legacy).empty())
      file->findings.insert({piece.offset, Kind::lost, legacy});
    file->add({piece.offset, piece.length, std::move(text), kind, legacy});
  }

  // What the constants of a removed expression asked for.
  void note_losses(const Expr &removed) {
    for (const DeclRefExpr *name : constants_in(removed)) {
      const std::string legacy = name->getDecl()->getName().str();
      const auto at = token_at(context_, name->getLocation());
      File *file = at && !loss(legacy).empty() ? file_of(*at) : nullptr;
      if (file != nullptr) file->findings.insert({at->offset, Kind::lost, legacy});
    }
  }

  void leave(SourceLocation at, Kind kind, const std::string &legacy) {
    if (const auto piece = token_at(context_, at))
      if (File *file = file_of(*piece)) {
        const bool in_macro =
            at.isMacroID() && !context_.getSourceManager().isMacroArgExpansion(at);
        file->findings.insert(
            {piece->offset, in_macro && kind == Kind::form ? Kind::in_macro : kind, legacy});
      }
  }

  // One name by another, in the body of a macro as well.
  void exchange(SourceLocation at, std::string text, Kind kind, const std::string &legacy) {
    if (const auto piece = token_at(context_, at)) edit(*piece, std::move(text), kind, legacy);
    else leave(at, Kind::in_macro, legacy);
  }

  void exchange_range(SourceLocation first, SourceLocation last, std::string text, Kind kind,
                      const std::string &legacy) {
    if (first == last) return exchange(first, std::move(text), kind, legacy);
    if (const auto piece = piece_of(context_, {first, last}))
      edit(*piece, std::move(text), kind, legacy);
    else leave(first, Kind::in_macro, legacy);
  }

  bool replace(const Expr &expression, std::string text, Kind kind, const std::string &legacy) {
    const auto piece = piece_of(context_, expression.getSourceRange());
    if (!piece) return false;
    edit(*piece, std::move(text), kind, legacy);
    return true;
  }

  SourceLocation end_of(const Expr &expression) const {
    return Lexer::getLocForEndOfToken(expression.getEndLoc(), 0, context_.getSourceManager(),
                                      context_.getLangOpts());
  }

  // Statements are removed at the end, when it is known what else is empty then.
  bool remove_statement(const Stmt &statement, Kind kind, const std::string &legacy) {
    const auto piece = piece_of(context_, statement.getSourceRange());
    if (!piece || file_of(*piece) == nullptr || !end_of_statement(statement)) return false;
    const Stmt *parent = parent_of(context_, statement);
    if (isa<DeclStmt>(statement) && (parent == nullptr || !isa<CompoundStmt>(parent))) return false;
    removed_.emplace(&statement, std::pair(kind, legacy));
    return true;
  }

  // Behind its semicolon or brace.
  std::optional<Piece> end_of_statement(const Stmt &statement) {
    auto piece = piece_of(context_, statement.getSourceRange());
    File *file = piece ? file_of(*piece) : nullptr;
    if (file == nullptr) return {};
    std::size_t end = piece->offset + piece->length;
    if (isa<Expr>(statement)) {
      end = file->text.find_first_not_of(" \t\n", end);
      if (end == std::string::npos || file->text[end] != ';') return {};
      ++end;
    } else if (const auto *choice = dyn_cast<IfStmt>(&statement)) {
      // Its range ends with that of its last branch.
      const auto last =
          end_of_statement(choice->getElse() != nullptr ? *choice->getElse() : *choice->getThen());
      if (!last) return {};
      end = last->offset;
    }
    return Piece{piece->file, end, 0};
  }

  // Nothing of it is left.
  bool vanishes(const Stmt *statement) const {
    if (removed_.count(statement) != 0) return true;
    if (const auto *block = dyn_cast<CompoundStmt>(statement)) {
      if (block->body_empty()) return false;
      for (const Stmt *inner : block->body())
        if (!vanishes(inner)) return false;
      return true;
    }
    const auto *choice = dyn_cast<IfStmt>(statement);
    if (choice == nullptr) return false;
    if (const auto folded = folded_.find(choice); folded != folded_.end()) {
      const Stmt *stays = folded->second.first ? choice->getThen() : choice->getElse();
      return stays == nullptr || vanishes(stays);
    }
    return !has_side_effects(context_, *choice->getCond()) && vanishes(choice->getThen()) &&
           (choice->getElse() == nullptr || vanishes(choice->getElse()));
  }

  // The largest statements around what was removed that vanish with it.
  const Stmt *vanishing(const Stmt *statement) {
    const Stmt *parent = parent_of(context_, *statement);
    const bool inner = parent != nullptr && (isa<IfStmt>(parent) || isa<CompoundStmt>(parent)) &&
                       parent_of(context_, *parent) != nullptr;
    return inner && vanishes(parent) ? vanishing(parent) : statement;
  }

 public:
  // After all files were visited.
  void finish() {
    std::set<const Stmt *> done;
    for (const auto &[statement, why] : removed_) {
      const Stmt *whole = vanishing(statement);
      if (!done.insert(whole).second) continue;
      take_out(*whole, why.first, why.second);
    }
    for (const auto &[choice, how] : folded_) {
      const Stmt *whole = vanishes(choice) ? vanishing(choice) : nullptr;
      if (whole == nullptr) unwrap(*choice, how.first, how.second);
      else if (done.insert(whole).second) take_out(*whole, Kind::test, how.second);
    }
  }

 private:
  // With its semicolon, and the line if nothing else stands there.
  void take_out(const Stmt &statement, Kind kind, const std::string &legacy) {
    const auto piece = piece_of(context_, statement.getSourceRange());
    const auto after = end_of_statement(statement);
    if (!piece || !after) return;
    const Stmt *parent = parent_of(context_, statement);
    if (parent != nullptr && isa<CompoundStmt>(parent))
      return edit(whole_lines({piece->file, piece->offset, after->offset - piece->offset}), "",
                  kind, legacy);
    const auto *choice = dyn_cast_or_null<IfStmt>(parent);
    const Piece all{piece->file, piece->offset, after->offset - piece->offset};
    if (choice != nullptr && choice->getElse() == &statement) {
      // From the end of the other branch, which takes "else" along.
      if (const auto before = end_of_statement(*choice->getThen()))
        return edit({all.file, before->offset, after->offset - before->offset}, "", kind, legacy);
    }
    if (choice != nullptr && choice->getThen() == &statement && choice->getElse() != nullptr) {
      // The other branch, under the opposite condition.
      const auto condition = piece_of(context_, choice->getCond()->getSourceRange());
      const auto other = piece_of(context_, choice->getElse()->getSourceRange());
      if (condition && other) {
        negate(*choice->getCond(), *condition, legacy);
        return edit({all.file, all.offset, other->offset - all.offset}, "", kind, legacy);
      }
    }
    edit(all, isa<CompoundStmt>(statement) ? "{ }" : ";", kind, legacy);
  }

  void negate(const Expr &condition, const Piece &piece, const std::string &legacy) {
    const Expr *inner = condition.IgnoreImpCasts();
    const bool simple =
        isa<DeclRefExpr, MemberExpr, ArraySubscriptExpr, ParenExpr, CallExpr>(inner);
    edit({piece.file, piece.offset, 0}, simple ? "!" : "!(", Kind::layout, legacy);
    if (!simple) edit({piece.file, piece.offset + piece.length, 0}, ")", Kind::layout, legacy);
  }

  // A condition that is always the same: the branch alone.
  void unwrap(const IfStmt &choice, bool value, const std::string &legacy) {
    const Stmt *stays = value ? choice.getThen() : choice.getElse();
    const auto whole = piece_of(context_, choice.getSourceRange());
    const auto end = end_of_statement(choice);
    const auto branch = piece_of(context_, stays->getSourceRange());
    const auto branch_end = end_of_statement(*stays);
    if (!whole || !end || !branch || !branch_end) return;
    const Stmt *parent = parent_of(context_, choice);
    const auto *block = dyn_cast<CompoundStmt>(stays);
    if (parent != nullptr && isa<CompoundStmt>(parent) && block != nullptr && !declares(*block) &&
        unwrap_lines(*whole, *branch, end->offset, legacy))
      return;
    edit({whole->file, whole->offset, branch->offset - whole->offset}, "", Kind::test, legacy);
    edit({whole->file, branch_end->offset, end->offset - branch_end->offset}, "", Kind::layout,
         legacy);
  }

  static bool declares(const CompoundStmt &block) {
    return std::any_of(block.body_begin(), block.body_end(),
                       [](const Stmt *inner) { return isa<DeclStmt>(inner); });
  }

  // Braces on lines of their own, as all styles of the time have them: the lines between
  // move to the left.
  bool unwrap_lines(const Piece &whole, const Piece &branch, std::size_t end,
                    const std::string &legacy) {
    const std::string &text = file_of(whole)->text;
    const std::size_t first = text.find_first_not_of(" \t", branch.offset + 1);
    const std::size_t brace = branch.offset + branch.length - 1;
    const std::size_t last = text.rfind('\n', brace);
    const std::size_t start = text.rfind('\n', whole.offset) + 1;
    if (first == std::string::npos || text[first] != '\n' || last == std::string::npos ||
        last < first || text.find_first_not_of(" \t", last + 1) != brace ||
        text.find_first_not_of(" \t", start) != whole.offset)
      return false;
    const std::size_t depth = whole.offset - start;
    const std::size_t inner = text.find_first_not_of(" \t", first + 1) - first - 1;
    if (inner <= depth) return false;
    edit({whole.file, start, first + 1 - start}, "", Kind::test, legacy);
    for (std::size_t line = first + 1; line < last + 1; line = text.find('\n', line) + 1)
      if (text.find_first_not_of(" \t", line) >= line + inner)
        edit({whole.file, line, inner - depth}, "", Kind::layout, legacy);
    std::size_t after = text.find_first_not_of(" \t", end);
    after = after != std::string::npos && text[after] == '\n' ? after + 1 : end;
    edit({whole.file, last + 1, after - last - 1}, "", Kind::layout, legacy);
    return true;
  }

  // A piece, and its lines if nothing else stands there.
  Piece whole_lines(const Piece &piece) {
    const std::string &text = file_of(piece)->text;
    std::size_t begin = piece.offset, end = begin + piece.length;
    // Lines may end as those of Windows do.
    const std::size_t line_end = text.find_first_not_of(" \t\r", end);
    const std::size_t before =
        begin == 0 ? std::string::npos : text.find_last_not_of(" \t", begin - 1);
    if (line_end != std::string::npos && text[line_end] == '\n' &&
        (before == std::string::npos || text[before] == '\n')) {
      begin = before == std::string::npos ? 0 : before + 1;
      end = line_end + 1;
    }
    return {piece.file, begin, end - begin};
  }

  void remove_initializer(const DesignatedInitExpr &init, const std::string &legacy,
                          Kind kind = Kind::gone) {
    const auto piece = piece_of(context_, init.getSourceRange());
    File *file = piece ? file_of(*piece) : nullptr;
    if (file == nullptr || has_side_effects(context_, *init.getInit()))
      return leave(init.getBeginLoc(), Kind::form, legacy);
    const std::string &text = file->text;
    std::size_t begin = piece->offset, end = begin + piece->length;
    const std::size_t next = text.find_first_not_of(" \t\n", end);
    if (next != std::string::npos && text[next] == ',') {
      end = text.find_first_not_of(" \t", next + 1);
      if (text[end] == '\n') {  // the line goes with it
        const std::size_t before = text.find_last_not_of(" \t", begin - 1);
        if (text[before] == '\n') begin = before + 1, ++end;
      }
      if (text[end] == '}' && text.find_last_not_of(" \t\n", begin - 1) != std::string::npos &&
          text[text.find_last_not_of(" \t\n", begin - 1)] == '{')
        return edit({piece->file, begin, end - begin}, "0", kind, legacy);
      return edit({piece->file, begin, end - begin}, "", kind, legacy);
    }
    const std::size_t before = text.find_last_not_of(" \t\n", begin - 1);
    if (text[before] == ',') begin = before;
    const bool only = text[before] == '{';
    edit({piece->file, begin, end - begin}, only ? "0" : "", kind, legacy);
  }

  // Members

  static std::pair<SourceLocation, SourceLocation> names_of(const Chain &chain) {
    return {chain.steps.front().expression->getMemberLoc(),
            chain.steps.back().expression->getMemberLoc()};
  }

  // A path of rdma-core's structure, which lies in the member "all" of some wider ones.
  std::optional<std::string> place_in(const TypeRule &type, const std::string &path) const {
    const std::string tag(type.modern);
    if (has_member(context_, tag, path)) return path;
    if (!type.more.empty() && has_member(context_, tag, "all." + path)) return "all." + path;
    return {};
  }

  // Nothing if it has no place in the modern structure; "" if it is not needed there.
  std::optional<std::string> modern_path(const Chain &chain) const {
    std::string type = chain.type, out;
    const TypeRule *outer = rules_.type(type);
    if (outer == nullptr) return {};
    for (std::size_t at = 0; at < chain.steps.size();) {
      const MemberRule *rule = nullptr;
      std::size_t used = 1;
      for (std::size_t n = chain.steps.size() - at; n > 0 && rule == nullptr; --n) {
        Chain part{type, {chain.steps.begin() + at, chain.steps.begin() + at + n}};
        rule = rules_.member(type, part.path());
        if (rule != nullptr) used = n;
      }
      if (rule != nullptr && rule->modern.empty()) return "";
      out += (out.empty() ? "" : ".") +
             (rule != nullptr ? std::string(rule->modern) : chain.steps[at].field->getName().str());
      const auto *inner = chain.steps[at + used - 1].field->getType()->getAsRecordDecl();
      at += used;
      if (inner != nullptr && is_legacy(inner->getName().str())) type = inner->getName().str();
    }
    if (outer->modern.empty()) return "";
    return place_in(*outer, out);
  }

  // x.member = y
  bool set_by_function(const MemberExpr &member, const Chain &chain, const SetRule &rule) {
    const auto *op = dyn_cast_or_null<BinaryOperator>(parent_of(context_, member));
    if (op == nullptr || op->getOpcode() != BO_Assign || !is_statement(*op) ||
        op->getLHS()->IgnoreParens() != &member)
      return false;
    const MemberExpr &first = *chain.steps.front().expression;
    const auto object = piece_of(context_, first.getBase()->getSourceRange());
    const auto start = between(context_, op->getBeginLoc(), op->getRHS()->getBeginLoc());
    const auto value = piece_of(context_, op->getRHS()->getSourceRange());
    if (!object || !start || !value) return false;
    const std::string legacy = chain.type + "." + chain.path();
    const std::string call = fmt::format("{}({}{}, ", rule.function, first.isArrow() ? "" : "&",
                                         text_of(context_, *object));
    if (!rule.after.empty())
      if (const Stmt *later = set_later(*op, text_of(context_, *object), rule.after)) {
        const auto end = end_of_statement(*later);
        const auto line = piece_of(context_, later->getSourceRange());
        if (later->getBeginLoc().isMacroID() || !end || !line) return false;
        if (parent_of(context_, *later) == parent_of(context_, *op)) {
          if (!remove_statement(*op, Kind::member, legacy)) return false;
          put_behind(*line, *end, fmt::format("{}{});", call, text_of(context_, *value)), legacy);
          return true;
        }
        if (!put_in_front_of_block(*later, *op, legacy)) return false;
      }
    edit(*start, call, Kind::member, legacy);
    edit({value->file, value->offset + value->length, 0}, ")", Kind::member, legacy);
    return true;
  }

  // Moves x.pd = y in front of the block, perhaps of an "if" statement, that an earlier statement
  // about x is in: under the same preprocessor conditions, and past nothing that could see it.
  bool put_in_front_of_block(const Stmt &later, const Stmt &earlier, const std::string &legacy) {
    const Stmt *scope = parent_of(context_, later);
    const auto *value = cast<BinaryOperator>(later).getRHS();
    if (scope == nullptr || !isa<CompoundStmt>(scope) || has_side_effects(context_, *value))
      return false;
    const Stmt *block = &earlier;
    while (block != nullptr && parent_of(context_, *block) != scope)
      block = parent_of(context_, *block);
    if (block == nullptr || !stays_same(*scope, *block, later)) return false;
    const auto start = piece_of(context_, block->getSourceRange());
    const auto line = piece_of(context_, later.getSourceRange());
    const auto end = end_of_statement(later);
    if (!start || !line || !end || start->file != line->file || file_of(*line) == nullptr)
      return false;
    const std::string &text = file_of(*line)->text;
    const Piece whole = whole_lines({line->file, line->offset, end->offset - line->offset});
    const std::size_t own_line = text.rfind('\n', line->offset) + 1;
    if (whole.offset != own_line) return false;
    const auto at = same_conditions(text, text.rfind('\n', start->offset) + 1, own_line);
    if (!at) return false;
    edit({line->file, *at, 0}, text.substr(whole.offset, whole.length), Kind::layout, legacy);
    edit(whole, "", Kind::layout, legacy);
    return true;
  }

  // The line in front of that one, with nothing but directives between, that stands under the
  // same preprocessor conditions as another.
  static std::optional<std::size_t> same_conditions(const std::string &text, std::size_t line,
                                                    std::size_t other) {
    const auto conditions = [&](std::size_t at) {
      std::vector<std::string> out;
      for (const Condition &c : conditions_at(text.substr(0, at) + "\n", at))
        out.push_back((c.other_branch ? "!" : "") + c.line);
      return out;
    };
    const auto wanted = conditions(other);
    while (conditions(line) != wanted) {
      if (line == 0) return {};
      line = text.rfind('\n', line - 2) + 1;
      const std::size_t word = text.find_first_not_of(" \t", line);
      if (text[word] != '#' && text[word] != '\n') return {};
    }
    // To the statements in front of a blank line.
    while (line >= 2 && text[line - 2] == '\n') --line;
    return line;
  }

  // Whether x.pd = y has the same effect in front of a statement of its block as behind it: what is
  // between calls nothing, leaves nowhere, and neither reads x.pd nor sets what y consists of.
  bool stays_same(const Stmt &scope, const Stmt &from, const Stmt &later) {
    const auto &assignment = cast<BinaryOperator>(later);
    std::set<const ValueDecl *> sources;
    collect(*assignment.getRHS(), sources);
    const auto *target = cast<MemberExpr>(assignment.getLHS()->IgnoreParens())->getMemberDecl();
    bool inside = false;
    for (const Stmt *child : scope.children()) {
      inside = inside || child == &from;
      if (child == &later) return inside;
      if (!inside || child == nullptr) continue;
      std::vector<const Stmt *> left{child};
      while (!left.empty()) {
        const Stmt *at = left.back();
        left.pop_back();
        if (at == nullptr) continue;
        for (const Stmt *inner : at->children()) left.push_back(inner);
        const auto *member = dyn_cast<MemberExpr>(at);
        const auto *op = dyn_cast<BinaryOperator>(at);
        const auto *unary = dyn_cast<UnaryOperator>(at);
        std::set<const ValueDecl *> changed;
        if (op != nullptr && op->isAssignmentOp()) collect_last(*op->getLHS(), changed);
        if (unary != nullptr &&
            (unary->isIncrementDecrementOp() || unary->getOpcode() == UO_AddrOf))
          collect_last(*unary->getSubExpr(), changed);
        if (isa<CallExpr>(at) || isa<ReturnStmt>(at) || isa<GotoStmt>(at) || isa<BreakStmt>(at) ||
            isa<ContinueStmt>(at) || isa<LabelStmt>(at) || isa<AsmStmt>(at) ||
            (member != nullptr && member->getMemberDecl() == target) ||
            std::ranges::any_of(changed, [&](const ValueDecl *d) { return sources.contains(d); }))
          return false;
      }
    }
    return false;
  }

  // The variables and members that an expression names.
  static void collect(const Stmt &expression, std::set<const ValueDecl *> &out) {
    collect_last(expression, out);
    for (const Stmt *child : expression.children())
      if (child != nullptr) collect(*child, out);
  }

  static void collect_last(const Stmt &expression, std::set<const ValueDecl *> &out) {
    const Stmt *at = &expression;
    if (const auto *value = dyn_cast<Expr>(at)) at = value->IgnoreParenCasts();
    if (const auto *member = dyn_cast<MemberExpr>(at)) out.insert(member->getMemberDecl());
    if (const auto *name = dyn_cast<DeclRefExpr>(at)) out.insert(name->getDecl());
  }

  // On a line of its own, as far to the right as the statement is.
  void put_behind(const Piece &statement, const Piece &end, const std::string &call,
                  const std::string &legacy) {
    const std::string &text = file_of(statement)->text;
    const std::size_t begin = text.rfind('\n', statement.offset) + 1;
    const std::size_t first_word = text.find_first_not_of(" \t", begin);
    edit(end, fmt::format("\n{}{}", text.substr(begin, first_word - begin), call), Kind::layout,
         legacy);
  }

  // struct x = {.member = y}, of a local variable: the call stands behind its declaration, or
  // behind what it has to follow.
  bool initialise_by_function(const DesignatedInitExpr &init, const std::string &legacy,
                              const SetRule &rule) {
    const auto lists = context_.getParents(init);
    const auto *list = lists.empty() ? nullptr : lists[0].get<InitListExpr>();
    if (list == nullptr || init.size() != 1) return false;
    const auto variables = context_.getParents(*list);
    const auto *variable = variables.empty() ? nullptr : variables[0].get<VarDecl>();
    if (variable == nullptr || !variable->hasLocalStorage()) return false;
    const auto declarations = context_.getParents(*variable);
    const auto *declaration = declarations.empty() ? nullptr : declarations[0].get<DeclStmt>();
    if (declaration == nullptr || !declaration->isSingleDecl()) return false;
    const Stmt *block = parent_of(context_, *declaration);
    const auto value = piece_of(context_, init.getInit()->getSourceRange());
    if (block == nullptr || !isa<CompoundStmt>(block) || !value ||
        has_side_effects(context_, *init.getInit()))
      return false;
    const std::string text = text_of(context_, *value), name = variable->getName().str();
    if (text.find("ibv_exp_") != std::string::npos || text.find("IBV_EXP_") != std::string::npos)
      return false;
    const Stmt *place = declaration;
    if (!rule.after.empty()) {
      if (const Stmt *later = set_later(*declaration, name, rule.after)) place = later;
      else if (!initialises(*list, rule.after)) return false;
    }
    const auto line = piece_of(context_, place->getSourceRange());
    const auto end = end_of_statement(*place);
    if (place->getBeginLoc().isMacroID() || !line || !end || file_of(*line) == nullptr ||
        parent_of(context_, *place) != block)
      return false;
    put_behind(*line, *end, fmt::format("{}(&{}, {});", rule.function, name, text), legacy);
    remove_initializer(init, legacy, Kind::member);
    return true;
  }

  static bool initialises(const InitListExpr &list, std::string_view member) {
    const InitListExpr *written = list.getSyntacticForm();
    if (written == nullptr) written = &list;
    return std::any_of(written->begin(), written->end(), [&](const Stmt *at) {
      const auto *one = dyn_cast<DesignatedInitExpr>(at);
      const FieldDecl *field =
          one != nullptr && one->size() == 1 && one->getDesignator(0)->isFieldDesignator()
              ? field_of(*one->getDesignator(0))
              : nullptr;
      return field != nullptr && field->getName() == llvm::StringRef(member.data(), member.size());
    });
  }

  // The last statement behind that one, in the same function, that sets the member of the object.
  const Stmt *set_later(const Stmt &from, const std::string &object, std::string_view member) {
    const Stmt *body = &from;
    while (const Stmt *outer = parent_of(context_, *body)) body = outer;
    const auto &sources = context_.getSourceManager();
    const Stmt *found = nullptr;
    std::vector<const Stmt *> left{body};
    while (!left.empty()) {
      const Stmt *at = left.back();
      left.pop_back();
      if (at == nullptr) continue;
      for (const Stmt *child : at->children()) left.push_back(child);
      const auto *op = dyn_cast<BinaryOperator>(at);
      const auto *target = op != nullptr && op->getOpcode() == BO_Assign
                               ? dyn_cast<MemberExpr>(op->getLHS()->IgnoreParens())
                               : nullptr;
      if (target == nullptr || name_of(*target->getMemberDecl()) != member) continue;
      const auto base = piece_of(context_, target->getBase()->getSourceRange());
      if (!base || text_of(context_, *base) != object ||
          !sources.isBeforeInTranslationUnit(from.getEndLoc(), op->getBeginLoc()))
        continue;
      if (found == nullptr ||
          sources.isBeforeInTranslationUnit(found->getBeginLoc(), op->getBeginLoc()))
        found = op;
    }
    return found;
  }

  // x->member, or x.member, as a value
  bool get_by_function(const MemberExpr &member, const Chain &chain, const SetRule &rule) {
    const MemberExpr &first = *chain.steps.front().expression;
    const auto parents = context_.getParents(member);
    const auto *cast = parents.empty() ? nullptr : parents[0].get<ImplicitCastExpr>();
    if (cast == nullptr || cast->getCastKind() != CK_LValueToRValue) return false;
    const auto object = piece_of(context_, first.getBase()->getSourceRange());
    const auto rest = between(context_, end_of(*first.getBase()), end_of(member));
    if (!object || !rest) return false;
    const std::string legacy = chain.type + "." + chain.path();
    edit({object->file, object->offset, 0},
         fmt::format("{}({}", rule.function, first.isArrow() ? "" : "&"), Kind::member, legacy);
    edit(*rest, ")", Kind::member, legacy);
    return true;
  }

  // x.member = y of a local variable that ibv_exp_query_device() fills next, without which the
  // function ends; or null.
  const BinaryOperator *overwritten(const MemberExpr &member, const Chain &chain) {
    const auto *op = dyn_cast_or_null<BinaryOperator>(parent_of(context_, member));
    const VarDecl *variable = variable_of(member);
    const auto *block =
        op != nullptr ? dyn_cast_or_null<CompoundStmt>(parent_of(context_, *op)) : nullptr;
    if (chain.type != "ibv_exp_device_attr" || chain.path().starts_with("comp_mask") ||
        variable == nullptr || block == nullptr || op->getOpcode() != BO_Assign ||
        op->getLHS()->IgnoreParens() != &member || has_side_effects(context_, *op->getRHS()))
      return nullptr;
    const auto *at = std::find(block->body_begin(), block->body_end(), op);
    while (at != block->body_end() && sets_member_of(**at, *variable)) ++at;
    const auto *choice = at != block->body_end() ? dyn_cast<IfStmt>(*at) : nullptr;
    const auto *call =
        choice != nullptr ? dyn_cast<CallExpr>(choice->getCond()->IgnoreParenImpCasts()) : nullptr;
    const auto *verb = call != nullptr ? call->getDirectCallee() : nullptr;
    if (verb == nullptr || name_of(*verb) != "ibv_exp_query_device" || call->getNumArgs() != 2)
      return nullptr;
    const auto *address = dyn_cast<UnaryOperator>(call->getArg(1)->IgnoreParenImpCasts());
    if (address == nullptr || address->getOpcode() != UO_AddrOf ||
        variable_named(*address->getSubExpr()) != variable)
      return nullptr;
    const Stmt *last = choice->getThen();
    if (const auto *body = dyn_cast<CompoundStmt>(last); body != nullptr && !body->body_empty())
      last = body->body_back();
    return isa<ReturnStmt>(last) ? op : nullptr;
  }

  static const VarDecl *variable_named(const Expr &expression) {
    const auto *name = dyn_cast<DeclRefExpr>(expression.IgnoreParenImpCasts());
    const auto *variable = name != nullptr ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
    return variable != nullptr && variable->hasLocalStorage() &&
                   !variable->getType()->isReferenceType()
               ? variable
               : nullptr;
  }

  // The local variable of which it is a member, not one behind a pointer.
  static const VarDecl *variable_of(const MemberExpr &member) {
    return member.isArrow() ? nullptr : variable_named(*member.getBase());
  }

  bool sets_member_of(const Stmt &statement, const VarDecl &variable) const {
    const auto *op = dyn_cast<BinaryOperator>(&statement);
    const auto *member =
        op != nullptr && op->isAssignmentOp() ? dyn_cast<MemberExpr>(op->getLHS()) : nullptr;
    return member != nullptr && variable_of(*member) == &variable &&
           !has_side_effects(context_, *op->getRHS());
  }

  // (x.mask &= BIT), whose value is asked for, of a local variable of which nothing else reads
  // the mask.
  bool is_test(const BinaryOperator &op) {
    const auto *member = dyn_cast<MemberExpr>(op.getLHS()->IgnoreParens());
    const VarDecl *variable = member != nullptr ? variable_of(*member) : nullptr;
    if (op.getOpcode() != BO_AndAssign || variable == nullptr || is_statement(op)) return false;
    const auto *function = dyn_cast<FunctionDecl>(variable->getDeclContext());
    if (function == nullptr) return false;
    std::size_t uses = 0;
    std::vector<const Stmt *> left{function->getBody()};
    while (!left.empty()) {
      const Stmt *at = left.back();
      left.pop_back();
      if (at == nullptr) continue;
      for (const Stmt *child : at->children()) left.push_back(child);
      const auto *other = dyn_cast<MemberExpr>(at);
      uses += other != nullptr && other->getMemberDecl() == member->getMemberDecl() &&
              variable_of(*other) == variable;
    }
    return uses == 1;
  }

  // Only setting it is something that can be left out.
  void gone_member(const MemberExpr &member, const Chain &chain, SourceLocation at) {
    const std::string legacy = chain.type + "." + chain.path();
    const auto *op = dyn_cast_or_null<BinaryOperator>(parent_of(context_, member));
    const bool set =
        op != nullptr && op->isAssignmentOp() && op->getLHS()->IgnoreParenImpCasts() == &member;
    if (!set || has_side_effects(context_, *op->getRHS()) || !may_go(*op->getRHS(), chain.path()) ||
        !is_statement(*op))
      return leave(at, Kind::form, legacy);
    // The member that says which others count has to say "none" where rdma-core has it, too.
    const TypeRule *type = rules_.type(chain.type);
    const bool same = type != nullptr && !type->modern.empty() && chain.path() == "comp_mask" &&
                      place_in(*type, "comp_mask");
    note_losses(*op->getRHS());
    if (same && op->getOpcode() == BO_Assign && !initialise(*chain.steps.front().expression)) {
      for (const DeclRefExpr *name : constants_in(*op->getRHS())) seen_.insert(name);
      const std::string zero = fill_in(*op, chain);
      if (zero.empty() || !replace(*op->getRHS(), zero, Kind::gone, legacy))
        leave(at, Kind::form, legacy);
    } else if (!remove_statement(*op, Kind::gone, legacy)) {
      leave(at, Kind::form, legacy);
    }
  }

  // What comp_mask is set to: 0, and with it the member that rdma-core reads without being
  // asked to, unless the mask had named that. "" if it cannot be written here.
  std::string fill_in(const BinaryOperator &assignment, const Chain &chain) const {
    const FillRule *rule = rules_.fill(chain.type);
    if (rule == nullptr) return "0";
    for (const DeclRefExpr *name : constants_in(*assignment.getRHS()))
      if (name_of(*name->getDecl()) == rule->name) return "0";
    const auto object = between(context_, chain.steps.front().expression->getBeginLoc(),
                                chain.steps.front().expression->getMemberLoc());
    return object ? fmt::format("{}{} = 0", text_of(context_, *object), rule->member) : "";
  }

  // A variable of which a member is no longer set is handed on all the same: false if it is
  // not seen where it comes from.
  bool initialise(const MemberExpr &member) {
    const auto *name = dyn_cast<DeclRefExpr>(member.getBase()->IgnoreParenImpCasts());
    const auto *variable = name == nullptr ? nullptr : dyn_cast<VarDecl>(name->getDecl());
    if (variable == nullptr || member.isArrow() || isa<ParmVarDecl>(variable) ||
        variable->getType()->isReferenceType())
      return false;
    if (!variable->hasLocalStorage() || is_unneeded(*variable)) return true;
    // In C++ a structure without constructor is still not initialised.
    const Expr *value = variable->getInit();
    if ((value != nullptr && !isa<CXXConstructExpr>(value)) || is_cleared(*variable)) return true;
    const auto at = piece_of(context_, {variable->getLocation(), variable->getEndLoc()});
    if (!at) return false;
    edit({at->file, at->offset + at->length, 0}, nothing(), Kind::layout, type_of(*variable));
    return true;
  }

  bool is_cleared(const VarDecl &variable) {
    const auto *function = dyn_cast<FunctionDecl>(variable.getDeclContext());
    if (function == nullptr) return false;
    const auto [found, fresh] = cleared_.try_emplace(function);
    if (fresh) found->second.TraverseStmt(function->getBody());
    return found->second.variables.count(&variable) != 0;
  }

  const char *nothing() const { return context_.getLangOpts().CPlusPlus ? " = {}" : " = {0}"; }

  // What a member is set to goes with it if it only says which members count, or
  // what is done anyway.
  bool may_go(const Expr &value, const std::string &path) {
    for (const char *mask : {"comp_mask", "comp_mask_2", "mask1"})
      if (path == mask) return true;
    for (const DeclRefExpr *name : constants_in(value)) {
      const std::string legacy = name->getDecl()->getName().str();
      const NameRule *rule = rules_.name(legacy);
      if (is_legacy(legacy) && (rule == nullptr || !rule->modern.empty())) return false;
    }
    return true;
  }

  bool is_statement(const Expr &expression) {
    const Stmt *parent = parent_of(context_, expression);
    if (parent == nullptr || isa<Expr>(parent)) return false;
    if (const auto *choice = dyn_cast<IfStmt>(parent)) return choice->getCond() != &expression;
    return isa<CompoundStmt>(parent) || isa<IfStmt>(parent);
  }

  void use_of_unneeded(const DeclRefExpr &name, const VarDecl &variable) {
    const Stmt *parent = parent_of(context_, name);
    const std::string type = type_of(variable);
    if (parent != nullptr && isa<MemberExpr>(parent)) return;  // judged there
    const auto *address = dyn_cast_or_null<UnaryOperator>(parent);
    const auto *call =
        address != nullptr ? dyn_cast_or_null<CallExpr>(parent_of(context_, *address)) : nullptr;
    const auto *function = call != nullptr ? call->getDirectCallee() : nullptr;
    if (function != nullptr && rules_.call(name_of(*function)) != nullptr) return;
    if (function != nullptr && name_of(*function) == "memset" && is_statement(*call) &&
        remove_statement(*call, Kind::gone, type))
      return;
    leave(name.getLocation(), Kind::form, type);
  }

  // Constants

  std::optional<std::string> modern_constant(const std::string &legacy) const {
    if (const NameRule *rule = rules_.name(legacy)) return std::string(rule->modern);
    const std::string name(Rules::name_by_table(legacy));
    if (!name.empty() && has_constant(context_, name)) return name;
    return {};
  }

  void constant(const DeclRefExpr &name, const std::string &legacy) {
    const auto to = modern_constant(legacy);
    if (!to) return leave(name.getLocation(), Kind::no_rule, legacy);
    exchange(name.getLocation(), to->empty() ? "0" : *to, to->empty() ? Kind::gone : Kind::name,
             legacy);
  }

  bool goes(const Expr &expression) const {
    const Expr *inner = expression.IgnoreParenImpCasts();
    if (const auto *op = dyn_cast<BinaryOperator>(inner))
      return op->getOpcode() == BO_Or && goes(*op->getLHS()) && goes(*op->getRHS());
    if (const auto *choice = dyn_cast<ConditionalOperator>(inner))
      return !constants_in(*inner).empty() && !has_side_effects(context_, *choice->getCond()) &&
             goes_or_is_zero(*choice->getTrueExpr()) && goes_or_is_zero(*choice->getFalseExpr());
    const auto *name = dyn_cast<DeclRefExpr>(inner);
    if (name == nullptr || !isa<EnumConstantDecl>(name->getDecl())) return false;
    const NameRule *rule = rules_.name(name->getDecl()->getName().str());
    return rule != nullptr && rule->modern.empty();
  }

  bool goes_or_is_zero(const Expr &expression) const {
    const auto *number = dyn_cast<IntegerLiteral>(expression.IgnoreParenImpCasts());
    return (number != nullptr && number->getValue() == 0) || goes(expression);
  }

  // A | B of which one goes: the other stays.
  void mask(const BinaryOperator &op) {
    const bool left = goes(*op.getLHS()), right = goes(*op.getRHS());
    if (left == right) return;
    const Expr &gone = left ? *op.getLHS() : *op.getRHS();
    const auto piece = left ? between(context_, op.getBeginLoc(), op.getRHS()->getBeginLoc())
                            : between(context_, end_of(*op.getLHS()), end_of(*op.getRHS()));
    if (!piece) return;
    edit(*piece, "", Kind::gone, constants_in(gone).front()->getDecl()->getName().str());
  }

  // (x.mask & BIT), or (BIT & x.mask)
  void bit_test(const BinaryOperator &op) {
    const Expr *mask = op.getLHS()->IgnoreParenCasts(), *bit = op.getRHS()->IgnoreParenCasts();
    if (isa<DeclRefExpr>(mask)) std::swap(mask, bit);
    const auto chain = chain_of(*mask);
    const auto *name = dyn_cast<DeclRefExpr>(bit);
    if (!chain || name == nullptr) return;
    const std::string legacy = name->getDecl()->getName().str();
    const TestRule *rule = rules_.test(chain->type, chain->path(), legacy);
    if (rule == nullptr) return;
    std::string text(rule->expression);
    const bool done = text == "1" ? always(op, legacy) : value_instead(op, *chain, text, legacy);
    // Of a macro a second run sees the constant alone.
    if (!done)
      leave(name->getLocation(), op.getOperatorLoc().isMacroID() ? Kind::no_rule : Kind::form,
            legacy);
    seen_.insert(name);
    for (const auto &step : chain->steps) seen_.insert(step.expression);
    seen_.insert(mask);
  }

  bool value_instead(const BinaryOperator &op, const Chain &chain, const std::string &text,
                     const std::string &legacy) {
    const MemberExpr &first = *chain.steps.front().expression;
    const auto object = piece_of(context_, first.getBase()->getSourceRange());
    if (!object && !first.isImplicitAccess()) return false;
    const TypeRule *type = rules_.type(chain.type);
    const std::size_t end = std::min(text.find(' '), text.size());
    const auto path = type != nullptr ? place_in(*type, text.substr(1, end - 1)) : std::nullopt;
    if (!path) return false;
    const std::string value =
        (first.isImplicitAccess() ? std::string()
                                  : text_of(context_, *object) + (first.isArrow() ? "->" : ".")) +
        *path + text.substr(end);
    if (!op.getOperatorLoc().isMacroID()) return replace(op, value, Kind::test, legacy);
    const auto invocation = invocation_of(op);
    if (!invocation) return false;
    const auto &[piece, compared] = *invocation;
    const bool simple = end == text.size();
    edit(piece,
         !compared ? fmt::format("({})", value)
         : simple  ? fmt::format("({} != 0)", value)
                   : fmt::format("(({}) != 0)", value),
         Kind::test, legacy);
    return true;
  }

  // SET(BIT, x.mask), a macro of which the test is all that there is, perhaps compared with 0:
  // where it is used, and whether it compares.
  std::optional<std::pair<Piece, bool>> invocation_of(const BinaryOperator &test) const {
    const auto &sources = context_.getSourceManager();
    const auto used_at = [&](SourceLocation in_body) -> SourceRange {
      if (!sources.isMacroBodyExpansion(in_body)) return {};
      return sources.getImmediateExpansionRange(in_body).getAsRange();
    };
    const SourceRange range = used_at(test.getOperatorLoc());
    if (range.isInvalid() || range.getBegin().isMacroID() || range.getEnd().isMacroID()) return {};
    const Expr *whole = &test;
    bool compared = false;
    for (;;) {
      const auto parents = context_.getParents(*whole);
      const auto *parent = parents.empty() ? nullptr : parents[0].get<Expr>();
      const auto *op = dyn_cast_or_null<BinaryOperator>(parent);
      if (op != nullptr && op->getOpcode() == BO_NE && !compared &&
          used_at(op->getOperatorLoc()) == range) {
        const auto *zero = dyn_cast<IntegerLiteral>(op->getRHS()->IgnoreParenImpCasts());
        if (zero == nullptr || zero->getValue() != 0) return {};
        compared = true;
      } else if (parent == nullptr || !isa<ParenExpr, ImplicitCastExpr>(parent) ||
                 (isa<ParenExpr>(parent) && used_at(parent->getBeginLoc()) != range)) {
        break;
      }
      whole = parent;
    }
    const auto &options = context_.getLangOpts();
    if (!Lexer::isAtStartOfMacroExpansion(whole->getBeginLoc(), sources, options) ||
        !Lexer::isAtEndOfMacroExpansion(whole->getEndLoc(), sources, options))
      return {};
    const auto piece = piece_of(context_, range);
    return piece ? std::optional(std::pair(*piece, compared)) : std::nullopt;
  }

  // A condition that always holds leaves the && or || that it is part of, or decides it.
  bool always(const BinaryOperator &test, const std::string &legacy) {
    const Expr *at = &test;
    bool value = true;
    for (;;) {
      const auto parents = context_.getParents(*at);
      const auto *parent = parents.empty() ? nullptr : parents[0].get<Expr>();
      if (parent == nullptr) break;
      const auto *negation = dyn_cast<UnaryOperator>(parent);
      const auto *op = dyn_cast<BinaryOperator>(parent);
      if (negation != nullptr && negation->getOpcode() == UO_LNot) {
        value = !value;
      } else if (op != nullptr && op->isLogicalOp()) {
        const bool left = op->getLHS() == at;
        const Expr &other = left ? *op->getRHS() : *op->getLHS();
        if (op->getOpcode() == (value ? BO_LAnd : BO_LOr)) {
          const auto piece = left
                                 ? between(context_, op->getBeginLoc(), op->getRHS()->getBeginLoc())
                                 : between(context_, end_of(*op->getLHS()), end_of(*op->getRHS()));
          if (!piece) return false;
          edit(*piece, "", Kind::test, legacy);
          return true;
        }
        if (has_side_effects(context_, other)) break;
      } else if (!isa<ParenExpr>(parent) && !isa<CastExpr>(parent)) {
        break;
      }
      at = parent;
    }
    if (const auto *choice = dyn_cast_or_null<IfStmt>(parent_of(context_, *at));
        choice != nullptr && !choice->hasInitStorage() && !choice->hasVarStorage() &&
        choice->getCond()->IgnoreParenImpCasts() == at->IgnoreParenImpCasts()) {
      const auto piece = piece_of(context_, choice->getSourceRange());
      if (piece && file_of(*piece) != nullptr && end_of_statement(*choice)) {
        folded_.emplace(choice, std::pair(value, legacy));
        return true;
      }
    }
    if (choose(*at, value, legacy)) return true;
    return replace(*at, value ? "1" : "0", Kind::test, legacy);
  }

  // condition ? a : b, of which the one that is left out is a name or a number.
  bool choose(const Expr &condition, bool value, const std::string &legacy) {
    const auto parents = context_.getParents(condition);
    const auto *choice = parents.empty() ? nullptr : parents[0].get<ConditionalOperator>();
    if (choice == nullptr || choice->getCond() != &condition) return false;
    const Expr &taken = value ? *choice->getTrueExpr() : *choice->getFalseExpr();
    const Expr *other = value ? choice->getFalseExpr() : choice->getTrueExpr();
    const auto *name = dyn_cast<DeclRefExpr>(other->IgnoreParenImpCasts());
    if (name != nullptr ? concerns(name_of(*name->getDecl()))
                        : !isa<IntegerLiteral>(other->IgnoreParenImpCasts()))
      return false;
    const auto whole = piece_of(context_, choice->getSourceRange());
    const auto kept = piece_of(context_, taken.getSourceRange());
    if (!whole || !kept || whole->file != kept->file) return false;
    const std::size_t end = kept->offset + kept->length;
    edit({whole->file, whole->offset, kept->offset - whole->offset}, "", Kind::test, legacy);
    if (const std::size_t rest = whole->offset + whole->length - end; rest != 0)
      edit({whole->file, end, rest}, "", Kind::test, legacy);
    return true;
  }

  // wc.qp == qp: by number.
  void comparison(const BinaryOperator &op) {
    for (const bool left : {true, false}) {
      const Expr &ours = left ? *op.getLHS() : *op.getRHS();
      const Expr &theirs = left ? *op.getRHS() : *op.getLHS();
      const auto chain = chain_of(*ours.IgnoreParenImpCasts());
      const CompareRule *rule = chain ? rules_.compare(chain->type, chain->path()) : nullptr;
      if (rule == nullptr) continue;
      if (theirs.isNullPointerConstant(context_, Expr::NPC_ValueDependentIsNull)) return;
      const bool done = rules_.by_function()
                            ? left && compare_by_function(op, *rule, *chain)
                            : compare_numbers(*theirs.IgnoreImpCasts(), *rule, *chain);
      if (!done) return;
      const auto [first, last] = names_of(*chain);
      exchange_range(first, last, std::string(rule->modern), Kind::member,
                     chain->type + "." + chain->path());
      for (const auto &step : chain->steps) seen_.insert(step.expression);
      return;
    }
  }

  bool compare_numbers(const Expr &other, const CompareRule &rule, const Chain &chain) {
    const auto piece = piece_of(context_, other.getSourceRange());
    if (!piece) return false;
    const std::string legacy = chain.type + "." + chain.path();
    const bool simple =
        isa<DeclRefExpr, MemberExpr, ArraySubscriptExpr, ParenExpr, CallExpr>(other);
    if (!simple) edit({piece->file, piece->offset, 0}, "(", Kind::member, legacy);
    edit({piece->file, piece->offset + piece->length, 0},
         fmt::format("{}->{}", simple ? "" : ")", rule.other), Kind::member, legacy);
    return true;
  }

  bool compare_by_function(const BinaryOperator &op, const CompareRule &rule, const Chain &chain) {
    const auto whole = piece_of(context_, op.getSourceRange());
    const auto sign = between(context_, end_of(*op.getLHS()), op.getRHS()->getBeginLoc());
    if (!whole || !sign) return false;
    const std::string legacy = chain.type + "." + chain.path();
    edit({whole->file, whole->offset, 0},
         fmt::format("{}{}(", op.getOpcode() == BO_NE ? "!" : "", rule.function), Kind::member,
         legacy);
    edit(*sign, ", ", Kind::member, legacy);
    edit({whole->file, whole->offset + whole->length, 0}, ")", Kind::member, legacy);
    return true;
  }

  // Calls

  static bool takes_all(const CallRule &rule, unsigned parameters) {
    std::string all;
    for (unsigned i = 0; i < parameters; ++i) all += (i == 0 ? "" : " ") + std::to_string(i);
    return rule.arguments == all;
  }

  // "0 NULL 1": what the rule leaves out is removed, literal text is put in.
  bool arguments(const CallExpr &call, const CallRule &rule) {
    std::istringstream words{std::string(rule.arguments)};
    unsigned next = 0;
    std::string word, text;
    std::vector<std::pair<Piece, std::string>> edits;
    const std::vector<Piece> body = arguments_in_body(context_, call.getCallee()->getExprLoc());
    if (!body.empty() && body.size() != call.getNumArgs()) return false;
    // From the start of one argument, or its end, to that of another.
    const auto span = [&](unsigned from, unsigned to, bool ends) -> std::optional<Piece> {
      if (body.empty())
        return ends ? between(context_, end_of(*call.getArg(from)), end_of(*call.getArg(to)))
                    : between(context_, call.getArg(from)->getBeginLoc(),
                              call.getArg(to)->getBeginLoc());
      const std::size_t begin = body[from].offset + (ends ? body[from].length : 0);
      return Piece{body[from].file, begin, body[to].offset + (ends ? body[to].length : 0) - begin};
    };
    const auto drop_to = [&](unsigned end) {
      if (next >= end) return true;
      // From the end of the argument in front, which takes the comma along.
      // Or up to the one behind.
      if (next == 0 && end == call.getNumArgs()) return false;
      const auto piece = next == 0 ? span(0, end, false) : span(next - 1, end - 1, true);
      if (!piece) return false;
      edits.emplace_back(*piece, "");
      next = end;
      return true;
    };
    while (words >> word) {
      unsigned index = 0;
      const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), index);
      if (error != std::errc() || rest != word.data() + word.size()) {
        text += word + ", ";
        continue;
      }
      if (index >= call.getNumArgs() || !drop_to(index)) return false;
      if (!text.empty()) {
        const auto piece = body.empty() ? piece_of(context_, call.getArg(index)->getSourceRange())
                                        : std::optional(body[index]);
        if (!piece) return false;
        edits.emplace_back(Piece{piece->file, piece->offset, 0}, text);
        text.clear();
      }
      next = index + 1;
    }
    if (!drop_to(call.getNumArgs())) return false;
    for (auto &[piece, what] : edits)
      edit(piece, std::move(what), Kind::call, std::string(rule.legacy));
    return true;
  }

  // Programs of the time left the sequence number out when an initiator of DC went
  // to RTS; no other queue pair gets there without. The kernel insists on it.
  void initiator_to_rts(const BinaryOperator &mask) {
    const auto *around = dyn_cast_or_null<BinaryOperator>(parent_of(context_, mask));
    if (around != nullptr && around->getOpcode() == BO_Or) return;
    std::set<std::string> names;
    for (const DeclRefExpr *name : constants_in(mask)) names.insert(name_of(*name->getDecl()));
    for (const char *needed : {"IBV_EXP_QP_STATE", "IBV_EXP_QP_TIMEOUT", "IBV_EXP_QP_RETRY_CNT"})
      if (names.count(needed) == 0) return;
    if (names.count("IBV_EXP_QP_SQ_PSN") != 0) return;
    if (const auto piece = piece_of(context_, mask.getSourceRange()))
      edit({piece->file, piece->offset + piece->length, 0}, " | IBV_QP_SQ_PSN", Kind::mask,
           "IBV_EXP_QP_SQ_PSN");
  }

  ASTContext &context_;
  const FindFile &find_;
  const Rules &rules_;
  std::set<const void *> seen_;
  std::map<const Stmt *, std::pair<Kind, std::string>> removed_;  // with the legacy name
  std::map<const IfStmt *, std::pair<bool, std::string>> folded_;
  std::map<const FunctionDecl *, Cleared> cleared_;
};

// Names that the program's other headers declare: the legacy interface is declared in
// infiniband/ and rdma/ alone.
void look_around(const ASTContext &context, const DeclContext &scope, Rules &rules) {
  const auto &sources = context.getSourceManager();
  for (const Decl *decl : scope.decls()) {
    if (const auto *space = dyn_cast<NamespaceDecl>(decl)) look_around(context, *space, rules);
    const auto *named = dyn_cast<NamedDecl>(decl->getCanonicalDecl());
    if (named == nullptr || !is_legacy(name_of(*named))) continue;
    // A forward declaration defines nothing.
    const auto *tag = dyn_cast<TagDecl>(decl);
    if (tag != nullptr && !tag->isThisDeclarationADefinition()) continue;
    const auto at = sources.getExpansionLoc(named->getLocation());
    const auto folder =
        llvm::sys::path::filename(llvm::sys::path::parent_path(sources.getFilename(at)));
    if (folder != "infiniband" && folder != "rdma") rules.note_own(name_of(*named));
  }
}

}  // namespace

void look(ASTContext &context, const FindFile &find, Rules &rules) {
  look_around(context, *context.getTranslationUnitDecl(), rules);
  Looker looker(rules);
  visit_files(context, find, looker);
}

void rewrite_macro(File &file, std::size_t offset, const std::string &legacy, const Rules &rules) {
  if (rules.own().contains(legacy)) return;
  const NameRule *rule = rules.name(legacy);
  if (rule == nullptr) file.findings.insert({offset, Kind::no_rule, legacy});
  else file.add({offset, legacy.size(), std::string(rule->modern), Kind::name, legacy});
}

void rewrite(ASTContext &context, const FindFile &find, const Rules &rules) {
  Rewriter rewriter(context, find, rules);
  visit_files(context, find, rewriter);
  rewriter.finish();
}

}  // namespace ibvexp::migrate
