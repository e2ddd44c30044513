#include "tool/audit/audit.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tool/audit/binary/binary.h"
#include "tool/audit/binary/elf_image.h"
#include "tool/audit/container.h"
#include "tool/audit/file.h"
#include "tool/audit/source.h"
#include "tool/audit/trace_audit.h"
#include "tool/elf_head.h"
#include "tool/loaded.h"
#include "tool/plural.h"
#include "tool/script.h"

namespace ibvexp::audit {
namespace {

namespace fs = std::filesystem;

// Sources larger than this are generated data; reading gigabytes of them for
// names would take minutes.
constexpr std::size_t largest_source = std::size_t{256} << 20;

struct Job {
  std::string path;
  std::size_t input;  // of Report::inputs
  bool named;         // by the user, so it has to be audited somehow
};

// SOURCE_DATE_EPOCH makes reports repeatable.
std::string now() {
  const char *given = std::getenv("SOURCE_DATE_EPOCH");
  const std::time_t seconds = given != nullptr
                                  ? static_cast<std::time_t>(std::strtoll(given, nullptr, 10))
                                  : std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

class Auditor {
 public:
  explicit Auditor(const Options &options) : options_(options) { report_.inputs = options.paths; }

  Report run(const Progress &progress) {
    const auto start = std::chrono::steady_clock::now();
    const unsigned count = options_.threads != 0
                               ? options_.threads
                               : std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < count; ++i) workers.emplace_back([this] { work(); });
    {
      std::jthread walker([this] {
        for (std::size_t i = 0; i < options_.paths.size(); ++i) walk(options_.paths[i], i);
        const std::scoped_lock lock(mutex_);
        walking_ = false;
        wake_.notify_all();
      });
      std::unique_lock lock(mutex_);
      while (walking_ || done_ < known_) {
        wake_main_.wait_for(lock, std::chrono::milliseconds(100));
        if (progress) {
          const std::size_t done = done_, known = walking_ ? 0 : known_;
          lock.unlock();
          progress(done, known);
          lock.lock();
        }
      }
      finished_ = true;
      wake_.notify_all();
    }
    workers.clear();
    leave_own_names();
    std::sort(report_.files.begin(), report_.files.end(),
              [](const FileReport &a, const FileReport &b) { return a.path < b.path; });
    fold_traces(report_.files);
    report_.date = now();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void add(const fs::path &path, std::size_t input, bool named) {
    std::error_code failed;
    const fs::path real = fs::canonical(path, failed);
    add(path, failed ? path.string() : real.string(), input, named);
  }

  // Libraries are reached by many ways: real has no links in it.
  void add(const fs::path &path, std::string real, std::size_t input, bool named) {
    const std::scoped_lock lock(mutex_);
    if (!seen_.insert(std::move(real)).second) return;
    jobs_.push_back({path.string(), input, named});
    ++known_;
    wake_.notify_one();
  }

  void fail(const fs::path &path, const std::string &why) {
    FileReport r;
    r.path = path.string();
    r.error = why;
    const std::scoped_lock lock(mutex_);
    report_.files.push_back(std::move(r));
  }

  // What the kernel shows, which is reached from / only.
  static bool is_of_kernel(const fs::path &real) { return real == "/proc" || real == "/sys"; }

  bool excluded(const fs::path &path) const {
    const std::string name = path.filename().string();
    return name == ".git" || name == ".svn" || name == ".hg" ||
           std::find(options_.exclude.begin(), options_.exclude.end(), name) !=
               options_.exclude.end();
  }

  void walk(const fs::path &path, std::size_t input) {
    if (path.empty()) return fail("''", "a name is expected");
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
      const bool link = fs::is_symlink(fs::symlink_status(path, error));
      return fail(path, link ? "dangling link" : "no such file or directory");
    }
    if (error) return fail(path, error.message());
    if (!fs::is_directory(status)) return add(path, input, true);
    const fs::path real = fs::canonical(path, error);
    walk_folder(path, error ? path : real, input);
  }

  // real: without links.
  void walk_folder(const fs::path &folder, const fs::path &real, std::size_t input) {
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    if (error) return fail(folder, error.message());
    for (const fs::directory_entry &e : entries) {
      std::error_code failed;
      const bool link = e.is_symlink(failed);
      if (!link && e.is_directory(failed)) {
        const fs::path inner = real / e.path().filename();
        if (!excluded(e.path()) && !is_of_kernel(inner)) walk_folder(e.path(), inner, input);
      } else if (link && !fs::exists(e.path(), failed)) {
        // Reported only if the file would have been read.
        if (kind_by_name(e.path().native()) != FileKind::other) fail(e.path(), "dangling link");
      } else if (e.is_regular_file(failed)) {
        if (link) add(e.path(), input, false);
        else add(e.path(), (real / e.path().filename()).string(), input, false);
      }
    }
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return finished_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      FileReport report = audit(job);
      lock.lock();
      keep(std::move(report));
      ++done_;
      if (done_ == known_) wake_main_.notify_one();
    }
  }

  // With the mutex taken.
  void keep(FileReport report) {
    count(report);
    if (!report.uses.empty() || !report.error.empty() || !report.unjudged.empty() ||
        !report.declared.empty() || (report.named && report.kind == FileKind::binary))
      report_.files.push_back(std::move(report));
  }

  // Names like the API's that a source tree declares are the program's own.
  void leave_own_names() {
    std::map<std::size_t, std::set<std::string_view>> declared;
    for (const FileReport &f : report_.files)
      for (const std::string &name : f.declared) declared[f.input].insert(name);
    for (FileReport &f : report_.files) {
      const auto own = declared.find(f.input);
      if (own == declared.end()) continue;
      std::erase_if(f.uses, [&](const Use &u) {
        return u.severity == Severity::unknown && own->second.contains(u.subject->name);
      });
    }
    std::erase_if(report_.files, [](const FileReport &f) {
      return f.kind == FileKind::source && f.uses.empty() && f.error.empty() && f.unjudged.empty();
    });
  }

  void count(const FileReport &report) {
    switch (report.kind) {
      case FileKind::source: ++report_.sources; break;
      case FileKind::build_file: ++report_.build_files; break;
      case FileKind::binary: ++report_.binaries; break;
      case FileKind::trace: ++report_.traces; break;
      case FileKind::archive: break;  // its members count
      case FileKind::other: ++report_.skipped; break;
    }
  }

  FileReport audit(const Job &job) {
    FileReport report;
    report.path = job.path;
    report.input = job.input;
    report.named = job.named;
    try {
      audit(job, report);
    } catch (const std::exception &e) {
      report.error = e.what();
    }
    return report;
  }

  void audit(const Job &job, FileReport &report) {
    MappedFile file(job.path);
    const std::string_view start = file.start();
    if (looks_like_archive(job.path, is_compressed(start) ? file.text() : start)) {
      report.kind = FileKind::archive;
      return audit_members(job);
    }
    // What squashfs holds, libarchive does not read.
    if (start.starts_with("hsqs")) {
      report.unjudged = "it is a squashfs image: name what unsquashfs takes out of it";
      return;
    }
    if (start.starts_with("\177ELF")) {
      report.kind = FileKind::binary;
      audit_elf(job.path, start, report);
      if (options_.recursive) {
        std::vector<std::string> libraries;
        for (const fs::path &library : tool::libraries_of(job.path))
          libraries.push_back(library.string());
        for (const std::string &library : libraries) add(library, job.input, false);
        const std::scoped_lock lock(mutex_);
        report_.loads[job.path] = std::move(libraries);
      }
      return;
    }
    if (looks_like_trace(start)) {
      report.kind = FileKind::trace;
      return audit_trace(file.text(), report);
    }
    audit_text(job, file, report);
  }

  static void audit_elf(const std::string &file, std::string_view start, FileReport &report) {
    constexpr std::size_t mark_at = 8;
    if (start.size() > mark_at && start.substr(mark_at).starts_with("AI")) {
      report.unjudged = "it is an AppImage: name what --appimage-extract takes out of it";
      return;
    }
    audit_binary(file, report);
    const std::string name = fs::path(member_name(report.path)).filename();
    if (is_legacy_library(name, file)) {
      report.uses.clear();
      report.unjudged = "it is MLNX_OFED's " + name.substr(0, name.find('.')) +
                        " itself, in whose place rdma-core's is";
    } else if (report.uses.empty() && report.program && has_verbs_inside(file)) {
      report.unjudged =
          "it contains a libibverbs of its own, whose verbs cannot be told from the program's";
    }
  }

  // The name inside of an archive, or the path.
  static std::string member_name(const std::string &path) {
    const std::size_t inside = path.find('(');
    return path.ends_with(')') && inside != std::string::npos
               ? path.substr(inside + 1, path.size() - inside - 2)
               : path;
  }

  static bool has_verbs_inside(const std::string &program) {
    const tool::ElfHead head(program);
    return tool::has_own_libibverbs(head) ||
           (head.interpreter().empty() && head.has_constant_with("/class/infiniband_verbs"));
  }

  static bool is_legacy_library(const std::string &name, const std::string &file) {
    for (const char *library : {"libibverbs.so", "libmlx5.so", "libmlx5-rdmav", "libmlx4.so",
                                "libmlx4-rdmav", "librdmacm.so"})
      if (name.starts_with(library)) return tool::ElfHead(file).has_name_with("_exp_");
    return false;
  }

  // As ar and ld write it.
  void audit_members(const Job &job) {
    const auto wanted = [](std::string_view name) { return kind_by_name(name) != FileKind::other; };
    for_each_member(job.path, wanted, [&](const std::string &name, const std::string &file) {
      FileReport member;
      member.path = job.path + "(" + name + ")";
      member.input = job.input;
      member.member = true;
      try {
        MappedFile content(file);
        if (content.start().starts_with("\177ELF")) {
          member.kind = FileKind::binary;
          audit_elf(file, content.start(), member);
        } else {
          audit_text({name, job.input, false}, content, member);
        }
      } catch (const std::exception &e) {
        member.error = e.what();
      }
      const std::scoped_lock lock(mutex_);
      keep(std::move(member));
    });
  }

  // By its name; one that the user named is read in any case.
  void audit_text(const Job &job, MappedFile &file, FileReport &report) {
    report.kind = kind_by_name(job.path);
    if (report.kind == FileKind::other) {
      if (!job.named) return;
      if (named_like_archive(job.path))
        throw InputError(fmt::format("not an archive of a known kind, though named like one: {}",
                                     tool::plural(file.size(), "byte")));
      if (job.path.ends_with(".json")) throw InputError("not a trace of ibvexp");
      if (file.start().find('\0') != std::string_view::npos)
        throw InputError("neither ELF file, source nor trace");
      report.kind = FileKind::source;
    }
    const std::string_view text = file.text();
    if (text.size() > largest_source) throw InputError("larger than 256 MB: not read as source");
    if (report.kind == FileKind::build_file) audit_build_file(text, report);
    else audit_source(job.path, text, report);
    if (job.named && text.starts_with("#!")) follow_script(job, text, report);
  }

  void follow_script(const Job &job, std::string_view text, FileReport &report) {
    const tool::Started started = tool::started_by(job.path, text);
    const bool relative = fs::path(job.path).is_relative();
    for (const fs::path &program : started.programs)
      add(relative ? program.lexically_proximate(fs::current_path()) : program, job.input, true);
    if (!report.uses.empty()) return;
    if (!started.unknown.empty())
      report.unjudged = "it is a script, and " + started.unknown + ": name the program";
    else if (started.programs.empty())
      report.unjudged =
          "it is a script, and the program that it starts cannot be determined: name it";
  }

  const Options &options_;
  std::mutex mutex_;
  std::condition_variable wake_, wake_main_;
  std::deque<Job> jobs_;
  std::set<std::string> seen_;
  std::size_t known_ = 0, done_ = 0;
  bool walking_ = true, finished_ = false;
  Report report_;
};

}  // namespace

bool FileReport::add(Use use) {
  if (uses.size() == most_uses) {
    cut();
    return false;
  }
  uses.push_back(std::move(use));
  return true;
}

void FileReport::cut() {
  unjudged = fmt::format("more than {} uses: the others are not listed", most_uses);
}

std::size_t Report::errors() const {
  return static_cast<std::size_t>(std::count_if(
      files.begin(), files.end(), [](const FileReport &f) { return !f.error.empty(); }));
}

std::size_t Report::unjudged() const {
  return static_cast<std::size_t>(std::count_if(
      files.begin(), files.end(), [](const FileReport &f) { return !f.unjudged.empty(); }));
}

Report run(const Options &options, const Progress &progress) {
  return Auditor(options).run(progress);
}

}  // namespace ibvexp::audit
