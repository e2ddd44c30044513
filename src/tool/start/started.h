// The list of programs that a program of `ibvexp run --fail-on-refused` starts: a file with
// the tally's name and this ending. An entry is a letter and a path, ended by a null.
#pragma once

#define STARTED_PROGRAMS ".programs"

#define STARTED_PRELOADED 'K'  // the environment preloads the library
#define STARTED_WITHOUT 'L'    // it does not
