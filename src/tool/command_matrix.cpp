// ibvexp matrix: prints the compatibility matrix, or one row of it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <stdexcept>

#include "tool/command.h"
#include "tool/matrix.h"
#include "tool/matrix_types.h"

namespace ibvexp::tool {

void add_matrix(CLI::App &app, Action &action) {
  CLI::App *sub = app.add_subcommand("matrix", "Print the compatibility matrix, or one row of it");
  const auto name = std::make_shared<std::string>();
  sub->add_option(
      "NAME", *name,
      "A verb, flag, opcode, structure, member (ibv_exp_send_wr.exp_opcode) or enumeration: what "
      "becomes of it, what replaces it, an example; or a switch or an environment variable");
  const auto json = std::make_shared<bool>(false);
  auto *as_json = sub->add_flag("--json", *json, "As JSON");
  sub->add_flag_function(
         "--md", [json](std::int64_t) { *json = false; }, "As Markdown (default)")
      ->excludes(as_json);
  sub->callback([&action, json, name] {
    action = [json, name] {
      const std::string text = name->empty() ? (*json ? matrix_json() : matrix_markdown())
                               : *json       ? matrix_lookup_json(name_in_matrix(*name))
                                             : matrix_lookup(name_in_matrix(*name));
      if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
          std::fflush(stdout) != 0)
        throw std::runtime_error("cannot write to standard output");
      return exit_ok;
    };
  });
}

}  // namespace ibvexp::tool
