// Archives and packages: .a, .deb, .rpm, .tar (compressed or not), .zip, and those
// inside of others.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ibvexp::audit {

// A package or archive by its name. Not .a: linker scripts have it, too.
bool named_like_archive(std::string_view name);
// By its first bytes, and for a compressed file by its name: a compressed file need
// be no archive.
bool looks_like_archive(std::string_view name, std::string_view text);
// Whether a file is compressed, by its first bytes. looks_like_archive() needs all of such a file.
bool is_compressed(std::string_view start);

// Calls fn for each regular member that wanted() names or that is an ELF file, from
// one thread, in the archive's order. name is the path inside; file one that can be
// opened until fn returns. Members of an archive inside are members.
// Throws InputError for what cannot be read to its end.
using Member = std::function<void(const std::string &name, const std::string &file)>;
using Wanted = std::function<bool(std::string_view name)>;
void for_each_member(const std::string &path, const Wanted &wanted, const Member &fn);

}  // namespace ibvexp::audit
