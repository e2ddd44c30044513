// The lines that refusals leave on standard error.
#include "trace/diagnose.h"

#include <catch.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

using namespace ibvexp;

namespace {

// What fn writes to standard error: a few lines, which a pipe holds.
template <class Fn>
std::string said_by(Fn fn) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const int kept = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  fn();
  dup2(kept, STDERR_FILENO);
  std::string said(4096, '\0');
  const ssize_t length = read(ends[0], said.data(), said.size());
  said.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  for (const int fd : {kept, ends[0], ends[1]}) close(fd);
  return said;
}

bool contains(const std::string &text, const char *part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a refusal says once what was asked for and which switch serves it") {
  const auto refuse = [] {
    const Error error =
        unsupported(EntryId::ibv_exp_post_send, FeatureId::IBV_EXP_SEND_EXT_ATOMIC_INLINE,
                    "exp_send_flags", 32);
    CHECK(error.code == ENOTSUP);
  };
  const std::string said = said_by(refuse);
  CHECK(contains(said, "ibv_exp_post_send: exp_send_flags 0x20: "));
  CHECK(contains(said, " IBVEXP_BEYOND=masked_atomics serves it.\n"));
  CHECK(said_by(refuse).empty());
}

TEST_CASE("what nothing serves has no switch in its line") {
  const std::string said =
      said_by([] { CHECK(unsupported(EntryId::ibv_exp_poll_dc_info).code == ENOTSUP); });
  CHECK(contains(said, "ibv_exp_poll_dc_info: not supported"));
  CHECK(!contains(said, "IBVEXP_BEYOND"));
}

TEST_CASE("bad input is named with its field, its value and the reason, each time") {
  for (int n = 0; n < 2; ++n) {
    const std::string said = said_by([] {
      CHECK(invalid(EntryId::ibv_exp_create_qp, "comp_mask", 0x40000000, "unknown bits").code ==
            EINVAL);
    });
    CHECK(said == "ibvexp: ibv_exp_create_qp: comp_mask 0x40000000: unknown bits\n");
  }
}
