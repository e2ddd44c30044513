// Checks between two hosts: programs of the legacy era with one side on each. One host
// waits (`ibvexp verify --listen`), the other one names it (`--peer`). Over their TCP
// connection goes the name of a program of the manifest, and how its other side ended;
// nothing else can be asked for. Who connects is not checked (SECURITY.md).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tool/verify.h"
#include "tool/verify_run.h"

namespace ibvexp::tool::verify {

// A line of the manifest that lies beside the programs, such as
// "pingpong-rc ib,eth exp_pingpong -n 200 -c rc %gid". In the command, %gid stands for
// which of the port's addresses, and %cm says that the peer is named by one of them.
struct Pair {
  std::string name;
  std::vector<std::string> links;
  std::vector<std::string> command;
};
std::vector<Pair> read_pairs(const std::filesystem::path &manifest);

// The program of one side and its arguments. `gid`: an index, or negative for the link
// layer's usual one, which is 1 with Ethernet (RoCE v2) and none with InfiniBand.
std::vector<std::string> command_of(const Pair &pair, const std::string &link, int gid);

struct PeerOptions {
  std::string host;     // the other side; empty: wait for it
  std::string address;  // of its port, for the connection manager; empty: host
  int port = 18514;
  int gid = -1;
  int timeout = 120;  // seconds for a program
  std::string only;
};

// The address of the software HCA's first host.
inline constexpr const char *soft_peer_address = "10.0.1.1";

// Waits for one peer and serves it until it has done. Throws std::runtime_error where
// there is no port to wait at.
void serve_peer(const Target &target, const PeerOptions &options, const std::string &fabric);

// One check for each program: it passes where both sides end well. Its rows are those
// that this side used. Throws std::runtime_error where there is no peer, or none of this
// version and link layer.
std::vector<Check> run_with_peer(const Target &target, const PeerOptions &options,
                                 const std::string &fabric);

// The same with a peer of this machine, on the software HCA.
std::vector<Check> run_with_soft_peer(const std::string &link, const PeerOptions &options);

}  // namespace ibvexp::tool::verify
