#include "tool/verify_peer.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tool/libraries.h"

extern char **environ;

namespace fs = std::filesystem;

namespace ibvexp::tool::verify {

namespace {

// What both sides have to agree in, said by the one that waits.
std::string greeting(const std::string &link) {
  return fmt::format("ibvexp-verify {} {}", IBVEXP_VERSION, link);
}

[[noreturn]] void fail(const std::string &what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

struct FreeAddresses {
  void operator()(addrinfo *list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const std::string &host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_INET;  // as the programs do
  hints.ai_flags = AI_PASSIVE;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  if (error != 0) throw std::runtime_error(fmt::format("{}: {}", host, gai_strerror(error)));
  return Addresses(found);
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket() : Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0) fail("socket");
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket(const Socket &) = delete;
  Socket &operator=(const Socket &) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

// Short lines in both directions.
class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  void say(const std::string &line) {
    const std::string all = line + "\n";
    if (send(socket_.fd(), all.data(), all.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(all.size()))
      fail("the peer");
  }

  // Nothing: the peer has gone, says nothing for so long, or more than a line.
  std::optional<std::string> hear(int seconds) {
    constexpr std::size_t longest = 200;
    while (pending_.find('\n') == pending_.npos) {
      std::array<char, longest> bytes;
      pollfd ready{socket_.fd(), POLLIN, 0};
      if (pending_.size() >= longest || poll(&ready, 1, seconds * 1000) != 1) return {};
      const ssize_t got = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
      if (got <= 0) return {};
      pending_.append(bytes.data(), static_cast<std::size_t>(got));
    }
    const std::size_t end = pending_.find('\n');
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return line;
  }

 private:
  Socket socket_;
  std::string pending_;
};

// A program that runs beside us, with all that it starts; killed at the latest when we
// leave it.
class Beside {
 public:
  explicit Beside(std::vector<std::string> command) {
    std::vector<char *> words;
    for (std::string &word : command) words.push_back(word.data());
    words.push_back(nullptr);
    posix_spawnattr_t group;
    posix_spawnattr_init(&group);
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    errno = posix_spawn(&pid_, "/bin/sh", nullptr, &group, words.data(), environ);
    posix_spawnattr_destroy(&group);
    if (errno != 0) fail("/bin/sh");
  }
  ~Beside() {
    if (!status_) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Beside(const Beside &) = delete;
  Beside &operator=(const Beside &) = delete;

  // The status as waitpid() has it, once it has ended.
  std::optional<int> ended() {
    int status;
    if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_;
  }

 private:
  pid_t pid_;
  std::optional<int> status_;
};

int free_port() {
  Socket probe;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  if (bind(probe.fd(), reinterpret_cast<sockaddr *>(&address), size) != 0 ||
      getsockname(probe.fd(), reinterpret_cast<sockaddr *>(&address), &size) != 0)
    fail("no port");
  return ntohs(address.sin_port);
}

std::vector<std::string> side(const Pair &pair, const Target &target, const PeerOptions &options,
                              const std::string &port) {
  std::vector<std::string> command = command_of(pair, target.link, options.gid);
  command.front() = (find_pairs().parent_path() / command.front()).string();
  command.insert(command.end(), {"-p", port});
  if (options.host.empty()) return command;
  const bool cm = std::find(pair.command.begin(), pair.command.end(), "%cm") != pair.command.end();
  command.push_back(cm && !options.address.empty() ? options.address : options.host);
  return command;
}

// Two sides on one machine are two hosts there: the first one is served by.
Environment environment_of_side(const Target &target, const std::string &fabric,
                                const PeerOptions &options) {
  Environment out = environment_of(target, fabric, "");
  if (target.soft) out.push_back({"SOFTHCA_HOST", options.host.empty() ? "1" : "2"});
  return out;
}

// How a side ended, in a word for the other one.
std::string in_words(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

void serve(Connection &peer, const Target &target, const PeerOptions &options,
           const std::string &fabric) {
  const Folder folder;
  const std::vector<Pair> pairs = read_pairs(find_pairs());
  peer.say(greeting(target.link));
  while (const auto asked = peer.hear(options.timeout + 60)) {
    const auto pair = std::find_if(pairs.begin(), pairs.end(),
                                   [&](const Pair &p) { return *asked == "pair " + p.name; });
    if (pair == pairs.end()) {
      peer.say("unknown");
      continue;
    }
    const std::string port = std::to_string(free_port());
    Beside program(quiet_command(environment_of_side(target, fabric, options),
                                 side(*pair, target, options, port), options.timeout,
                                 folder.path / "output"));
    peer.say("at " + port);
    // Either the peer gives up, or it waits for us.
    const auto word = peer.hear(options.timeout + 30);
    if (!word) return;
    std::optional<int> status = program.ended();
    for (int waited = 0; *word == "done" && !status && waited < options.timeout * 10; ++waited) {
      poll(nullptr, 0, 100);
      status = program.ended();
    }
    peer.say(status ? "ended " + in_words(*status) : "stopped");
  }
}

// The rows that a process used and that nothing refused.
std::vector<std::string> used_rows(const fs::path &trace) {
  std::vector<std::string> out;
  const nlohmann::json read = nlohmann::json::parse(read_file(trace), nullptr, false);
  if (read.is_discarded()) return out;
  for (const auto &process : read["processes"])
    for (const auto &row : process["rows"])
      if (row["refusals"] == 0 && row["failures"] == 0) out.push_back(row["name"]);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Check run_pair(Connection &peer, const Pair &pair, const Target &target, const PeerOptions &options,
               const std::string &fabric, const Folder &folder) {
  Check check{"two hosts", pair.name, {}, Outcome::failed, ""};
  peer.say("pair " + pair.name);
  const auto place = peer.hear(60);
  if (!place || !place->starts_with("at ")) {
    check.where = place ? "the peer does not know it" : "the peer has gone";
    return check;
  }
  const fs::path trace = folder.path / "trace.json";
  Environment environment = environment_of_side(target, fabric, options);
  environment.push_back({"IBVEXP_TRACE", trace.string()});
  const int status = run_quietly(environment, side(pair, target, options, place->substr(3)),
                                 options.timeout, folder.path / "output");
  peer.say(status == 0 ? "done" : "stop");
  const auto other = peer.hear(options.timeout + 30);
  check.rows = used_rows(trace);
  fs::remove(trace);
  if (status != 0) check.where = "this side: " + in_words(status);
  else if (!other || *other != "ended exit status 0")
    check.where = "the peer: " + other.value_or("has gone");
  else check.outcome = Outcome::passed;
  return check;
}

}  // namespace

std::vector<Pair> read_pairs(const fs::path &manifest) {
  std::ifstream in(manifest);
  if (!in) throw std::runtime_error(fmt::format("{} cannot be read", manifest.string()));
  std::vector<Pair> out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Pair pair;
    std::string links;
    if (!(words >> pair.name >> links)) continue;
    std::istringstream each(links);
    for (std::string link; std::getline(each, link, ',');) pair.links.push_back(link);
    for (std::string word; words >> word;) pair.command.push_back(word);
    if (!pair.command.empty()) out.push_back(std::move(pair));
  }
  return out;
}

std::vector<std::string> command_of(const Pair &pair, const std::string &link, int gid) {
  if (gid < 0 && link == "eth") gid = 1;
  std::vector<std::string> out;
  for (const std::string &word : pair.command) {
    if (word == "%cm") continue;
    if (word != "%gid") out.push_back(word);
    else if (gid >= 0) out.insert(out.end(), {"-g", std::to_string(gid)});
  }
  return out;
}

void serve_peer(const Target &target, const PeerOptions &options, const std::string &fabric) {
  const Addresses here = look_up("", options.port);
  const Socket listening;
  const int one = 1;
  setsockopt(listening.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listening.fd(), here->ai_addr, here->ai_addrlen) != 0 || listen(listening.fd(), 1) != 0)
    fail(fmt::format("port {}", options.port));
  fmt::print(stderr, "verify: waiting at port {}\n", options.port);
  Socket accepted(accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (accepted.fd() < 0) fail("accept");
  Connection peer(std::move(accepted));
  serve(peer, target, options, fabric);
}

std::vector<Check> run_with_peer(const Target &target, const PeerOptions &options,
                                 const std::string &fabric) {
  const Addresses there = look_up(options.host, options.port);
  std::optional<Socket> connected;
  // It may have been started at the same time.
  for (int tries = 0; !connected; ++tries) {
    Socket made;
    if (connect(made.fd(), there->ai_addr, there->ai_addrlen) == 0)
      connected.emplace(std::move(made));
    else if (tries == 50) fail(fmt::format("{}, port {}", options.host, options.port));
    else poll(nullptr, 0, 100);
  }
  Connection peer(std::move(*connected));
  const auto said = peer.hear(60);
  if (!said || *said != greeting(target.link))
    throw std::runtime_error(fmt::format("{} says \"{}\", not \"{}\"", options.host,
                                         said.value_or(""), greeting(target.link)));
  const Folder folder;
  std::vector<Check> out;
  for (const Pair &pair : read_pairs(find_pairs())) {
    if (std::find(pair.links.begin(), pair.links.end(), target.link) == pair.links.end()) continue;
    if (!options.only.empty() && options.only != pair.name) continue;
    show_progress(target, pair.name);
    out.push_back(run_pair(peer, pair, target, options, fabric, folder));
  }
  show_progress(target, {});
  return out;
}

std::vector<Check> run_with_soft_peer(const std::string &link, const PeerOptions &options) {
  const Folder folder;
  const std::string fabric = fmt::format("verify-{}-peer", getpid());
  PeerOptions near = options;
  near.host = "127.0.0.1";
  near.address = soft_peer_address;
  near.port = free_port();
  near.gid = -1;
  const Beside peer(quiet_command(
      {{"SOFTHCA_FABRIC", fabric}},
      {own_path().string(), "verify", "--device", "soft", "--link", link, "--listen", "--port",
       std::to_string(near.port), "--timeout", std::to_string(options.timeout)},
      3600, folder.path / "peer"));
  return run_with_peer({true, "", link}, near, fabric);
}

}  // namespace ibvexp::tool::verify
