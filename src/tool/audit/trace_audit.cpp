#include "tool/audit/trace_audit.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tool/audit/binary/elf_image.h"
#include "tool/audit/call_sites.h"
#include "tool/audit/subjects.h"
#include "tool/audit/trace_words.h"
#include "tool/plural.h"
#include "tool/refused.h"

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

// What all processes of a program did with a row.
struct Sums {
  std::uint64_t calls = 0;
  Outcomes outcomes;
  // The first process with a refusal, or the first one at all.
  const Json *process = nullptr, *row = nullptr;
};

// How calls ended, of the ways that occurred.
std::string in_words(const Outcomes &outcomes) {
  std::string out;
  const auto add = [&](std::uint64_t n, std::string_view one, std::string_view many) {
    if (n != 0) out += (out.empty() ? "" : ", ") + tool::plural(n, one, many);
  };
  add(outcomes.successes, "success", "successes");
  add(outcomes.refusals, "refusal", "refusals");
  add(outcomes.failures, "failure", "failures");
  if (out.empty()) out = "no call ended";
  if (outcomes.processes > 1) out += fmt::format(", in {} processes", outcomes.processes);
  return out;
}

Use use_of(const std::string &name, const Sums &sums, CallSites &sites) {
  const Subject *subject = subject_of(name);
  Use use = make_use(subject != nullptr ? *subject : unknown_name(name), Evidence::trace);
  // What happened counts, not what the row says about all requests of that name.
  use.refused = tool::was_refused(name, sums.outcomes.refusals);
  if (sums.outcomes.refusals == 0) use.severity = Severity::works;
  else if (!use.refused) use.severity = Severity::off;
  else if (use.severity == Severity::works) use.severity = Severity::refused;
  use.count = sums.calls;
  use.where = sums.process->at("program");
  use.outcomes = sums.outcomes;
  for (const char *which : {"first_refusal", "first_call"}) {
    if (!sums.row->contains(which)) continue;
    use.detail =
        describe(sums.process->at("notes").at((*sums.row)[which].get<std::size_t>()), sites);
    break;
  }
  return use;
}

bool shows_the_same(const Use &a, const Use &b) {
  return a.subject == b.subject && a.where == b.where && a.severity == b.severity &&
         a.refused == b.refused;
}

void add_to(FileReport &sum, const FileReport &other) {
  for (std::size_t i = 0; i < sum.uses.size(); ++i) {
    Use &to = sum.uses[i];
    const Use &from = other.uses[i];
    to.count += from.count;
    to.outcomes.successes += from.outcomes.successes;
    to.outcomes.refusals += from.outcomes.refusals;
    to.outcomes.failures += from.outcomes.failures;
    to.outcomes.processes += from.outcomes.processes;
  }
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
    thread_local CallSites sites;  // traces given together are mostly of one program
    std::map<std::pair<std::string, std::string>, Sums> all;  // by program and row
    for (const auto &[id, process] : processes)
      for (const Json &row : process->at("rows")) {
        Sums &sums =
            all[{process->at("program").get<std::string>(), row.at("name").get<std::string>()}];
        const auto add = [&](std::uint64_t &sum, const char *key) {
          sum += row.at(key).get<std::uint64_t>();
        };
        add(sums.calls, "calls");
        add(sums.outcomes.successes, "successes");
        add(sums.outcomes.refusals, "refusals");
        add(sums.outcomes.failures, "failures");
        ++sums.outcomes.processes;
        // Keep the process with a refusal: its call site is what the user looks for.
        if (sums.row != nullptr && !row.contains("first_refusal")) continue;
        if (sums.row != nullptr && sums.row->contains("first_refusal")) continue;
        sums.process = process;
        sums.row = &row;
      }
    for (const auto &[key, sums] : all) report.add(use_of(key.second, sums, sites));
  } catch (const Json::exception &e) {
    throw InputError("corrupt trace: " + std::string(e.what()));
  } catch (const std::logic_error &) {
    throw InputError("corrupt trace: an offset is no number");
  }
}

void fold_traces(std::vector<FileReport> &files) {
  std::vector<FileReport> kept;
  std::map<std::size_t, std::size_t> alike;  // by place in kept
  for (FileReport &f : files) {
    const auto same = [&](const FileReport &k) {
      return k.kind == FileKind::trace && f.kind == FileKind::trace && f.error.empty() &&
             k.error.empty() && std::ranges::equal(k.uses, f.uses, shows_the_same);
    };
    if (const auto found = std::ranges::find_if(kept, same); found != kept.end()) {
      add_to(*found, f);
      ++alike[static_cast<std::size_t>(found - kept.begin())];
    } else {
      kept.push_back(std::move(f));
    }
  }
  for (const auto &[at, count] : alike)
    kept[at].notes.push_back(fmt::format("with the calls of {} that {} the same",
                                         tool::plural(count, "other trace"),
                                         count == 1 ? "shows" : "show"));
  for (FileReport &f : kept)
    if (f.kind == FileKind::trace)
      for (Use &u : f.uses)
        u.detail = in_words(u.outcomes) + (u.detail.empty() ? "" : "; " + u.detail);
  files = std::move(kept);
}

}  // namespace ibvexp::audit
