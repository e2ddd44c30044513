// The rules of rules.def, and which of its two forms a program needs.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace ibvexp::migrate {

// In all rules: legacy is the name, more the type whose wider form the rule is of, or "".
struct TypeRule {
  std::string_view legacy, more, modern;
};
struct MemberRule {
  std::string_view type, more, path, modern;
};
struct NameRule {
  std::string_view legacy, more, modern;
};
struct TestRule {
  std::string_view type, member, name, expression;
};
struct CallRule {
  std::string_view legacy, more, modern, arguments;
};
struct SetRule {  // or to get it; after: the member that has to be set before
  std::string_view type, member, function, after;
};
struct FillRule {
  std::string_view type, name, member;
};
struct CompareRule {
  std::string_view type, member, modern, other, function;
};

// Whether a name belongs to the legacy interface.
bool is_legacy(std::string_view name);

class Rules {
 public:
  // Without helper, conversions that need a helper header have no rule.
  explicit Rules(bool helper) : helper_(helper) {}

  // A constant, or type.member, that the program uses.
  void note_use(std::string_view what);

  // A text that an earlier run made has the names of the wider forms that it chose.
  void note_modern(std::string_view text);

  // A name that the program defines itself, whatever it begins with.
  void note_own(std::string_view name) { own_.emplace(name); }
  const std::set<std::string, std::less<>> &own() const { return own_; }

  // Null where there is no rule.
  const TypeRule *type(std::string_view legacy) const;
  const MemberRule *member(std::string_view type, std::string_view path) const;
  const TestRule *test(std::string_view type, std::string_view member, std::string_view name) const;
  const CallRule *call(std::string_view legacy) const;
  const SetRule *set(std::string_view type, std::string_view member) const;
  const SetRule *get(std::string_view type, std::string_view member) const;
  // The member of the modern structure that is read whatever its mask is, or null.
  const FillRule *fill(std::string_view type) const;
  // By its function, or by number.
  const CompareRule *compare(std::string_view type, std::string_view member) const;
  bool by_function() const { return by_function_; }
  // Of the rules, or of the tables if the row names the same name without EXP_.
  // Has a value that is empty if the bit is left out of masks.
  const NameRule *name(std::string_view legacy) const;
  static std::string_view name_by_table(std::string_view legacy);

 private:
  template <class Rule>
  const Rule *usable(const Rule *rule) const {
    if (rule == nullptr || helper_) return rule;
    return rule->modern.starts_with("ibvexp_") || rule->modern.starts_with("IBVEXP_") ? nullptr
                                                                                      : rule;
  }

  std::set<std::string_view> more_;
  std::set<std::string, std::less<>> own_;
  bool by_function_ = false;
  bool helper_;
};

// What a program loses if a name, or type.member, is removed; "" if nothing.
std::string_view loss(std::string_view legacy);

// What to do by hand: the table's note about a name, or a pointer to the guide.
std::string advice(std::string_view legacy);

// The row of the tables that a name or type.member belongs to, or "".
std::string_view row_of(std::string_view legacy);

}  // namespace ibvexp::migrate
