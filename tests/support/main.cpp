// main() of every test program. Test cases carry the name of their file as a
// tag, so that a program of many files runs one of them: PROGRAM '[#qp_test]'.
// A selection that matches nothing is a failure.
//
// A test case with the tag [rdma-core-36] is left out where the installed
// rdma-core is older than that. If nothing remains, or each test case that is run is skipped
// (skip.h), the program is skipped (77).
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <string>

#include "rdma_core.h"
#include "skip.h"

namespace {

// The releases that tests ask for.
constexpr int asked_for[] = {29, 31, 33, 34, 36, 47, 55};

int test_cases_run = 0, test_cases_skipped = 0;
bool skipped = false;
std::string running;

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

struct Counter : Listener {
  using Listener::Listener;
  void testCaseStarting(Catch::TestCaseInfo const &test) override {
    ++test_cases_run;
    skipped = false;
    running = test.name;
  }
  void testCaseEnded(Catch::TestCaseStats const &) override { test_cases_skipped += skipped; }
};
CATCH_REGISTER_LISTENER(Counter)

}  // namespace

void support::skip_test(std::string_view reason) {
  if (!skipped)
    std::printf("skipped: %s: %.*s\n", running.c_str(), static_cast<int>(reason.size()),
                reason.data());
  skipped = true;
}

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
  if (status == 0 && test_cases_skipped != 0)
    std::printf("test cases skipped: %d\n", test_cases_skipped);
  const bool none_left = test_cases_run == 0 && !later.empty();
  const bool all_skipped = test_cases_run != 0 && test_cases_skipped == test_cases_run;
  return none_left || (status == 0 && all_skipped) ? 77 : status;
}
