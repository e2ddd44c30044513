#include "tool/audit/trace_audit.h"

#include "tool/audit/binary/elf_image.h"
#include "tool/audit/call_sites.h"
#include "tool/audit/subjects.h"
#include "tool/audit/trace_words.h"

#include <nlohmann/json.hpp>

#include <map>

namespace ibvexp::audit {
namespace {

using Json = nlohmann::json;

std::string describe(const Json &note, CallSites &sites) {
  std::string out;
  const auto add = [&](const std::string &text) { out += (out.empty() ? "" : ", ") + text; };
  if (note.contains("module")) {
    const std::string module = note["module"];
    if (!note.contains("offset")) add(module);
    else add(sites.describe(module, std::stoull(std::string(note["offset"]), nullptr, 16)));
  }
  if (note.contains("words")) {
    const std::string words = note["words"];
    add(name_words(note.value("entry", std::string()), words));
  }
  if (note.contains("reason")) add(note["reason"]);
  return out;
}

void add_row(const Json &process, const Json &row, CallSites &sites, FileReport &report) {
  const std::string name = row.at("name");
  const Subject *subject = subject_of(name);
  Use use = make_use(subject != nullptr ? *subject : unknown_name(name), Evidence::trace);
  // What happened counts, not what the row says about all requests of that name.
  if (row.at("refusals").get<std::uint64_t>() == 0) use.severity = Severity::fine;
  else if (use.severity == Severity::fine) use.severity = Severity::refused;
  use.count = row.at("calls");
  use.where = process.at("program");
  use.detail = std::to_string(row.at("successes").get<std::uint64_t>()) + " successes, " +
               std::to_string(row.at("refusals").get<std::uint64_t>()) + " refusals, " +
               std::to_string(row.at("failures").get<std::uint64_t>()) + " failures";
  for (const char *which : {"first_refusal", "first_call"}) {
    if (!row.contains(which)) continue;
    const std::string more = describe(process.at("notes").at(row[which].get<std::size_t>()), sites);
    if (!more.empty()) use.detail += "; " + more;
    break;
  }
  report.uses.push_back(std::move(use));
}

}  // namespace

bool looks_like_trace(std::string_view text) {
  const std::string_view start = text.substr(0, 256);
  return start.find("\"ibvexp-trace\"") != std::string_view::npos;
}

void audit_trace(std::string_view text, FileReport &report) {
  try {
    const Json trace = Json::parse(text);
    if (trace.at("format") != "ibvexp-trace") throw InputError("not a trace of ibvexp");
    if (const Json &version = trace.at("version"); version != 1)
      throw InputError("a trace of version " +
                       (version.is_number() ? version.dump() : version.type_name()) +
                       "; this ibvexp reads 1");
    // A process that wrote itself again is whole in its last occurrence.
    std::map<std::string, const Json *> processes;
    for (const Json &p : trace.at("processes")) processes[p.at("id")] = &p;
    CallSites sites;
    for (const auto &[id, process] : processes)
      for (const Json &row : process->at("rows")) add_row(*process, row, sites, report);
  } catch (const Json::exception &e) {
    throw InputError("corrupt trace: " + std::string(e.what()));
  } catch (const std::logic_error &) {
    throw InputError("corrupt trace: an offset is no number");
  }
}

}  // namespace ibvexp::audit
