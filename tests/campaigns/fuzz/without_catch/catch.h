// For headers of tests that are used outside of them.
#pragma once

#include "../bytes.h"

#define REQUIRE(condition) PROMISE(condition)
#define REQUIRE_FALSE(condition) PROMISE(!(condition))
#define CHECK(condition) PROMISE(condition)
