// The work of find_dispatch(): which functions to evaluate, what they report to their
// callers, and which accesses are slots.
#pragma once

#include <set>
#include <tuple>
#include <type_traits>

#include "tool/audit/binary/fixed_point.h"
#include "tool/audit/binary/functions.h"
#include "tool/audit/binary/table_calls.h"
#include "tool/audit/report.h"

namespace ibvexp::audit {

// What one function does with tables that it found.
struct Sightings {
  struct Access {
    Values::TableAddress at;
    std::uint64_t site;
    bool called;
    ArgumentValues arguments;
    bool operator<(const Access &o) const {
      return std::tie(at.table, at.offset, site, called) <
             std::tie(o.at.table, o.at.offset, o.site, o.called);
    }
  };
  struct SizeTest {
    Values::TableAddress at;
    Value size;  // the word at that address
    Value limit;
  };
  std::vector<Access> accesses;
  struct Read {
    Value address;
    std::uint8_t size;
    std::uint64_t site;
  };
  // A pointer that a verb returned.
  struct Created {
    Value pointer;
    std::string_view verb;  // by name, or by the slot that is called at the site
    std::uint64_t site;
  };
  std::vector<SizeTest> size_tests;
  std::vector<MaskComplaint> complaints;
  std::vector<Read> reads;
  std::vector<Created> created;
  std::set<Value> followed;  // addresses of words that are used as addresses

  std::vector<std::pair<Value, Value>> tests() const {
    std::vector<std::pair<Value, Value>> out;
    for (const SizeTest &t : size_tests) out.emplace_back(t.size, t.limit);
    return out;
  }
  // Local functions that are handed a table address, with all arguments.
  std::vector<std::pair<std::size_t, std::array<Value, 6>>> handed_on;
};

// What all workers read: the image, its functions, and which of them are worth
// evaluating for themselves.
struct CodeMap {
  explicit CodeMap(const ElfImage &image);
  const ElfImage &image;
  Functions functions;
  std::vector<char> looks_up;
};

// Evaluates functions; one for each thread.
class Recogniser {
 public:
  explicit Recogniser(const CodeMap &code)
      : image_(code.image),
        functions_(code.functions),
        looks_up_(code.looks_up),
        disassembler_(code.image.is_arm64()) {}

  // From its own entry.
  void evaluate(std::size_t index);
  // Those who are handed a table, once more from there.
  void evaluate_handed_on();
  // Functions that return a table, as far as this one found or learned them.
  const std::set<std::size_t> &return_tables() const { return return_tables_; }
  void learn(const std::set<std::size_t> &return_tables);

  Dispatch &dispatch() { return dispatch_; }

  // The summary of a local function, or of an unknown call.
  Summary summary(Value target);
  const Function *local_function(Value target) const;
  std::size_t index(const Function &f) const { return functions_.index(f); }
  // Name of the imported function that a call reaches, empty for any other.
  std::string_view imported(Value target) const;

  Values &values() { return values_; }
  const ElfImage &image() const { return image_; }

 private:
  struct Known {
    enum class Depth : std::uint8_t { nothing, working, result } depth = Depth::nothing;
    Summary summary;
  };

  std::vector<Instruction> decode(const Function &f);
  void evaluate(std::size_t index, const State &entry, bool own_entry);
  const Summary &summarise(std::size_t index);
  Summary clobbers(std::size_t index);
  void report(const Function &f, const Sightings &seen);
  void report_layouts(const Function &f, const Sightings &seen, std::size_t first_site);
  void forget();
  template <class T>
  void keep(std::vector<T> &found, std::type_identity_t<T> one) {
    if (found.size() < most_uses) found.push_back(std::move(one));
    else dispatch_.cut = true;
  }

  const ElfImage &image_;
  const Functions &functions_;
  const std::vector<char> &looks_up_;
  Values values_;
  Disassembler disassembler_;
  std::map<std::size_t, Known> known_;
  int depth_ = 0;
  std::set<std::size_t> return_tables_;
  std::vector<std::pair<std::size_t, std::array<Value, 6>>> handed_on_;
  std::size_t most_handed_on_ = 2000;
  Dispatch dispatch_;
};

}  // namespace ibvexp::audit
