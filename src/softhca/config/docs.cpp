#include "config/docs.h"

#include "config/fault_names.h"
#include "config/schema.h"

namespace softhca {

namespace {

std::string code(const std::string &s) { return '`' + s + '`'; }

template <class T>
void rows(std::string &out, const Fields<T> &fields, const std::string &prefix) {
  for (const Field<T> &f : fields) {
    std::string standard = f.required           ? "required"
                           : f.standard.empty() ? code(f.derived)
                                                : code(f.standard);
    // Long lists stand in sections of their own.
    const bool is_list = f.key == "hide" || f.key == "match";
    for (const std::string &cell :
         {code(prefix + f.key), is_list ? "see below" : f.allowed, standard, f.help})
      out.append("| ").append(cell).append(" ");
    out += "|\n";
  }
}

constexpr const char *table_head =
    "| Key | Allowed | Default | Meaning |\n| --- | --- | --- | --- |\n";

template <class Names>
void name_list(std::string &out, const char *title, const Names &names) {
  out.append("\n").append(title).append(": ");
  bool first = true;
  for (const auto &name : names) {
    out += (first ? "" : ", ") + code(std::string(name));
    first = false;
  }
  out += ".\n";
}

}  // namespace

std::string config_reference() {
  std::string out = "| Variable | Sets | Meaning |\n| --- | --- | --- |\n";
  for (const Option &o : options()) {
    std::string sets;
    switch (o.scope) {
      case Option::Scope::file: sets = "the file itself"; break;
      case Option::Scope::top: sets = code(o.key); break;
      case Option::Scope::device: sets = code(std::string("devices[*].") + o.key); break;
      case Option::Scope::port: sets = code(std::string("devices[*].ports[*].") + o.key); break;
    }
    out += "| " + code(o.name) + " | " + sets + " | " + o.help + " |\n";
  }

  out += "\nThe file:\n\n";
  out += table_head;
  rows(out, top_fields(), "");
  rows(out, device_fields(), "devices[*].");
  rows(out, port_fields(), "devices[*].ports[*].");

  static constexpr const char *models[] = {"cx4", "cx5", "cx6"};
  out += "\nCapabilities that `hide` takes away:\n\n";
  out += "| Name | Capability | First model |\n| --- | --- | --- |\n";
  for (const CapabilityName &c : capability_names())
    out +=
        "| " + code(c.name) + " | " + c.help + " | " + models[static_cast<int>(c.first)] + " |\n";

  static constexpr struct {
    FaultRule::Kind kind;
    const char *title;
  } kinds[] = {
      {FaultRule::Kind::command, "command"},
      {FaultRule::Kind::wqe, "wqe"},
      {FaultRule::Kind::packet, "packet"},
      {FaultRule::Kind::event, "event"},
  };
  for (const auto &k : kinds) {
    out += std::string("\nFault rules of kind `") + k.title + "`:\n\n";
    out += table_head;
    rows(out, fault_fields(k.kind), "faults[*].");
  }
  out += "\n`match` is `*` (any; not for events) or one of:\n";
  name_list(out, "Commands", fault_command_names);
  name_list(out, "Work requests", fault_wqe_names);
  name_list(out, "Messages", fault_packet_names);
  name_list(out, "Events", fault_event_names);
  return out;
}

}  // namespace softhca
