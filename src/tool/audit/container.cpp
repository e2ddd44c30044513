#include "tool/audit/container.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tool/audit/binary/elf_image.h"

namespace ibvexp::audit {
namespace {

// A package in a package in a package.
constexpr int deepest = 3;
// What is longer is no program.
constexpr std::size_t largest_member = std::size_t{1} << 30;

bool is_compressed_archive_name(std::string_view name) {
  if (name.find(".tar.") != name.npos) return true;
  for (const std::string_view end : {".tgz", ".tbz", ".tbz2", ".txz", ".tzst"})
    if (name.ends_with(end)) return true;
  return false;
}

struct Closer {
  void operator()(archive *a) const { archive_read_free(a); }
};
using Reader = std::unique_ptr<archive, Closer>;

// A file without a name, in memory.
class Memory {
 public:
  Memory() : fd_(memfd_create("member", MFD_CLOEXEC)) {
    if (fd_ < 0) throw InputError(std::strerror(errno));
  }
  ~Memory() { close(fd_); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  void append(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw InputError(std::strerror(errno));
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

bool is_tar(std::string_view text) {
  using namespace std::string_view_literals;
  constexpr std::size_t magic_at = 257;
  if (text.size() <= magic_at) return false;
  // A text may have the word there.
  const std::string_view magic = text.substr(magic_at);
  return magic.starts_with("ustar\0"sv) || magic.starts_with("ustar  \0"sv);
}

// Layers of container images have no names that say so.
bool holds_tar(std::string_view compressed) {
  const Reader reader(archive_read_new());
  if (reader == nullptr) return false;
  archive_read_support_filter_all(reader.get());
  archive_read_support_format_raw(reader.get());
  archive_entry *entry = nullptr;
  std::array<char, 512> block;
  if (archive_read_open_memory(reader.get(), compressed.data(), compressed.size()) != ARCHIVE_OK ||
      archive_read_next_header(reader.get(), &entry) != ARCHIVE_OK)
    return false;
  const ssize_t n = archive_read_data(reader.get(), block.data(), block.size());
  return n > 0 && is_tar({block.data(), static_cast<std::size_t>(n)});
}

[[noreturn]] void fail(archive *from) {
  const char *why = archive_error_string(from);
  throw InputError(std::string("damaged archive: ") + (why != nullptr ? why : "unknown reason"));
}

class Walk {
 public:
  Walk(const Wanted &wanted, const Member &fn) : wanted_(wanted), fn_(fn) {}

  void walk(const std::string &path, const std::string &prefix, int depth) {
    const Reader reader(archive_read_new());
    if (reader == nullptr) throw std::bad_alloc();
    archive_read_support_filter_all(reader.get());
    // Of packages and archives, not of disks and web pages.
    archive_read_support_format_ar(reader.get());
    archive_read_support_format_cpio(reader.get());
    archive_read_support_format_tar(reader.get());
    archive_read_support_format_zip(reader.get());
    archive_read_support_format_7zip(reader.get());
    if (archive_read_open_filename(reader.get(), path.c_str(), 1 << 16) != ARCHIVE_OK)
      fail(reader.get());
    for (;;) {
      archive_entry *entry = nullptr;
      const int got = archive_read_next_header(reader.get(), &entry);
      if (got == ARCHIVE_EOF) {
        if (depth == 0 && debian_ && !content_)
          throw InputError("damaged archive: a Debian package without its data.tar");
        return;
      }
      if (got != ARCHIVE_OK && got != ARCHIVE_WARN) fail(reader.get());
      // Static libraries have permissions only.
      if (const auto type = archive_entry_filetype(entry); type != AE_IFREG && type != 0) continue;
      const char *name = archive_entry_pathname(entry);
      take(reader.get(), name != nullptr ? name : "?", prefix, depth);
    }
  }

 private:
  void take(archive *from, std::string name, const std::string &prefix, int depth) {
    if (name.starts_with("./")) name.erase(0, 2);
    debian_ = debian_ || name == "debian-binary";
    content_ = content_ || name.starts_with("data.tar");
    // Java's: an archive has thousands, and to unpack them takes most of its time.
    if (name.ends_with(".class")) return;
    std::array<char, 1 << 16> block;
    ssize_t n = archive_read_data(from, block.data(), block.size());
    if (n < 0) fail(from);
    const std::string_view start(block.data(), static_cast<std::size_t>(n));
    const bool inner = looks_like_archive(name, start);
    if (inner && depth >= deepest)
      throw InputError(
          fmt::format("{}{} is an archive in {} others: not read", prefix, name, depth + 1));
    if (!inner && !start.starts_with("\177ELF") && !wanted_(name)) return;
    Memory memory;
    std::size_t length = 0;
    for (; n > 0; n = archive_read_data(from, block.data(), block.size())) {
      length += static_cast<std::size_t>(n);
      if (length > largest_member) throw InputError(name + " is larger than 1 GB");
      memory.append({block.data(), static_cast<std::size_t>(n)});
    }
    if (n < 0) fail(from);
    if (!inner) return fn_(prefix + name, memory.path());
    // What a Debian package consists of is of no interest by itself.
    const bool is_content = name.starts_with("data.tar") || name.starts_with("control.tar");
    walk(memory.path(), is_content ? prefix : prefix + name + "/", depth + 1);
  }

  const Wanted &wanted_;
  const Member &fn_;
  bool debian_ = false, content_ = false;
};

}  // namespace

// gzip, bzip2, xz, zstd.
bool is_compressed(std::string_view text) {
  return text.starts_with("\x1f\x8b") || text.starts_with("BZh") ||
         text.starts_with("\xfd\x37zXZ") || text.starts_with("\x28\xb5\x2f\xfd");
}

bool named_like_archive(std::string_view name) {
  for (const std::string_view end : {".deb", ".rpm", ".tar", ".zip", ".whl", ".jar"})
    if (name.ends_with(end)) return true;
  return is_compressed_archive_name(name);
}

bool looks_like_archive(std::string_view name, std::string_view text) {
  if (text.starts_with("!<arch>\n") || text.starts_with("PK\x03\x04") ||
      text.starts_with("\xed\xab\xee\xdb"))
    return true;
  if (is_tar(text)) return true;
  return is_compressed(text) && (is_compressed_archive_name(name) || holds_tar(text));
}

void for_each_member(const std::string &path, const Wanted &wanted, const Member &fn) {
  Walk(wanted, fn).walk(path, "", 0);
}

}  // namespace ibvexp::audit
