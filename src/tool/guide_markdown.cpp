// The rows of the migration guide, and where the matrix answers them.
#include "table/guide.h"
#include "tool/markdown.h"
#include "tool/matrix.h"

namespace ibvexp::tool {
namespace {

std::string words(GuideVerdict v) {
  switch (v) {
    case GuideVerdict::supported: return "supported";
    case GuideVerdict::replaced: return "replaced";
    case GuideVerdict::by_default: return "by default";
    case GuideVerdict::deprecated: return "deprecated";
    case GuideVerdict::not_supported: break;
  }
  return "not supported";
}

// Rows of the matrix that carry an id: names and verdicts, and their families.
struct Answers {
  std::string here, where;

  void add(std::string_view name, Family family, const Answer &answer) {
    here += (here.empty() ? "" : "<br>") + code(name) + ": " + verdict(answer);
    const std::string title(info(family).title);
    const std::string link = "[" + title + "](../compat-matrix.md#" + anchor(title) + ")";
    if (where.find(link) == std::string::npos) where += (where.empty() ? "" : "<br>") + link;
  }
};

bool carries(const Answer &answer, std::string_view id) {
  bool found = false;
  for_each_word(answer.rows, ' ', [&](std::string_view word) { found |= word == id; });
  return found;
}

Answers answers_of(std::string_view id) {
  Answers out;
  for (const Entry &e : entries)
    if (carries(e.answer, id)) out.add(e.name, e.family, e.answer);
  for (const Feature &f : features)
    if (carries(f.answer, id)) out.add(f.name, f.family, f.answer);
  return out;
}

}  // namespace

std::string guide_markdown() {
  std::string out =
      "# Rows of the migration guide\n\n"
      "<!-- Generated from src/table/*.def by ibvexp-matrix; do not edit. Run: ninja matrix -->\n\n"
      "When the experimental verbs ended, Mellanox published a guide that lists for each feature "
      "of\n"
      "MLNX_OFED what rdma-core has instead. The column \"Migration rows\" of\n"
      "[compat-matrix.md](../compat-matrix.md) names its rows by ids of ours, a feature and a path "
      "in\n"
      "it. Here they are by feature, with the verdict of the guide and what this library makes of "
      "them.\n\n"
      "- **The guide**: *supported*, rdma-core offers it under the same name or another; "
      "*replaced* by\n"
      "  something else; *by default*, always so; *deprecated*, still there; *not supported*, "
      "gone.\n"
      "- **Here**: the names and verdicts of the matrix, which explains them. A row that the guide "
      "calls\n"
      "  not supported may be served all the same, and some only with a switch, in brackets.\n\n";
  for (const GuideFeature &feature : guide_features) {
    out += "## " + std::string(feature.title) + "\n\n";
    line(out, {"Row", "The guide", "Here", "In the matrix"});
    out += "| --- | --- | --- | --- |\n";
    for (const GuideRow &row : guide_rows) {
      if (row.prefix() != feature.prefix) continue;
      const Answers answers = answers_of(row.id);
      line(out, {code(row.id), words(row.verdict), answers.here, answers.where});
    }
    out += "\n";
  }
  out.pop_back();
  return out;
}

}  // namespace ibvexp::tool
