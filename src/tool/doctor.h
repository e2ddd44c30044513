// What this machine offers to legacy programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "table/compat.h"
#include "tool/elf_head.h"
#include "tool/words.h"

namespace ibvexp::tool::doctor {

// A library as the dynamic linker finds it.
struct Library {
  std::string name;
  std::string file;            // empty: not there, or it does not load
  std::string error;           // why it does not load; empty: it is not installed
  std::optional<int> release;  // of rdma-core, where the file name has it
  bool has_experimental;       // MLNX_OFED's own, of 4.9 or before
};

// The oldest that this library loads with.
inline constexpr int oldest_rdma_core = 28;

struct Port {
  int number;
  std::string link;   // "InfiniBand" or "Ethernet"
  std::string state;  // "ACTIVE"
};

struct Device {
  std::string name;
  std::string model;  // "ConnectX-6", or identifiers
  bool mlx5 = false;  // driven by libmlx5
  std::string firmware;
  std::vector<Port> ports;
  std::string error;    // why it cannot be used; empty: it can
  std::string warning;  // what is odd although it can
  // From ibv_exp_query_device with everything asked for.
  std::uint64_t capabilities = 0;
  std::uint32_t answered = 0;
  std::uint64_t answered_2 = 0;
};

// What the kernel offers to open, whoever knows what to do with it.
struct Node {
  std::string device;  // "mlx5_0"
  std::string file;    // "/dev/infiniband/uverbs0"
  std::string error;   // why it cannot be opened for reading and writing; empty: it can
};

enum class Grade { good, note, bad };

// A line of the report.
struct Finding {
  Grade grade;
  std::string what;
  std::string advice;  // what to do about it; may be empty
};

struct System {
  std::vector<Library> libraries;
  std::vector<Finding> kernel, permissions, environment;
  bool has_uverbs = false;  // the kernel's interface for devices is there
  bool soft = false;        // the software HCA is asked for
  std::vector<Node> nodes;
  std::vector<Device> devices;

  // Of libibverbs; nothing if unknown.
  std::optional<int> rdma_core() const;
  bool usable() const;
};

System examine();

// As a program finds it: in folders, and where the dynamic linker looks then.
Library find_library(const std::string &name,
                     const std::vector<std::filesystem::path> &folders = {});

// What a program finds: in LD_LIBRARY_PATH and its own run path, too.
std::vector<Library> libraries_for(const ElfHead &program);

// The answer in one line. The numbers are the exit statuses of the command.
enum class Outcome {
  works = 0,
  no_device = 1,
  // 2 is wrong usage.
  no_rdma_core = 3,
  old_rdma_core = 4,
  legacy_libibverbs = 5,
  no_provider = 6,
  no_access = 7,
  device_fails = 8,
};

struct Conclusion {
  Outcome outcome;
  std::string what;
  std::string advice;  // the way out; may be empty

  const char *name() const;
};

Conclusion conclude(const System &system);

// Why libibverbs_exp does not load beside these libraries; nothing if it does.
std::optional<Conclusion> trouble_with(const std::vector<Library> &libraries);

struct RowHere {
  std::string_view name;
  Family family;
  Word here;  // works, off, beyond, refused, device or upgrade
  std::string advice;
};

std::vector<RowHere> judge_rows(const System &system);

}  // namespace ibvexp::tool::doctor
