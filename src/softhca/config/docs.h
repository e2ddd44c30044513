// The configuration reference as Markdown, made from the tables that the
// parser uses.
#pragma once

#include <string>

namespace softhca {

std::string config_reference();

}  // namespace softhca
