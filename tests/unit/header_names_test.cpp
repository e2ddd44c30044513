// The rows and the public header speak of the same things: each name that is a
// token in a .def file is declared, and each slot lies where its row says. Most
// of this is checked by compiling it.
#include <catch.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>
#include <rdma/rdma_cma.h>  // rdma_establish and rdma_init_qp_attr are declared there

#include <algorithm>
#include <cstddef>

#include "table/compat.h"

namespace {

using namespace ibvexp;

constexpr std::uint64_t constants[] = {
#define IBVEXP_CONSTANT(name, ...) static_cast<std::uint64_t>(name),
#include "table/features.def"
};

constexpr std::size_t slot_offsets[] = {
#define IBVEXP_SLOT(name, ...) offsetof(verbs_context_exp, name),
#define IBVEXP_SLOT_EMPTY(name, ...) offsetof(verbs_context_exp, name),
#include "table/slots.def"
};

// Absent entry points are the only ones that no header declares.
#define DECLARED_slot_and_symbol(name) sizeof(decltype(&name)),
#define DECLARED_symbol(name) sizeof(decltype(&name)),
#define DECLARED_inline_only(name) sizeof(decltype(&name)),
#define DECLARED_absent(name)
constexpr std::size_t declared[] = {
#define IBVEXP_ENTRY(name, family, door, ...) DECLARED_##door(name)
#include "table/entries.def"
};

}  // namespace

TEST_CASE("every entry point is declared unless it is absent") {
  const auto rows = std::count_if(entries.begin(), entries.end(),
                                  [](const Entry &e) { return e.door != Door::absent; });
  CHECK(std::size(declared) == static_cast<std::size_t>(rows));
}

TEST_CASE("every enumerator row is a constant of the public header") {
  const auto rows = std::count_if(features.begin(), features.end(),
                                  [](const Feature &f) { return f.enumerator; });
  CHECK(std::size(constants) == static_cast<std::size_t>(rows));
}

TEST_CASE("slots lie where their rows say") {
  REQUIRE(std::size(slot_offsets) == slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    INFO(slots[i].name);
    CHECK(slot_offsets[i] == offset_of(slots[i]));
  }
}
