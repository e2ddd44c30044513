#include "tool/audit/binary/recogniser.h"

#include <capstone/capstone.h>

#include <algorithm>
#include <optional>

#include "table/compat.h"

namespace ibvexp::audit {
namespace {

// Bytes up to which a function is evaluated for what it returns: what looks up a
// table may, and what just computes an address from its argument. In larger ones
// than the second, registers that calls may change count as changed.
constexpr std::uint64_t small_function = 2048;
constexpr std::uint64_t tiny_function = 128;
constexpr std::uint64_t thrifty_function = 512;
constexpr int max_depth = 4;
// Parts of a function that lie apart.
constexpr std::size_t max_parts = 8;
constexpr int furthest_field = 512;
// The highest offset of a member of the private structures.
constexpr std::uint64_t furthest_member = 1023;

// Listens to one function.
class Listener final : public Observer {
 public:
  explicit Listener(Recogniser &recogniser)
      : recogniser_(recogniser), values_(recogniser.values()) {}

  Sightings seen;

  void access(const Instruction &at, Value address) override {
    if (const auto t = values_.as_table(address); t && plausible(t->offset))
      seen.accesses.push_back({*t, at.address, false, {}});
  }

  void touch(const Instruction &at, Value address, unsigned size, bool write) override {
    const Values::Linear &l = values_.linear(address);
    for (std::uint32_t i = 0; i < l.count; ++i)
      if (const Symbol &s = values_.at(l.terms[i].symbol); s.kind == Symbol::Kind::load)
        seen.followed.insert(static_cast<Value>(s.a));
    if (write || l.count != 1 || l.terms[0].factor != 1 || l.constant > furthest_member ||
        values_.in_frame(address))
      return;
    seen.reads.push_back({address, static_cast<std::uint8_t>(size), at.address});
  }

  void compare(const Instruction &, Value a, Value b) override {
    for (const auto &[size, limit] : {std::pair{a, b}, std::pair{b, a}}) {
      const Symbol *s = values_.as_symbol(size);
      if (s == nullptr || s->kind != Symbol::Kind::load || limit == unknown) continue;
      if (const auto t = values_.as_table(static_cast<Value>(s->a)))
        seen.size_tests.push_back({*t, size, limit});
    }
  }

  void call(const Instruction &at, Value target, const State &state) override {
    if (const Symbol *s = values_.as_symbol(target); s != nullptr && s->kind == Symbol::Kind::load)
      if (const auto t = values_.as_table(static_cast<Value>(s->a)); t && plausible(t->offset))
        seen.accesses.push_back({*t, at.address, true, arguments(state)});
    look_for_complaint(state);
    // rax of a call that is not followed.
    const Value result = values_.symbol({Symbol::Kind::defined, at.address, rax});
    seen.created.push_back({result, recogniser_.imported(target), at.address});
    const Function *f = recogniser_.local_function(target);
    if (f == nullptr) return;
    bool hands_table = false;
    std::array<Value, 6> passed{};
    for (std::size_t i = 0; i < passed.size(); ++i) {
      passed[i] = state.reg[argument_registers[i]];
      hands_table = hands_table || values_.as_table(passed[i]);
    }
    if (hands_table) seen.handed_on.emplace_back(recogniser_.index(*f), passed);
  }

  Summary summary(Value target) override { return recogniser_.summary(target); }

 private:
  static bool plausible(std::int64_t offset) {
    return offset % 8 == 0 && offset >= -1024 && offset <= 1024;
  }

  ArgumentValues arguments(const State &state) {
    ArgumentValues out;
    for (int i = 0; i < 5; ++i) {
      const Value v = state.reg[argument_registers[static_cast<std::size_t>(i)]];
      if (v == unknown) continue;
      if (auto held = values_.constants_of(v); !held.empty()) {
        out[{i, -1}] = {std::move(held), 8};
        continue;
      }
      const Values::Linear base = values_.linear(v);
      for (const Cell &cell : state.memory.cells()) {
        auto held = values_.constants_of(cell.value);
        const Values::Linear &l = values_.linear(cell.address);
        if (held.empty() || l.count != base.count || l.terms != base.terms) continue;
        const auto distance = static_cast<std::int64_t>(l.constant - base.constant);
        if (distance >= 0 && distance < furthest_field)
          out[{i, static_cast<int>(distance)}] = {std::move(held), cell.size};
      }
    }
    return out;
  }

  // fprintf(stderr, "%s: invalid comp_mask ...", verb, value, valid mask)
  void look_for_complaint(const State &state) {
    const auto argument = [&](std::size_t i) {
      return values_.as_constant(state.reg[argument_registers[i]]);
    };
    for (std::size_t i = 0; i + 3 < argument_registers.size(); ++i) {
      const auto format = argument(i), verb = argument(i + 1), mask = argument(i + 3);
      if (!format || !verb || !mask) continue;
      const auto text = recogniser_.image().text_at(*format);
      if (text.find("invalid comp_mask") == std::string_view::npos) continue;
      const auto name = recogniser_.image().text_at(*verb);
      if (name.starts_with("ibv_")) seen.complaints.push_back({std::string(name), *mask});
    }
  }

  Recogniser &recogniser_;
  Values &values_;
};

}  // namespace

std::string_view Recogniser::imported(Value target) const {
  if (const auto stub = values_.as_constant(target))
    return image_.import_at(linkage_word(image_, *stub));
  const Symbol *s = values_.as_symbol(target);
  if (s == nullptr || s->kind != Symbol::Kind::load) return {};
  const auto word = values_.as_constant(static_cast<Value>(s->a));
  return word ? image_.import_at(*word) : std::string_view();
}

const Function *Recogniser::local_function(Value target) const {
  const auto address = values_.as_constant(target);
  if (!address) return nullptr;
  const Function *f = functions_.at(*address);
  return f != nullptr && f->start == *address ? f : nullptr;
}

Summary Recogniser::summary(Value target) {
  const Function *f = local_function(target);
  return f == nullptr ? foreign_summary(image_.is_arm64()) : summarise(functions_.index(*f));
}

const Summary &Recogniser::summarise(std::size_t index) {
  Known &known = known_[index];
  if (known.depth == Known::Depth::nothing) {
    const Function &f = functions_.all()[index];
    const std::uint64_t size = f.end - f.start;
    known.depth = Known::Depth::working;
    known.summary = foreign_summary(image_.is_arm64());  // what recursion sees
    if (depth_ < max_depth) {
      ++depth_;
      Summary s = size <= thrifty_function ? clobbers(index) : foreign_summary(image_.is_arm64());
      if (size <= tiny_function || (size <= small_function && looks_up_[index] != 0) ||
          return_tables_.contains(index)) {
        Listener listener(*this);
        Flow flow(decode(f));
        s.result = flow.run(values_, listener, entry_state(values_));
        s.size_tests = listener.seen.tests();
      }
      known.summary = std::move(s);
      --depth_;
    }
    known.depth = Known::Depth::result;
  }
  return known.summary;
}

// gcc knows which registers a function of the same file leaves alone, whatever
// the calling convention says.
Summary Recogniser::clobbers(std::size_t index) {
  Summary out;
  const Function &f = functions_.all()[index];
  for (const Instruction &insn : decode(f)) {
    out.clobbers |= insn.writes;
    out.clobbers_vector |= insn.writes_vector;
    const bool call = insn.id == X86_INS_CALL, jump = insn.id == X86_INS_JMP;
    if (!call && !jump) continue;
    Summary callee = foreign_summary(image_.is_arm64());
    if (insn.operands[0].kind == Operand::Kind::immediate) {
      const auto to = static_cast<std::uint64_t>(insn.operands[0].value);
      if (jump && to >= f.start && to < f.end) continue;
      callee = summary(values_.constant(to));
    }
    out.clobbers |= callee.clobbers;
    out.clobbers_vector |= callee.clobbers_vector;
  }
  out.clobbers &= foreign_summary(image_.is_arm64()).clobbers;
  return out;
}

// With the parts that conditional jumps lead to: compilers put unlikely code
// elsewhere.
std::vector<Instruction> Recogniser::decode(const Function &f) {
  std::vector<Instruction> code;
  std::vector<const Function *> parts{&f};
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Function part = *parts[p];
    const auto more =
        disassembler_.decode(image_.at(part.start).first(part.end - part.start), part.start);
    for (const Instruction &insn : more) {
      if (insn.operand_count == 0 || insn.operands[0].kind != Operand::Kind::immediate) continue;
      if (insn.id == X86_INS_CALL || insn.writes != 0) continue;
      const auto to = static_cast<std::uint64_t>(insn.operands[0].value);
      const Function *other = functions_.at(to);
      if (other == nullptr || parts.size() == max_parts ||
          std::find(parts.begin(), parts.end(), other) != parts.end())
        continue;
      const bool tail_call = insn.id == X86_INS_JMP && other->start == to;
      // jcc with 32 bits
      const bool jump = insn.id == X86_INS_JMP || insn.length == 6 || image_.is_arm64();
      if (jump && !tail_call && other->end - other->start <= 16 * small_function)
        parts.push_back(other);
    }
    code.insert(code.end(), more.begin(), more.end());
  }
  std::sort(code.begin(), code.end(),
            [](const Instruction &a, const Instruction &b) { return a.address < b.address; });
  return code;
}

// Expressions are shared by all functions of a worker; what has grown larger than a
// cache makes each of them slow.
constexpr std::size_t most_values = std::size_t{1} << 16;

void Recogniser::evaluate(std::size_t index) {
  if (values_.size() > most_values) forget();
  evaluate(index, entry_state(values_), true);
}

// Everything that is said in terms of the expressions so far.
void Recogniser::forget() {
  evaluate_handed_on();
  values_ = Values();
  std::erase_if(known_, [](const auto &entry) {
    const Summary &s = entry.second.summary;
    return s.result != unknown || !s.size_tests.empty();
  });
}

void Recogniser::learn(const std::set<std::size_t> &return_tables) {
  for (const std::size_t i : return_tables)
    if (return_tables_.insert(i).second) known_.erase(i);
}

void Recogniser::evaluate(std::size_t index, const State &entry, bool own_entry) {
  const Function &f = functions_.all()[index];
  Listener listener(*this);
  Flow flow(decode(f));
  const Value result = flow.run(values_, listener, entry);
  if (own_entry) {
    ++dispatch_.evaluated;
    if (values_.as_table(result)) {
      return_tables_.insert(index);
      Known &known = known_[index];
      known.depth = Known::Depth::result;
      known.summary = f.end - f.start <= thrifty_function ? clobbers(index)
                                                          : foreign_summary(image_.is_arm64());
      known.summary.result = result;
      known.summary.size_tests = listener.seen.tests();
    }
  }
  for (const auto &h : listener.seen.handed_on) handed_on_.push_back(h);
  const std::size_t first_site = dispatch_.sites.size();
  report(f, listener.seen);
  if (own_entry) report_layouts(f, listener.seen, first_site);
}

// Rule of confirmation: the same function compares the table's size, at table + z,
// with n, and n is the distance of the slot from the end, which is z + 8.
void Recogniser::report(const Function &f, const Sightings &seen) {
  // Behind the end of the search: the hidden member of a context, which is larger
  // with the locks of AArch64.
  const std::int64_t modern_size_word = image_.is_arm64() ? 328 : 320;
  for (const MaskComplaint &c : seen.complaints) keep(dispatch_.complaints, c);
  for (const Sightings::Access &a : seen.accesses) {
    for (const Sightings::SizeTest &t : seen.size_tests) {
      if (t.at.table != a.at.table) continue;
      const std::int64_t from_end = t.at.offset + 8 - a.at.offset;
      const auto constant = values_.as_constant(t.limit);
      if (!constant) continue;
      const auto limit = static_cast<std::int64_t>(*constant);
      if (from_end <= 8 || from_end > 1024 || (limit != from_end && limit + 1 != from_end))
        continue;
      keep(dispatch_.sites, {a.site, f.start, static_cast<int>(from_end), a.called,
                             t.at.offset != modern_size_word, a.arguments});
      break;
    }
  }
}

namespace {

// The verb of a slot, empty for what is no function.
std::string_view verb_of_slot(int from_end) {
  constexpr int size = static_cast<int>(slots.size() * sizeof(void *));
  if (from_end > size) return {};
  return slots[static_cast<std::size_t>(size - from_end) / sizeof(void *)].entry;
}

}  // namespace

void Recogniser::report_layouts(const Function &f, const Sightings &seen, std::size_t first_site) {
  std::vector<TypedPointer> typed;
  const auto add = [&](Value pointer, std::string_view verb) {
    if (const auto object = object_of(verb))
      typed.push_back({values_.linear(pointer).terms[0].symbol, *object});
  };
  for (const Sightings::Created &c : seen.created) {
    add(c.pointer, c.verb);
    for (std::size_t i = first_site; i < dispatch_.sites.size(); ++i)
      if (dispatch_.sites[i].called && dispatch_.sites[i].address == c.site)
        add(c.pointer, verb_of_slot(dispatch_.sites[i].from_end));
  }
  std::vector<FieldRead> reads;
  for (const Sightings::Read &r : seen.reads) {
    const Values::Linear &l = values_.linear(r.address);
    reads.push_back({l.terms[0].symbol, static_cast<std::int64_t>(l.constant), r.size, r.site,
                     seen.followed.contains(r.address)});
  }
  for (LayoutSite &site : find_layouts(std::move(reads), typed)) {
    site.function = f.start;
    keep(dispatch_.layouts, std::move(site));
  }
}

void Recogniser::evaluate_handed_on() {
  std::set<std::pair<std::size_t, std::array<Value, 6>>> done;
  for (std::size_t i = 0; i < handed_on_.size() && most_handed_on_ > 0; ++i) {
    const auto next = handed_on_[i];
    if (!done.insert(next).second) continue;
    --most_handed_on_;
    State entry = entry_state(values_);
    for (std::size_t r = 0; r < next.second.size(); ++r)
      if (values_.as_table(next.second[r])) entry.reg[argument_registers[r]] = next.second[r];
    evaluate(next.first, entry, false);
  }
  handed_on_.clear();
}

}  // namespace ibvexp::audit
