// The human-readable matrix: a summary, then one section per feature family.
#include <algorithm>
#include <vector>

#include "table/compat.h"
#include "table/compat_rules.h"  // a build makes this file, so it checks the tables
#include "tool/markdown.h"
#include "tool/matrix.h"
#include "tool/matrix_count.h"

namespace ibvexp::tool {
namespace {

std::string release(int version) {
  return version == 0 ? std::string() : "v" + std::to_string(version);
}

std::string_view errno_name(int value) {
  switch (value) {
    case ENOTSUP: return "ENOTSUP";
    case EINVAL: return "EINVAL";
    default: return {};
  }
}

// How a refusal of this entry point looks to its caller.
std::string refusal(const Entry &e) {
  const std::string name(errno_name(e.answer.refusal == 0 ? ENOTSUP : e.answer.refusal));
  std::string how;
  switch (e.shape) {
    case Shape::positive: how = name; break;
    case Shape::positive_bad: how = name + ", bad pointer set"; break;
    case Shape::negative: how = "-" + name; break;
    case Shape::minus_one: how = "-1, errno " + name; break;
    case Shape::null_errno: how = "NULL, errno " + name; break;
    case Shape::null_status: how = "NULL, status"; break;
    case Shape::null: how = "NULL"; break;
    case Shape::void_errno: how = "errno " + name; break;
    case Shape::zero: how = "0"; break;
    case Shape::no_symbol: how = "no such symbol"; break;
  }
  return how;
}

std::string ids(const Answer &a) {
  std::string out;
  for_each_word(a.rows, ' ', [&](std::string_view id) {
    if (!out.empty()) out += ", ";
    out += code(id);
  });
  return out;
}

void write_summary(std::string &out) {
  out += "## Summary\n\n| Family |";
  std::string rule = "| --- |";
  for (std::size_t v = 0; v < verdict_count; ++v) {
    out += " " + std::string(words(static_cast<Verdict>(v))) + " |";
    rule += " ---: |";
  }
  out += " rows |\n" + rule + " ---: |\n";
  const auto write = [&](const std::string &title, const Count &n) {
    out += "| " + title + " |";
    for (const int k : n.by_verdict)
      out += (k == 0 ? std::string() : " " + std::to_string(k)) + " |";
    out += " " + std::to_string(n.rows) + " |\n";
  };
  for (std::size_t f = 0; f < families.size(); ++f) {
    const std::string title(families[f].title);
    write("[" + title + "](#" + anchor(title) + ")", count(static_cast<Family>(f)));
  }
  write("**All**", count_all());
  out += "\n";
}

// Names of rows, or their number where the names would fill the page.
std::string named(const std::vector<std::string> &names) {
  constexpr std::size_t most = 6;
  if (names.size() > most) return std::to_string(names.size()) + " rows";
  std::string out;
  for (const std::string &name : names) out += (out.empty() ? "" : ", ") + code(name);
  return out;
}

// The first page: what fails, family by family. A family that is served as a
// whole has no line.
void write_refused(std::string &out) {
  out +=
      "## What does not work\n\n"
      "Calls of *refused* rows always fail. Rows of the last column work with the switch in\n"
      "brackets, in `IBVEXP_BEYOND` or `ibvexp run --beyond`; without it calls fail, or a\n"
      "capability bit stays clear.\n\n"
      "| Feature | Refused | Works when switched on |\n"
      "| --- | --- | --- |\n";
  for (std::size_t i = 0; i < families.size(); ++i) {
    std::vector<std::string> refused;
    std::vector<std::string> switched;
    std::string switches;
    const auto sort = [&](std::string_view name, const Answer &a) {
      const std::string row(name);
      if (a.verdict == Verdict::unsupported) refused.push_back(row);
      else if (a.verdict == Verdict::beyond) {
        switched.push_back(row);
        const std::string by = code(name_of(a.beyond));
        if (switches.find(by) == std::string::npos) switches += (switches.empty() ? "" : ", ") + by;
      }
    };
    for (const Entry &e : entries_of(static_cast<Family>(i))) sort(e.name, e.answer);
    for (const Feature &f : features_of(static_cast<Family>(i))) sort(f.name, f.answer);
    if (refused.empty() && switched.empty()) continue;
    const std::string title(families[i].title);
    line(out, {"[" + title + "](#" + anchor(title) + ")", named(refused),
               switched.empty() ? "" : named(switched) + " (" + switches + ")"});
  }
  out += "\n";
}

void write_entries(std::string &out, std::span<const Entry> rows) {
  if (rows.empty()) return;
  out +=
      "| Entry point | Verdict | Modern target | Since | Refusal | Migration rows | Note |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Entry &e : rows)
    line(out, {code(e.name), verdict(e.answer), cell(e.answer.target), release(e.answer.min_core),
               refusal(e), ids(e.answer), cell(e.answer.note)});
  out += "\n";
}

// Rows of one enum or structure follow each other; its name is written once.
void write_features(std::string &out, std::span<const Feature> rows) {
  if (rows.empty()) return;
  out +=
      "| Feature | Verdict | Modern target | Since | errno | Migration rows | Note |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  std::string_view owner;
  for (const Feature &f : rows) {
    if (f.owner != owner) {
      owner = f.owner;
      line(out, {"*" + std::string(owner) + "*", "", "", "", "", "", ""});
    }
    line(out, {code(f.name), verdict(f.answer), cell(f.answer.target), release(f.answer.min_core),
               std::string(errno_name(f.answer.refusal)), ids(f.answer), cell(f.answer.note)});
  }
  out += "\n";
}

void write_families(std::string &out) {
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto family = static_cast<Family>(i);
    const FamilyInfo &f = families[i];
    const Count n = count(family);
    out += "## " + std::string(f.title) + "\n\n" + std::string(f.summary) + " " +
           std::to_string(n.rows) + " rows.\n\n";
    write_entries(out, entries_of(family));
    write_features(out, features_of(family));
  }
}

void write_switches(std::string &out) {
  out +=
      "## Features that can be switched on\n\n"
      "Names for `IBVEXP_BEYOND`. *declined*: not built, the name has no effect. *Rows*: how\n"
      "many rows of the tables above it opens, or would open. All *done* switches were tried on\n"
      "the software HCA, all but those of UMR also in virtual machines whose kernel drives it\n"
      "([docs/vm.md](docs/vm.md)). None was tried on a card.\n\n"
      "| Switch | Status | Since | Rows | Route | Meaning |\n"
      "| --- | --- | --- | ---: | --- | --- |\n";
  for (const BeyondSwitch &s : beyond_switches) {
    const auto rows = std::ranges::count_if(features, [&](const Feature &f) {
      return is_switch(f.answer.beyond) && info(f.answer.beyond).name == s.name;
    });
    line(out, {code(s.name), std::string(name_of(s.status)), release(s.since), std::to_string(rows),
               cell(s.route), cell(s.help)});
  }
  out += "\n";
}

void write_options(std::string &out) {
  out +=
      "## Environment variables of this library\n\n"
      "| Variable | Type | Default | Allowed | Meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Option &o : options)
    line(out, {code(o.name), std::string(name_of(o.type)), code(o.default_value), cell(o.allowed),
               cell(o.help)});
  out += "\n";
}

void write_slots(std::string &out) {
  out +=
      "## The operation table\n\n"
      "Words of `struct verbs_context_exp`, by offset. Inlines find them by their distance from\n"
      "the end, which is the same in every release from 3.1 to 4.9.\n\n"
      "| Offset | From the end | Slot | Holds | Note |\n| ---: | ---: | --- | --- | --- |\n";
  const std::size_t size = slots.size() * sizeof(void *);
  for (const Slot &s : slots)
    line(out,
         {std::to_string(offset_of(s)), std::to_string(size - offset_of(s)), code(s.name),
          s.fill == Fill::function ? code(s.entry) : std::string(name_of(s.fill)), cell(s.note)});
}

}  // namespace

std::string matrix_markdown() {
  std::string out =
      "# Compatibility matrix\n\n"
      "<!-- Generated from src/table/*.def by ibvexp-matrix; do not edit. Run: ninja matrix -->\n\n"
      "One row for each verb, flag, opcode and structure member of the experimental verbs API\n"
      "(MLNX_OFED 4.9 and earlier), and what this library does with it on rdma-core.\n\n";
  write_refused(out);
  out +=
      "## How to read the tables\n\n"
      "- **native**: rdma-core has the same feature. **translated**: done by other means, with "
      "the same\n"
      "  result for the caller. **partial**: translated, but some requests are refused; the note "
      "says\n"
      "  which. **no-op**: accepted, nothing to do. **query only**: only reported, from the\n"
      "  target; **never reported**: the bit stays clear, and asking for it is not an error.\n"
      "- **unsupported**: refused; a switch in brackets names a known route that was declined.\n"
      "  **beyond**: refused, or not reported, unless the switch in brackets is named in\n"
      "  `IBVEXP_BEYOND`. With other verdicts the switch adds to what works. **sentinel**: a "
      "constant for\n"
      "  validation or numbering, not a request.\n"
      "- **Since**: first rdma-core release with the target; v12 is the first of all.\n"
      "- **Refusal**: how the verb fails, in its own convention. **Migration rows**: rows of "
      "Mellanox's\n"
      "  migration guide, [listed here](docs/migration-rows.md).\n\n";
  write_summary(out);
  write_families(out);
  write_switches(out);
  write_options(out);
  write_slots(out);
  return out;
}

}  // namespace ibvexp::tool
