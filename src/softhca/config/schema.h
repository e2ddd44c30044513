// The keys of a configuration file as data: what the parser accepts, what an
// error message says is allowed, where a default comes from and what the
// documentation prints are one table.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config.h"

namespace softhca {

using Json = nlohmann::json;

template <class T>
struct Field {
  std::string key;
  std::string allowed;   // for people
  std::string standard;  // default as JSON; empty: derived, or none
  std::string derived;   // how it is derived when `standard` is empty
  bool required = false;
  std::string help;
  std::function<bool(const Json &, T &)> read;  // false: value not allowed
};

template <class T>
using Fields = std::vector<Field<T>>;

// Without "devices" and "faults", which hold the objects described below.
const Fields<Config> &top_fields();
const Fields<DeviceConfig> &device_fields();  // without "ports"
const Fields<PortConfig> &port_fields();
// The keys of all fault rules, and of the rules of one kind.
const Fields<FaultRule> &fault_kind_fields();  // "kind" alone
const Fields<FaultRule> &fault_fields(FaultRule::Kind);

struct CapabilityName {
  const char *name;
  Model first;
  const char *help;
};
const std::vector<CapabilityName> &capability_names();

struct Option {
  enum class Scope { file, top, device, port } scope;
  const char *name;
  const char *key;
  const char *help;
};
const std::vector<Option> &options();

}  // namespace softhca
