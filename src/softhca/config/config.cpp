#include "config/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string_view>

#include "config/identity.h"
#include "config/interface.h"
#include "config/schema.h"

namespace softhca {

namespace {

constexpr std::string_view env_prefix = "SOFTHCA_";

// What is wrong, thrown inside the parser only.
struct Refusal {
  std::string message;
};

template <class T>
std::string keys_of(const Fields<T> &fields, std::initializer_list<const char *> more) {
  std::string all;
  for (const Field<T> &f : fields) all += (all.empty() ? "" : ", ") + f.key;
  for (const char *key : more) all += (all.empty() ? "" : ", ") + std::string(key);
  return all;
}

[[noreturn]] void refuse(const std::string &path, const std::string &value,
                         const std::string &allowed) {
  throw Refusal{path + ": " + value + " is not allowed; allowed: " + allowed};
}

std::string shown(const Json &j) {
  std::string text = j.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string member_path(const std::string &path, const std::string &key) {
  return path.empty() ? key : path + "." + key;
}

template <class T>
const Field<T> *find(const Fields<T> &fields, const std::string &key) {
  for (const Field<T> &f : fields)
    if (f.key == key) return &f;
  return nullptr;
}

template <class T>
void read(const Field<T> &field, const Json &value, const std::string &path, T &out) {
  if (!field.read(value, out)) refuse(path, shown(value), field.allowed);
}

// Fills `out` from the defaults of the table and then from the document.
template <class T>
void read_object(const Fields<T> &fields, const Json &object, const std::string &path,
                 std::initializer_list<const char *> more, T &out) {
  for (const Field<T> &f : fields)
    if (!f.standard.empty()) read(f, Json::parse(f.standard), member_path(path, f.key), out);

  if (!object.is_object()) refuse(path.empty() ? "document" : path, shown(object), "an object");
  for (const auto &item : object.items()) {
    const std::string &key = item.key();
    if (const Field<T> *f = find(fields, key)) read(*f, item.value(), member_path(path, key), out);
    else if (std::none_of(more.begin(), more.end(), [&](const char *m) { return key == m; }))
      throw Refusal{member_path(path, key) + ": unknown key; allowed: " + keys_of(fields, more)};
  }
  for (const Field<T> &f : fields)
    if (f.required && !object.contains(f.key))
      throw Refusal{member_path(path, f.key) + ": missing; allowed: " + f.allowed};
}

// Calls `each(element, path)` for the elements of object[key], if it is there.
template <class F>
void for_elements(const Json &object, const char *key, const std::string &path, size_t least,
                  size_t most, F each) {
  const auto it = object.find(key);
  if (it == object.end()) return;
  const std::string here = member_path(path, key);
  const std::string allowed =
      "a list of " + std::to_string(least) + ".." + std::to_string(most) + " objects";
  if (!it->is_array()) refuse(here, shown(*it), allowed);
  if (it->size() < least || it->size() > most)
    refuse(here, std::to_string(it->size()) + " elements", allowed);
  size_t index = 0;
  for (const Json &element : *it) each(element, here + "[" + std::to_string(index++) + "]");
}

FaultRule read_fault(const Json &object, const std::string &path) {
  // The kind decides which other keys there are.
  if (!object.is_object()) refuse(path, shown(object), "an object");
  FaultRule rule;
  Json kind = Json::object();
  if (object.contains("kind")) kind["kind"] = object["kind"];
  read_object(fault_kind_fields(), kind, path, {}, rule);
  read_object(fault_fields(rule.kind), object, path, {"kind"}, rule);
  if (rule.kind == FaultRule::Kind::packet && rule.action == FaultRule::Action::delay &&
      rule.delay_us == 0)
    refuse(path + ".delay_us", "0", "1 or more with action \"delay\"");
  return rule;
}

DeviceConfig read_device(const Json &object, const std::string &path) {
  DeviceConfig device;
  read_object(device_fields(), object, path, {"ports"}, device);
  for_elements(object, "ports", path, 1, max_ports, [&](const Json &port, const std::string &at) {
    PortConfig p;
    p.lid = 0;  // not given
    read_object(port_fields(), port, at, {}, p);
    device.ports.push_back(p);
  });
  return device;
}

Json one_device() { return Json::array({Json::object()}); }
Json one_port() { return Json::array({Json::object()}); }

void read_document(const std::string &document, Config &out) {
  Json root = Json::object();
  if (document.find_first_not_of(" \t\r\n") != std::string::npos) {
    try {
      root = Json::parse(document, nullptr, true, true);
    } catch (const Json::exception &e) {
      // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
      const std::string what = e.what();
      const size_t start = what.find("] ");
      throw Refusal{start == std::string::npos ? what : what.substr(start + 2)};
    }
  }
  read_object(top_fields(), root, "", {"devices", "faults"}, out);
  if (!root.contains("devices")) root["devices"] = one_device();
  for_elements(root, "devices", "", 1, max_devices, [&](const Json &device, const std::string &at) {
    Json complete = device;
    if (complete.is_object() && !complete.contains("ports")) complete["ports"] = one_port();
    out.devices.push_back(read_device(complete, at));
  });
  for_elements(root, "faults", "", 0, 1024, [&](const Json &rule, const std::string &at) {
    out.faults.push_back(read_fault(rule, at));
  });
}

template <class T>
void read_variable(const Fields<T> &fields, const Option &option, const std::string &value,
                   T &out) {
  const Field<T> &field = *find(fields, option.key);
  // A variable has no quotes: the value is tried as text and as a number.
  if (field.read(Json(value), out)) return;
  const Json number = Json::parse(value, nullptr, false);
  if (number.is_number() && field.read(number, out)) return;
  refuse(option.name, shown(Json(value)), field.allowed);
}

void apply_variable(const std::string &entry, Config &out) {
  const size_t equals = entry.find('=');
  if (equals == std::string::npos || entry.compare(0, env_prefix.size(), env_prefix) != 0) return;
  const std::string name = entry.substr(0, equals);
  const std::string value = entry.substr(equals + 1);
  for (const Option &o : options()) {
    if (name != o.name) continue;
    if (value.empty()) return;  // as if it were not set
    switch (o.scope) {
      case Option::Scope::file: return;
      case Option::Scope::top: read_variable(top_fields(), o, value, out); return;
      case Option::Scope::device:
        for (DeviceConfig &d : out.devices) read_variable(device_fields(), o, value, d);
        return;
      case Option::Scope::port:
        for (DeviceConfig &d : out.devices)
          for (PortConfig &p : d.ports) read_variable(port_fields(), o, value, p);
        return;
    }
  }
  std::string known;
  for (const Option &o : options()) known += (known.empty() ? "" : ", ") + std::string(o.name);
  throw Refusal{name + ": unknown variable; allowed: " + known};
}

// Packets on a network of the kernel's come from an address of the kernel's: the
// port is who its interface is, and one port may not be another.
void take_interface(PortConfig &port, const std::string &path, std::set<std::string> &addresses) {
  port.link = LinkLayer::ethernet;
  Interface i;
  std::string error;
  if (!find_interface(port.netdev, port.ipv4, i, error))
    throw Refusal{path + (port.ipv4.empty() ? ".netdev: " : ".ipv4: ") + error};
  port.netdev = i.name;
  port.ipv4 = i.ipv4;
  port.mac = i.mac;
  port.active_mtu = std::min(port.active_mtu, i.roce_mtu());
  if (!addresses.insert(port.ipv4).second)
    refuse(path + ".ipv4", '"' + port.ipv4 + '"', "with wire udp an address of its own for a port");
}

// Fills in what derives from the host number and checks what must be unique.
void complete(Config &out) {
  std::set<std::string> addresses;
  std::set<std::string> names;
  std::set<u16> lids;
  for (u32 d = 0; d < out.devices.size(); ++d) {
    DeviceConfig &device = out.devices[d];
    const std::string path = "devices[" + std::to_string(d) + "]";
    if (device.name.empty()) device.name = "mlx5_" + std::to_string(d);
    if (!names.insert(device.name).second)
      refuse(path + ".name", '"' + device.name + '"', "a name no other device has");
    for (u32 p = 1; p <= device.ports.size(); ++p) {
      PortConfig &port = device.ports[p - 1];
      const std::string at = path + ".ports[" + std::to_string(p - 1) + "]";
      if (out.wire == Wire::udp) take_interface(port, at, addresses);
      if (port.lid == 0) port.lid = default_lid(out.host, d, p);
      if (port.ipv4.empty()) port.ipv4 = default_ipv4(out.host, d, p);
      if (port.link == LinkLayer::infiniband && !lids.insert(port.lid).second)
        refuse(at + ".lid", std::to_string(port.lid), "a LID no other port has");
    }
    if (device.node_guid == 0) device.node_guid = guid_behind(device.ports[0].mac);
    if (device.node_guid == 0) device.node_guid = default_node_guid(out.host, d);
  }
  u32 bytes = 1;
  while (bytes < out.ring_bytes) bytes <<= 1;
  out.ring_bytes = bytes;
}

// By system calls alone: all of this may run before the constructors of the
// C++ library. 0 or errno.
int read_whole(const char *path, std::string &text) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno;
  char piece[4096];
  ssize_t n;
  while ((n = ::read(fd, piece, sizeof piece)) > 0) text.append(piece, static_cast<size_t>(n));
  const int error = n < 0 ? errno : 0;
  close(fd);
  return error;
}

std::string read_file(const std::string &path) {
  // A pipe would be read by the first process alone, or wait for a writer.
  struct stat st;
  std::string text;
  int error = stat(path.c_str(), &st) == 0 ? 0 : errno;
  const bool regular = error != 0 || S_ISREG(st.st_mode);
  if (error == 0 && regular) error = read_whole(path.c_str(), text);
  if (error != 0 || !regular)
    throw Refusal{"SOFTHCA_CONFIG: \"" + path + "\" cannot be read (" +
                  (error != 0 ? strerror(error) : "not a regular file") +
                  "); allowed: a readable file"};
  return text;
}

void parse(const std::string &document, const std::vector<std::string> &env, Config &out) {
  Config c;
  read_document(document, c);
  for (const std::string &entry : env) apply_variable(entry, c);
  complete(c);
  out = c;
}

// Runs `body`, turning whatever it throws into a message.
template <class F>
bool guarded(std::string &error, F body) {
  try {
    body();
    return true;
  } catch (const Refusal &r) {
    error = r.message;
  } catch (const std::exception &e) {
    error = e.what();
  }
  return false;
}

// Before the C library's constructors have run there is no environ yet.
std::vector<std::string> environment() {
  std::vector<std::string> env;
  if (environ != nullptr) {
    for (char **e = environ; *e != nullptr; ++e) env.emplace_back(*e);
    return env;
  }
  std::string all;
  (void)read_whole("/proc/self/environ", all);
  for (size_t at = 0, end; (end = all.find('\0', at)) != std::string::npos; at = end + 1)
    env.push_back(all.substr(at, end - at));
  return env;
}

// The configuration decides what hardware there is: without a valid one
// nothing sensible can be emulated. _exit, because the program may be inside
// libibverbs with its locks held.
const Config *load() {
  const std::vector<std::string> env = environment();
  constexpr std::string_view file = "SOFTHCA_CONFIG=";
  std::string path;
  for (const std::string &entry : env)
    if (entry.starts_with(file)) path = entry.substr(file.size());
  std::string error;
  auto *loaded = new Config;
  const bool ok = guarded(error, [&] {
    const std::string document = path.empty() ? "" : read_file(path);
    parse(document, env, *loaded);
  });
  if (!ok) {
    const bool about_variable = error.compare(0, env_prefix.size(), env_prefix) == 0;
    const std::string where = !path.empty() && !about_variable ? path + ": " : "";
    // Not log_line(): the list of allowed values may be long.
    const std::string line = "softhca: invalid configuration: " + where + error + "\n";
    (void)!syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
    _exit(EX_CONFIG);
  }
  set_log_level(loaded->log);
  return loaded;
}

}  // namespace

const Config &config() {
  static const Config *const loaded = load();
  return *loaded;
}

bool parse_config(const std::string &document, const std::vector<std::string> &env, Config &out,
                  std::string &error) {
  return guarded(error, [&] { parse(document, env, out); });
}

}  // namespace softhca
