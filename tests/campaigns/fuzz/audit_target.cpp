// What ibvexp audit reads, of unknown origin: ELF files with their debug information,
// traces, sources, build files, archives, configurations and earlier reports.
//
// A damaged input is a report with an error.
#include <sys/mman.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <iterator>

#include "bytes.h"
#include "tool/audit/baseline.h"
#include "tool/audit/binary/binary.h"
#include "tool/audit/binary/elf_image.h"
#include "tool/audit/config.h"
#include "tool/audit/container.h"
#include "tool/audit/file.h"
#include "tool/audit/outputs.h"
#include "tool/audit/source.h"
#include "tool/audit/trace_audit.h"

namespace {

using namespace ibvexp::audit;

std::string base;  // the library of audit_base.c

// A file that has no name.
class File {
 public:
  explicit File(const std::string &content) : fd_(memfd_create("audit", MFD_CLOEXEC)) {
    PROMISE(fd_ >= 0);
    PROMISE(write(fd_, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  ~File() { close(fd_); }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  const std::string &path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

std::string rest_of(Bytes &in) {
  std::string text(in.left(), '\0');
  in.take_into(text.data(), text.size());
  return text;
}

// The library with some words changed, perhaps cut off.
std::string damaged(Bytes &in) {
  std::string elf = base;
  if (in.take<std::uint8_t>() % 16 == 0) elf.resize(in.take<std::uint32_t>() % elf.size());
  while (!in.empty() && elf.size() > 8) {
    const std::uint8_t how = in.take<std::uint8_t>();
    // Headers matter most.
    const std::size_t at = how % 4 == 0 ? in.below(1024) % (elf.size() - 8)
                                        : in.take<std::uint32_t>() % (elf.size() - 8);
    const std::uint64_t value = in.take<std::uint64_t>();
    std::memcpy(&elf[at], &value, std::size_t{1} << (how >> 2 & 3));
  }
  return elf;
}

void read_archive(const std::string &content) {
  const File file(content);
  const auto wanted = [](std::string_view name) { return kind_by_name(name) != FileKind::other; };
  for_each_member(file.path(), wanted, [](const std::string &name, const std::string &member) {
    MappedFile mapped(member);
    FileReport report;
    if (mapped.text().starts_with("\177ELF")) audit_binary(member, report);
    else audit_source(name, mapped.text(), report);
  });
}

void read_one(Bytes &in, std::uint8_t kind, Report &all) {
  FileReport report;
  report.path = "file";
  switch (kind % 9) {
    case 0:
    case 1: audit_binary(File(damaged(in)).path(), report); break;
    case 2: audit_binary(File(rest_of(in)).path(), report); break;
    case 3: audit_trace(rest_of(in), report); break;
    case 4: audit_source(in.take<std::uint8_t>() % 2 ? "a.c" : "a.py", rest_of(in), report); break;
    case 5: audit_build_file(rest_of(in), report); break;
    case 6: read_archive(rest_of(in)); break;
    case 7: {
      const Config config = read_config(File(rest_of(in)).path());
      suppress(all, config);
      break;
    }
    default: {
      const File file(rest_of(in));
      mark_known(all, file.path());
      compare(file.path(), file.path());
      break;
    }
  }
  all.files.push_back(std::move(report));
}

}  // namespace

// What libdw had when it gave up on a damaged unit.
extern "C" const char *__lsan_default_suppressions();
extern "C" const char *__lsan_default_suppressions() { return "leak:libdw"; }

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  std::ifstream file(AUDIT_BASE, std::ios::binary);
  base.assign(std::istreambuf_iterator<char>(file), {});
  PROMISE(base.size() > 1024);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Bytes in(data, size);
  Report all;
  const auto kind = in.take<std::uint8_t>();
  try {
    read_one(in, kind, all);
  } catch (const std::exception &) {
  }
  // What was read is shown.
  static_cast<void>(as_table(all, false, usual_width));
  static_cast<void>(as_json(all));
  static_cast<void>(as_html(all));
  static_cast<void>(as_csv(all));
  return 0;
}
