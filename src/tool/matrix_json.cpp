// The matrix for programs: every column of every row under its own name.
#include <nlohmann/json.hpp>

#include "table/compat.h"
#include "tool/matrix.h"
#include "tool/matrix_count.h"
#include "tool/matrix_types.h"

namespace ibvexp::tool {
namespace {

using Json = nlohmann::ordered_json;

Json words(std::string_view list, char separator) {
  Json out = Json::array();
  for_each_word(list, separator, [&](std::string_view word) { out.push_back(word); });
  return out;
}

// Columns common to entry points and features.
void add_answer(Json &row, const Answer &a) {
  row["verdict"] = name_of(a.verdict);
  row["beyond"] = is_switch(a.beyond) ? Json(name_of(a.beyond)) : Json();
  row["target"] = a.target.empty() ? Json() : Json(a.target);
  row["min_rdma_core"] = a.min_core == 0 ? Json() : Json(a.min_core);
  row["errno"] = a.refusal == 0 ? Json() : Json(a.refusal == EINVAL ? "EINVAL" : "ENOTSUP");
  row["migration_rows"] = words(a.rows, ' ');
  row["note"] = a.note;
}

Json counts(const Count &n) {
  Json out;
  for (std::size_t v = 0; v < verdict_count; ++v)
    out[std::string(names_of_Verdict[v])] = n.by_verdict[v];
  out["rows"] = n.rows;
  return out;
}

Json family_rows(Family family) {
  const FamilyInfo &f = info(family);
  Json out{{"family", f.token}, {"title", f.title}, {"summary", f.summary}};
  out["counts"] = counts(count(family));
  out["entries"] = Json::array();
  for (const Entry &e : entries_of(family)) {
    Json row{{"name", e.name},
             {"door", name_of(e.door)},
             {"version_node", name_of(e.node)},
             {"error_shape", name_of(e.shape)}};
    add_answer(row, e.answer);
    out["entries"].push_back(std::move(row));
  }
  out["features"] = Json::array();
  for (const Feature &x : features_of(family)) {
    Json row{{"name", x.name}, {"owner", x.owner}, {"kind", name_of(x.kind)}};
    add_answer(row, x.answer);
    out["features"].push_back(std::move(row));
  }
  return out;
}

Json all() {
  Json out;
  out["counts"] = counts(count_all());
  out["families"] = Json::array();
  for (std::size_t f = 0; f < families.size(); ++f)
    out["families"].push_back(family_rows(static_cast<Family>(f)));
  out["switches"] = Json::array();
  for (const BeyondSwitch &s : beyond_switches)
    out["switches"].push_back({{"name", s.name},
                               {"status", name_of(s.status)},
                               {"min_rdma_core", s.since},
                               {"route", s.route},
                               {"help", s.help}});
  out["options"] = Json::array();
  for (const Option &o : options)
    out["options"].push_back({{"name", o.name},
                              {"type", name_of(o.type)},
                              {"default", o.default_value},
                              {"allowed", words(o.allowed, ',')},
                              {"help", o.help}});
  out["slots"] = Json::array();
  for (const Slot &s : slots)
    out["slots"].push_back({{"name", s.name},
                            {"offset", offset_of(s)},
                            {"holds", s.fill == Fill::function ? s.entry : name_of(s.fill)},
                            {"note", s.note}});
  return out;
}

// A structure, a member or an enumeration, which has rows at most.
Json described(const TypeInfo &type) {
  Json out{{"name", type.name},
           {"kind", name_of(type.kind)},
           {"of", type.part_of},
           {"for", type.taken_by},
           {"target", type.modern.empty() ? Json() : Json(type.modern)}};
  out["parts"] = Json::array();
  for (const TypeInfo::Part &part : type.parts) {
    const std::string_view target = part.row != nullptr ? part.row->answer.target : part.modern;
    out["parts"].push_back(
        {{"name", part.name},
         {"verdict", part.row != nullptr ? Json(name_of(part.row->answer.verdict)) : Json()},
         {"target", target.empty() ? Json() : Json(target)}});
  }
  return out;
}

}  // namespace

std::string matrix_json() { return all().dump(1) + "\n"; }

std::string matrix_lookup_json(std::string_view name) {
  const Json matrix = all();
  for (const Json &family : matrix["families"])
    for (const char *kind : {"entries", "features"})
      for (Json row : family[kind])
        if (row["name"] == name) {
          row["family"] = family["family"];
          return row.dump(1) + "\n";
        }
  for (const char *kind : {"switches", "options"})
    for (const Json &row : matrix[kind])
      if (row["name"] == name) return row.dump(1) + "\n";
  if (const std::optional<TypeInfo> type = find_type(name)) return described(*type).dump(1) + "\n";
  return matrix_lookup(name);  // and that it has none
}

}  // namespace ibvexp::tool
