// What the rewriter asks Clang's syntax tree: ranges of source text, chains of
// members, what an expression consists of.
#pragma once

#include <clang/AST/ASTContext.h>
#include <clang/AST/Expr.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Basic/Version.h>

#include <optional>
#include <string>
#include <vector>

namespace ibvexp::migrate {

// "" for operators and constructors.
std::string name_of(const clang::NamedDecl &decl);

// A piece of a file as it was written: no result of a macro, but arguments of one.
struct Piece {
  clang::FileID file;
  std::size_t offset, length;
};

std::optional<Piece> piece_of(const clang::ASTContext &context, clang::SourceRange tokens);

// A token in the body of a macro, for names that can be exchanged anywhere.
std::optional<Piece> token_at(const clang::ASTContext &context, clang::SourceLocation at);

// What stands between the parentheses behind a name in the body of a macro, comma by comma.
std::vector<Piece> arguments_in_body(const clang::ASTContext &context, clang::SourceLocation name);

std::string text_of(const clang::ASTContext &context, const Piece &piece);

// Text between the end of one expression and the end, or start, of another.
std::optional<Piece> between(const clang::ASTContext &context, clang::SourceLocation from,
                             clang::SourceLocation to);

// A statement without the parentheses, casts and labels around it.
const clang::Stmt *parent_of(clang::ASTContext &context, const clang::Stmt &of);

// wr->ex.imm_data: members of a legacy structure, from the outermost one.
struct Chain {
  struct Step {
    const clang::FieldDecl *field;
    const clang::MemberExpr *expression;
  };
  std::string type;  // of the outermost object
  std::vector<Step> steps;
  std::string path() const;
};

std::optional<Chain> chain_of(const clang::Expr &expression);

// Clang 17 has another name for it.
inline const clang::FieldDecl *field_of(const clang::DesignatedInitExpr::Designator &designator) {
#if CLANG_VERSION_MAJOR >= 17
  return designator.getFieldDecl();
#else
  return designator.getField();
#endif
}

// Tag of the legacy structure that a field belongs to, through unnamed ones; or "".
std::string owner_of(const clang::FieldDecl &field);

// The enumerators that an expression names.
std::vector<const clang::DeclRefExpr *> constants_in(const clang::Expr &expression);

// Functions of the C library that compute a value, such as pow(), have none, nor have
// constant members of the C++ library's classes: get() and -> of pointers.
bool has_side_effects(const clang::ASTContext &context, const clang::Expr &expression);

// Whether a structure of that tag has such a member (path: a.b.c).
bool has_member(const clang::ASTContext &context, const std::string &tag, const std::string &path);
bool has_constant(const clang::ASTContext &context, const std::string &name);

}  // namespace ibvexp::migrate
