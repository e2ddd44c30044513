// Files that the environment names, to be written.
#pragma once

namespace ibvexp {

// open() for one of them, made for all to read. A link of another user in a
// world-writable folder is not followed, since it would choose a file of ours: EACCES.
// Linux does the same with fs.protected_symlinks, which not every machine has on.
int open_output(const char *path, int flags) noexcept;

}  // namespace ibvexp
