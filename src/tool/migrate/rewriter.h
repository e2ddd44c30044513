// Walks one translation unit and collects what has to change in the files at hand.
#pragma once

#include <clang/AST/ASTContext.h>

#include <functional>

#include "tool/migrate/edits.h"
#include "tool/migrate/rules.h"

namespace ibvexp::migrate {

// The file at hand that a FileID stands for, or null: system headers and our own.
using FindFile = std::function<File *(clang::FileID)>;

// Shows the rules what the program uses, so that they choose between their forms.
void look(clang::ASTContext &context, const FindFile &find, Rules &rules);

void rewrite(clang::ASTContext &context, const FindFile &find, const Rules &rules);

// A constant of the legacy header that is a macro.
void rewrite_macro(File &file, std::size_t offset, const std::string &legacy, const Rules &rules);

}  // namespace ibvexp::migrate
