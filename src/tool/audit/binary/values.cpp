#include "tool/audit/binary/values.h"

#include <algorithm>

namespace ibvexp::audit {
namespace {

std::size_t mix(std::size_t seed, std::uint64_t x) {
  x += 0x9e3779b97f4a7c15 + seed;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::size_t Values::Hash::operator()(const Symbol &s) const {
  return mix(mix(static_cast<std::size_t>(s.kind), s.a), s.b);
}

std::size_t Values::Hash::operator()(const Linear &l) const {
  std::size_t h = mix(l.count, l.constant);
  for (std::uint32_t i = 0; i < l.count; ++i)
    h = mix(mix(h, l.terms[i].symbol), static_cast<std::uint64_t>(l.terms[i].factor));
  return h;
}

// Number 0 is unknown: no value that is looked up has a term behind its last.
Values::Values() { linears_.number(Linear{0, 0, {Term{~SymbolId{}, 0}}}); }

// s + c - load(s + k) is table(s + k + 8) + (c - k - 8).
bool Values::canonical_table(Linear &l) {
  if (l.count != 2) return false;
  for (const int i : {0, 1}) {
    const Term &minus = l.terms[i], &plus = l.terms[1 - i];
    if (minus.factor != -1 || plus.factor != 1) continue;
    const Symbol &s = symbols_[minus.symbol];
    if (s.kind != Symbol::Kind::load) continue;
    const Linear address = linears_[s.a];
    if (address.count != 1 || address.terms[0] != plus) continue;
    Linear p = address;
    p.constant += 8;
    const std::uint64_t offset = l.constant - p.constant;
    const SymbolId table = symbols_.number(Symbol{Symbol::Kind::table, intern(p), 0});
    l = Linear{offset, 1, {Term{table, 1}}};
    return true;
  }
  return false;
}

Value Values::intern(Linear l) {
  canonical_table(l);
  return linears_.number(l);
}

Value Values::constant(std::uint64_t c) { return intern(Linear{c, 0, {}}); }

Value Values::symbol(const Symbol &s) {
  if (s.kind == Symbol::Kind::load && s.a == unknown) return unknown;
  return intern(Linear{0, 1, {Term{symbols_.number(s), 1}}});
}

Value Values::combine(Value a, Value b, std::int64_t factor) {
  if (a == unknown || b == unknown) return unknown;
  const Linear x = linears_[a], y = linears_[b];
  Linear sum{x.constant + static_cast<std::uint64_t>(factor) * y.constant, 0, {}};
  std::uint32_t i = 0, j = 0;
  while (i < x.count || j < y.count) {
    Term t;
    if (j == y.count || (i < x.count && x.terms[i].symbol < y.terms[j].symbol)) {
      t = x.terms[i++];
    } else if (i == x.count || y.terms[j].symbol < x.terms[i].symbol) {
      t = {y.terms[j].symbol, factor * y.terms[j].factor};
      ++j;
    } else {
      t = {x.terms[i].symbol, x.terms[i].factor + factor * y.terms[j].factor};
      ++i, ++j;
    }
    if (t.factor == 0) continue;
    if (sum.count == max_terms) return unknown;
    sum.terms[sum.count++] = t;
  }
  return intern(sum);
}

Value Values::plus(Value a, std::int64_t c) {
  if (a == unknown || c == 0) return a;
  Linear l = linears_[a];
  l.constant += static_cast<std::uint64_t>(c);
  return intern(l);
}

Value Values::times(Value a, std::int64_t factor) {
  if (a == unknown) return unknown;
  if (factor == 0) return constant(0);
  Linear l = linears_[a];
  l.constant *= static_cast<std::uint64_t>(factor);
  for (std::uint32_t i = 0; i < l.count; ++i) {
    // Unsigned: factors of odd code may overflow.
    l.terms[i].factor = static_cast<std::int64_t>(static_cast<std::uint64_t>(l.terms[i].factor) *
                                                  static_cast<std::uint64_t>(factor));
    if (l.terms[i].factor == 0) return unknown;
  }
  return intern(l);
}

std::optional<std::uint64_t> Values::as_constant(Value v) const {
  if (v == unknown || linears_[v].count != 0) return {};
  return linears_[v].constant;
}

void Values::choose(Value phi, Value a, Value b) {
  constexpr std::size_t most = 8;
  for (const Value v : {a, b})
    for (const std::uint64_t c : constants_of(v)) {
      auto &all = choices_[phi];
      if (all.size() < most && std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
    }
}

std::vector<std::uint64_t> Values::constants_of(Value v) const {
  if (const auto c = as_constant(v)) return {*c};
  const auto found = choices_.find(v);
  return found != choices_.end() ? found->second : std::vector<std::uint64_t>();
}

std::optional<Values::TableAddress> Values::as_table(Value v) const {
  const Linear &l = linears_[v];
  if (v == unknown || l.count != 1 || l.terms[0].factor != 1) return {};
  if (symbols_[l.terms[0].symbol].kind != Symbol::Kind::table) return {};
  return TableAddress{l.terms[0].symbol, static_cast<std::int64_t>(l.constant)};
}

const Symbol *Values::as_symbol(Value v) const {
  const Linear &l = linears_[v];
  if (v == unknown || l.count != 1 || l.terms[0].factor != 1 || l.constant != 0) return nullptr;
  return &symbols_[l.terms[0].symbol];
}

bool Values::in_frame(Value v) const {
  const Linear &l = linears_[v];
  if (v == unknown || l.count != 1 || l.terms[0].factor != 1) return false;
  const Symbol &s = symbols_[l.terms[0].symbol];
  return s.kind == Symbol::Kind::frame || (s.kind == Symbol::Kind::entry && s.a == rsp);
}

}  // namespace ibvexp::audit
