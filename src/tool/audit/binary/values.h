// Abstract values of the code recogniser: linear expressions over symbols,
// sum(coefficient * symbol) + constant, modulo 2^64. Equal expressions have the
// same number, so comparing values is comparing integers.
//
// The one identity that matters is built in: p - load(p - 8) + c is written
// table(p) + c. That is the address arithmetic with which the legacy headers find
// the operation table, and almost nothing else computes it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tool/audit/binary/interner.h"

namespace ibvexp::audit {

using Value = std::uint32_t;
inline constexpr Value unknown = 0;  // nothing is known; not even equal to itself

struct Symbol {
  enum class Kind : std::uint8_t {
    entry,    // a: register at function entry
    defined,  // a: address of the defining instruction, b: which of its results
    frame,    // a: address; a stack pointer that was aligned there
    phi,      // a: address of the block, b: location
    load,     // a: Value of the address, 8 bytes
    table,    // a: Value of p
  };
  Kind kind;
  std::uint64_t a;
  std::uint64_t b;
  bool operator==(const Symbol &) const = default;
};

class Values {
 public:
  using SymbolId = std::uint32_t;
  static constexpr std::size_t max_terms = 3;

  struct Term {
    SymbolId symbol;
    std::int64_t factor;
    bool operator==(const Term &) const = default;
  };
  struct Linear {
    std::uint64_t constant = 0;
    std::uint32_t count = 0;
    std::array<Term, max_terms> terms{};
    bool operator==(const Linear &) const = default;
  };

  // table(p) + offset
  struct TableAddress {
    SymbolId table;
    std::int64_t offset;
  };

  Values();

  Value constant(std::uint64_t c);
  Value symbol(const Symbol &s);
  Value load(Value address) { return symbol({Symbol::Kind::load, address, 0}); }
  Value add(Value a, Value b) { return combine(a, b, 1); }
  Value sub(Value a, Value b) { return combine(a, b, -1); }
  Value plus(Value a, std::int64_t c);
  Value times(Value a, std::int64_t factor);

  std::optional<std::uint64_t> as_constant(Value v) const;
  std::optional<TableAddress> as_table(Value v) const;
  // At a phi: the constants that come in there, the first few, and none of what else does.
  void choose(Value phi, Value a, Value b);
  // What a value may be: itself, or those constants.
  std::vector<std::uint64_t> constants_of(Value v) const;
  // The symbol of a value that is just one symbol.
  const Symbol *as_symbol(Value v) const;
  // Whether the value is an address in the frame of the function.
  bool in_frame(Value v) const;

  const Linear &linear(Value v) const { return linears_[v]; }
  const Symbol &at(SymbolId id) const { return symbols_[id]; }
  std::size_t size() const { return linears_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const Symbol &s) const;
    std::size_t operator()(const Linear &l) const;
  };

  Value intern(Linear l);
  bool canonical_table(Linear &l);
  // a + factor * b
  Value combine(Value a, Value b, std::int64_t factor);

  Interner<Linear, Hash> linears_;
  Interner<Symbol, Hash> symbols_;
  std::unordered_map<Value, std::vector<std::uint64_t>> choices_;
};

// Numbers of the general registers, as the hardware encodes them: the first sixteen.
// AArch64 has the others, and shares these (arm64.cpp).
enum Register : std::uint8_t {
  rax,
  rcx,
  rdx,
  rbx,
  rsp,
  rbp,
  rsi,
  rdi,
  r8,
  r9,
  r10,
  r11,
  r12,
  r13,
  r14,
  r15
};
inline constexpr std::size_t register_count = 34, vector_count = 16;
using Registers = std::uint64_t;  // a bit each
inline constexpr std::array argument_registers{rdi, rsi, rdx, rcx, r8, r9};

}  // namespace ibvexp::audit
