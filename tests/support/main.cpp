// main() of every test program. Test cases carry the name of their file as a
// tag, so that a program of many files runs one of them: PROGRAM '[#qp_test]'.
// A selection that matches nothing is a failure.
//
// A test case with the tag [rdma-core-36] is left out where the installed
// rdma-core is older than that; if nothing remains, the program is skipped (77).
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include "rdma_core.h"

#include <string>

namespace {

// The releases that tests ask for.
constexpr int asked_for[] = {29, 31, 33, 34, 36, 47, 55};

int test_cases_run = 0;

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

struct Counter : Listener {
  using Listener::Listener;
  void testCaseStarting(Catch::TestCaseInfo const &) override { ++test_cases_run; }
};
CATCH_REGISTER_LISTENER(Counter)

}  // namespace

int main(int argc, char **argv) {
  Catch::Session session;
  session.configData().filenamesAsTags = true;
#if !__has_include(<catch2/catch_all.hpp>)
  session.configData().warnings = Catch::WarnAbout::NoTests;  // the default of 3.x
#endif
  if (const int status = session.applyCommandLine(argc, argv); status != 0) return status;

  std::string later;
  for (const int release : asked_for)
    if (release > support::rdma_core_release())
      later += "~[rdma-core-" + std::to_string(release) + "]";
  auto &selected = session.configData().testsOrTags;
  // A test case that is named is run.
  for (std::string &which : selected)
    if (which.starts_with('[')) which += later;
  if (selected.empty() && !later.empty()) selected.push_back(later);

  const int status = session.run();
  if (test_cases_run == 0 && !later.empty()) return 77;
  return status;
}
