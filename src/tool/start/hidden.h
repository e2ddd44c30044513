// What the launcher hides from the dynamic linker of what it starts.
#pragma once

#define HIDDEN_PRELOAD "LD_PRELOAD="
#define HIDDEN_LIBRARY_PATH "LD_LIBRARY_PATH="
#define HIDDEN_AUDIT "LD_AUDIT="
// Instead of the first L.
#define HIDDEN_LETTER '\1'
