// main() of every test program. Test cases carry the name of their file as a
// tag, so that a program of many files runs one of them: PROGRAM '[#qp_test]'.
// A selection that matches nothing is a failure.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char **argv) {
  Catch::Session session;
  session.configData().filenamesAsTags = true;
#if !__has_include(<catch2/catch_all.hpp>)
  session.configData().warnings = Catch::WarnAbout::NoTests;  // the default of 3.x
#endif
  if (const int status = session.applyCommandLine(argc, argv); status != 0) return status;
  return session.run();
}
