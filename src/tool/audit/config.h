// The configuration file of ibvexp audit, for what a project wants every time:
//
//   {"exclude": ["third_party"], "recursive": false, "fail-on": ["refused"],
//    "baseline": "audit.json",
//    "ignore": ["IBV_EXP_WR_NOP", {"name": "ibv_exp_peer_commit_qp", "path": "tests/*"}]}
//
// File names are relative to the configuration file's folder.
#pragma once

#include "tool/audit/audit.h"

namespace ibvexp::audit {

inline constexpr const char *default_config = ".ibvexp-audit.json";

struct Config {
  struct Ignored {
    std::string name, path;  // path: a pattern of shells; empty is any
  };
  std::vector<std::string> exclude, fail_on;
  bool recursive = false;
  std::string baseline;
  std::vector<Ignored> ignore;
};

// Throws std::runtime_error: no such file, no such key, a value of the wrong kind.
Config read_config(const std::string &path);

// Marks uses that the configuration ignores.
void suppress(Report &report, const Config &config);

}  // namespace ibvexp::audit
