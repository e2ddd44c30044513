// One include for both Catch2 generations: 2.x has a single header, 3.x an
// umbrella header. Tests include this file and nothing else of Catch2.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
