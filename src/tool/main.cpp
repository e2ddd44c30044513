// ibvexp: the command-line tool of libibverbs_exp.
#include "tool/command.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

namespace ibvexp::tool {

namespace {

int run(int argc, char **argv) {
  CLI::App app("Experimental verbs (ibv_exp_*) on today's rdma-core", "ibvexp");
  app.set_version_flag("--version", "ibvexp " IBVEXP_VERSION);
  app.require_subcommand(1);

  Action action;
  add_audit(app, action);
  add_run(app, action);
  add_doctor(app, action);
  add_fabric(app, action);
  add_matrix(app, action);
  add_migrate(app, action);
  add_verify(app, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? exit_ok : exit_trouble;
  }
  return action();
}

}  // namespace

}  // namespace ibvexp::tool

int main(int argc, char **argv) {
  try {
    return ibvexp::tool::run(argc, argv);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "ibvexp: %s\n", e.what());
    return ibvexp::tool::exit_trouble;
  }
}
