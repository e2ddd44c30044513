#include "tool/audit/binary/binary.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "tool/audit/binary/debug_info.h"
#include "tool/audit/binary/hints.h"
#include "tool/audit/binary/releases.h"
#include "tool/audit/binary/table_calls.h"
#include "tool/audit/subjects.h"
#include "tool/elf_head.h"
#include "tool/own_machine.h"

namespace ibvexp::audit {
namespace {

constexpr int table_size = static_cast<int>(slots.size() * sizeof(void *));

// The verb that a slot belongs to.
const Subject &subject_of_slot(int from_end) {
  // Padding since 4.0.
  if (from_end == 368 || from_end == 376) return *subject_of("ibv_exp_rereg_mr");
  if (from_end <= table_size)
    if (const Slot &slot = slots[static_cast<std::size_t>(table_size - from_end) / sizeof(void *)];
        slot.fill == Fill::function)
      return *subject_of(slot.entry);
  return unknown_name("slot " + std::to_string(from_end) + " bytes from the end");
}

std::string slot_name(int from_end) {
  if (from_end > table_size) return "unknown slot";
  return std::string(slots[static_cast<std::size_t>(table_size - from_end) / sizeof(void *)].name);
}

// Functions by address, where symbols are left.
class Names {
 public:
  explicit Names(const ElfImage &image) {
    for (const NamedAddress &s : image.symbols())
      if (s.function) functions_.emplace(s.address, s.name);
  }
  std::string at(std::uint64_t address) const {
    const auto it = functions_.find(address);
    return it == functions_.end() ? std::string() : it->second;
  }

 private:
  std::map<std::uint64_t, std::string> functions_;
};

class Audit {
 public:
  Audit(const ElfImage &image, FileReport &report) : image_(image), report_(report) {}

  void run() {
    imports();
    const bool known = image_.is_x86_64() || (image_.is_arm64() && !image_.is_object_file());
    if (!known) {
      const std::string why = std::string(image_.machine()) + " code is not analysed";
      report_.notes.push_back(why + ": only names were looked at");
      private_layouts(tool::names_verbs(image_));
      if (mentions_verbs() && report_.uses.empty()) report_.unjudged = why;
      return;
    }
    dispatch();
  }

 private:
  // Of machines whose tables of names are not read, the bytes are.
  bool mentions_verbs() const {
    using namespace std::string_view_literals;
    return std::ranges::any_of(image_.segments(), [](const Segment &segment) {
      const auto bytes = segment.bytes;
      return std::ranges::any_of(
          std::array{"libibverbs.so"sv, "libmlx5.so"sv, "librdmacm.so"sv, "\0ibv_"sv},
          [&](std::string_view name) {
            return memmem(bytes.data(), bytes.size(), name.data(), name.size()) != nullptr;
          });
    });
  }

  void dispatch() {
    const Dispatch found = find_dispatch(image_);
    std::set<std::pair<std::uint64_t, int>> called;
    for (const SlotSite &s : found.sites)
      if (s.called) called.emplace(s.function, s.from_end);
    bool old = false;
    for (const SlotSite &s : found.sites) {
      // The test for NULL in front of a call adds nothing.
      if (!s.called && !called.emplace(s.function, s.from_end).second) continue;
      old = old || s.old_lookup;
      add_site(s);
    }
    private_layouts(!found.sites.empty() || tool::names_verbs(image_));
    layouts(found);
    report_.header_release = header_release(found);
    const bool reads_private =
        std::any_of(report_.uses.begin(), report_.uses.end(),
                    [](const Use &u) { return u.severity == Severity::layout; });
    if (reads_private) report_.layout = layout_release(found);
    if (old) report_.add(make_use(old_lookup(), Evidence::slot_call));
    if (found.cut) report_.cut();
    if (!found.sites.empty())
      report_.notes.push_back(
          "flags and opcodes are a lower bound; code that is there need not be run");
  }

  void add_site(const SlotSite &s) {
    Use use =
        make_use(subject_of_slot(s.from_end), s.called ? Evidence::slot_call : Evidence::slot_load);
    use.address = s.address;
    use.detail = "slot " + slot_name(s.from_end);
    if (!s.called &&
        (use.subject->name == "ibv_exp_post_send" || use.subject->name == "ibv_exp_poll_cq"))
      use.detail += ", perhaps for ibv_exp_get_provider_func";
    locate(use, s.function);
    const Subject &verb = *use.subject;
    if (!report_.add(use)) return;
    for (const Hint &h : hints_of(verb.name, s.arguments)) {
      const Subject *subject = subject_of(h.constant);
      if (subject == nullptr) continue;
      Use hint = use;
      hint.subject = subject;
      hint.evidence = Evidence::hint;
      hint.severity = severity_of(*subject, Evidence::hint);
      hint.detail = std::string(h.field);
      report_.add(std::move(hint));
    }
  }

  // Function and line, as far as names are left.
  void locate(Use &use, std::uint64_t function) const {
    const std::string symbol = names().at(function);
    const Place place = debug().place_of(use.address);
    use.where = place.function.empty() ? symbol : place.function;
    if (!symbol.empty() && use.where == symbol)
      use.offset = static_cast<std::int64_t>(use.address - function);
    if (place.line <= 0) return;
    use.line = static_cast<std::uint32_t>(place.line);
    use.source = place.file;
  }

  // Names that only the legacy libraries have. Those which today's have as well
  // are no sign of anything.
  void imports() {
    bool provider = false;
    for (const std::string &name : image_.imports()) {
      provider = provider || name == "verbs_register_driver" || name.starts_with("ibv_exp_cmd_") ||
                 name.starts_with("ibv_cmd_exp_");
      const Entry *e = find_entry(name);
      const bool legacy = is_experimental(name) || name == "rdma_create_qp_exp" ||
                          (e != nullptr && e->family == Family::xrc);
      if (!legacy || name.starts_with("ibv_exp_cmd_")) continue;
      const Subject *s = subject_of(name);
      if (!report_.add(make_use(s != nullptr ? *s : unknown_name(name), Evidence::import))) break;
    }
    if (provider) report_.add(make_use(provider_plugin(), Evidence::import));
  }

  // What is left by name: debug information, symbols, and names of source files,
  // which assertions and logs keep.
  void private_layouts(bool of_verbs) {
    constexpr std::string_view own_functions = "ibv_mlx5_exp_get_";
    if (image_.has_symbol_with(own_functions))
      for (const NamedAddress &s : image_.symbols())
        if (s.name.starts_with(own_functions)) {
          add_private(Evidence::debug_info, "has " + std::string(s.name));
          break;
        }
    if (!of_verbs) return;
    if (debug().present() && debug().source_files().contains("mlx5_hw.h"))
      add_private(Evidence::debug_info, "mlx5_hw.h contributed to it");
    else if (!report_.uses.empty() && debug().present() &&
             debug().has_structure({"mlx5_cq", "mlx5_qp", "mlx5_srq", "mlx5_rwq"}))
      add_private(Evidence::debug_info, "has a copy of libmlx5's structures");
    for (const std::string_view name : {"mlx5_hw.h", "ib_mlx5_hw.c", "ib_mlx5_hw.cpp"})
      if (const std::string path = source_name(name); !path.empty())
        add_private(Evidence::source_name, "compiled from " + path);
  }

  void add_private(Evidence evidence, std::string detail) {
    Use use = make_use(private_layout(), evidence);
    use.detail = std::move(detail);
    report_.add(std::move(use));
  }

  // A string of constant data that is the path of that file, empty without.
  std::string source_name(std::string_view file) const {
    for (const Segment &s : image_.segments()) {
      if (s.writable) continue;
      const std::string_view bytes(reinterpret_cast<const char *>(s.bytes.data()), s.bytes.size());
      const std::string end = std::string(file) + '\0';
      for (std::size_t at = 0; (at = bytes.find(end, at)) != std::string_view::npos; ++at) {
        constexpr std::size_t longest = 512;
        std::size_t start = at;
        while (start > 0 && at - start < longest && bytes[start - 1] > ' ' &&
               bytes[start - 1] < '\x7f')
          --start;
        const bool whole = start == 0 || bytes[start - 1] == '\0';
        if (whole && (start == at || bytes[at - 1] == '/'))
          return std::string(bytes.substr(start, at + file.size() - start));
      }
    }
    return {};
  }

  void layouts(const Dispatch &found) {
    constexpr std::string_view names[] = {"queue pair", "completion queue", "SRQ", "work queue"};
    for (const LayoutSite &s : found.layouts) {
      Use use = make_use(private_layout(), Evidence::layout);
      use.address = s.address;
      locate(use, s.function);
      std::string members;
      for (const std::string_view m : s.members)
        members += (members.empty() ? "" : ", ") + std::string(m);
      const std::string_view release = s.release.name();
      use.detail = std::string(names[static_cast<std::size_t>(s.object)]) + ": " + members +
                   (release.empty() ? "" : ", as " + std::string(release) + " has them");
      report_.add(std::move(use));
    }
  }

  // Read when first needed: most binaries have no use to locate.
  const Names &names() const {
    if (!names_) names_.emplace(image_);
    return *names_;
  }
  const DebugInfo &debug() const {
    if (!debug_) debug_.emplace(image_);
    return *debug_;
  }

  const ElfImage &image_;
  FileReport &report_;
  mutable std::optional<Names> names_;
  mutable std::optional<DebugInfo> debug_;
};

// There is a library for either machine, but only one beside this program.
std::string obstacle_of_machine(const ElfImage &image) {
  const std::string machine(image.machine());
  if (!image.is_x86_64() && !image.is_arm64())
    return "it is " + machine + " code: the library is for x86-64 and aarch64";
  if (machine == tool::own_machine.name) return {};
  return "it is " + machine + " code, and the library here is for " + tool::own_machine.name +
         ": it needs one that is built for " + machine;
}

// Why nothing can be preloaded, empty if something can.
std::string obstacle(const std::string &path, const ElfImage &image) {
  if (std::string machine = obstacle_of_machine(image); !machine.empty()) return machine;
  if (image.is_static())
    return "it is statically linked: nothing can be preloaded into it; link it dynamically";
  if (image.is_program() && tool::has_own_libibverbs(tool::ElfHead(path)))
    return "it contains its own copy of libibverbs (linked statically), which a preloaded library "
           "cannot replace; link it with the shared libibverbs";
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return {};
  const char *gains = (st.st_mode & S_ISUID) != 0   ? "is set-user-ID"
                      : (st.st_mode & S_ISGID) != 0 ? "is set-group-ID"
                      : getxattr(path.c_str(), "security.capability", nullptr, 0) > 0
                          ? "has file capabilities"
                          : nullptr;
  if (gains == nullptr) return {};
  return std::string("it ") + gains +
         ": the dynamic linker preloads nothing into such programs; run a copy without it";
}

}  // namespace

void audit_binary(const std::string &path, FileReport &report) {
  const ElfImage image(path);
  report.libraries = image.needed();
  report.program = image.is_program();
  report.cannot_run = obstacle(path, image);
  Audit(image, report).run();
}

}  // namespace ibvexp::audit
