// Interfaces, resource domains, environment, flow rules, and which functions there are.
#include "rig.h"

namespace truth {
namespace {

void query_intf(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_query_intf_params params{};
  params.intf_scope = static_cast<ibv_exp_intf_scope>(call.integer("scope"));
  params.vendor_guid = call.number("vendor");
  params.intf = static_cast<ibv_exp_intf_family>(call.integer("family"));
  params.intf_version = static_cast<std::uint32_t>(call.number("version", 1));
  params.flags = static_cast<std::uint32_t>(call.number("flags"));
  params.family_flags = static_cast<std::uint32_t>(call.number("family_flags"));
  params.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  const auto of = call.text("of", "cq");
  if (of == "cq") params.obj = rig.cq;
  else if (of != "null") params.obj = rig.qps[of];
  auto status = static_cast<ibv_exp_query_intf_status>(99);
  rig.family = pointer(answer, [&] { return ibv_exp_query_intf(rig.context, &params, &status); });
  set(answer, "status", static_cast<int>(status));
}

// Which functions of the interface are there, in the order of the structure.
void functions(Rig &rig, const Call &call, Answer &answer) {
  if (rig.family == nullptr) return;
  const auto *all = static_cast<void *const *>(rig.family);
  std::string there;
  for (int i = 0; i < call.integer("count"); ++i) there += all[i] != nullptr ? '1' : '0';
  answer.outcome = "ok";
  say(answer, "there", 'x' + there);
}

void release_intf(Rig &rig, const Call &call, Answer &answer) {
  if (rig.family == nullptr && !call.has("mask")) return;
  ibv_exp_release_intf_params params{};
  params.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] { return ibv_exp_release_intf(rig.context, rig.family, &params); });
  rig.family = nullptr;
}

ibv_exp_res_domain_init_attr domain_attr(const Call &call) {
  ibv_exp_res_domain_init_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.thread_model = static_cast<ibv_exp_thread_model>(call.integer("thread"));
  attr.msg_model = static_cast<ibv_exp_msg_model>(call.integer("message"));
  return attr;
}

void create_res_domain(Rig &rig, const Call &call, Answer &answer) {
  auto attr = domain_attr(call);
  rig.domain = pointer(answer, [&] { return ibv_exp_create_res_domain(rig.context, &attr); });
}

void destroy_res_domain(Rig &rig, const Call &call, Answer &answer) {
  if (rig.domain == nullptr) return;
  ibv_exp_destroy_res_domain_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  number(answer, [&] {
    return ibv_exp_destroy_res_domain(rig.context, rig.domain, call.has("mask") ? &attr : nullptr);
  });
  if (answer.outcome == "ok") rig.domain = nullptr;
}

void create_res_domains(Rig &rig, const Call &call, Answer &answer) {
  auto attr = domain_attr(call);
  int made = 0;
  while (made < 3000 &&
         pointer(answer, [&] { return ibv_exp_create_res_domain(rig.context, &attr); }) != nullptr)
    ++made;
  set(answer, "made", made);
}

void get_provider_func(Rig &rig, const Call &call, Answer &answer) {
  pointer(answer, [&] {
    return reinterpret_cast<void *>(ibv_exp_get_provider_func(
        rig.context, static_cast<ibv_exp_func_name>(call.integer("name"))));
  });
}

void table(Rig &rig, const Call &, Answer &answer) {
  const verbs_context_exp *found = verbs_get_exp_ctx(rig.context);
  answer.outcome = found != nullptr ? "ok" : "none";
  if (found != nullptr) set(answer, "size", static_cast<std::uint64_t>(found->sz));
}

void slot(Rig &rig, const Call &call, Answer &answer) {
  const auto wanted = call.text("name");
  const verbs_context_exp *found = verbs_get_exp_ctx(rig.context);
#define SLOT(name) \
  if (wanted == #name) answer.outcome = found->name != nullptr ? "there" : "none";
#include "slots_asked.def"
#undef SLOT
}

void poll_dc_info(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_dc_info_ent entries[2];
  number(answer, [&] {
    return ibv_exp_poll_dc_info(rig.context, entries, call.integer("entries"),
                                call.integer("port"));
  });
}

void alloc_ec_calc(Rig &rig, const Call &call, Answer &answer) {
  static std::uint8_t matrix[8] = {1, 1, 1, 1, 1, 2, 3, 4};
  ibv_exp_ec_calc_init_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  attr.k = 4;
  attr.m = 2;
  attr.w = call.integer("w", 4);
  attr.max_inflight_calcs = 1;
  attr.max_data_sge = 4;
  attr.max_code_sge = 2;
  attr.encode_matrix = matrix;
  attr.polling = 1;
  if (ibv_exp_ec_calc *calc = pointer(answer, [&] { return ibv_exp_alloc_ec_calc(rig.pd, &attr); }))
    ibv_exp_dealloc_ec_calc(calc);
}

void open_device(Rig &rig, const Call &call, Answer &answer) {
  ibv_exp_open_device_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(call.number("mask"));
  char peer[] = "x";
  attr.peer_info.peer_name = peer;
  if (ibv_context *context =
          pointer(answer, [&] { return ibv_exp_open_device(rig.device, &attr); }))
    ibv_close_device(context);
}

void exp_setenv(Rig &rig, const Call &call, Answer &answer) {
  auto name = call.text("name");
  if (name == "empty") name.clear();
  if (name == "equals") name = "A=B";
  number(answer, [&] {
    return ibv_exp_setenv(rig.context, name.c_str(), call.text("value").c_str(),
                          call.integer("overwrite"));
  });
}

void exp_use_priv_env(Rig &rig, const Call &, Answer &answer) {
  number(answer, [&] { return ibv_exp_use_priv_env(rig.context); });
}

void environment(Rig &, const Call &call, Answer &answer) {
  answer.outcome = std::getenv(call.text("name").c_str()) != nullptr ? "set" : "unset";
}

void create_flow(Rig &rig, const Call &call, Answer &answer) {
  if (rig.qp(call) == nullptr) return;
  struct {
    ibv_exp_flow_attr attr;
    ibv_exp_flow_spec_eth spec;
  } rule{};
  rule.attr.type = static_cast<ibv_exp_flow_attr_type>(call.integer("type"));
  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = 1;
  rule.attr.port = static_cast<std::uint8_t>(call.number("port", 1));
  rule.spec.type = IBV_EXP_FLOW_SPEC_ETH;
  rule.spec.size = sizeof(rule.spec);
  rig.flow = pointer(answer, [&] { return ibv_exp_create_flow(rig.qp(call), &rule.attr); });
}

void destroy_flow(Rig &rig, const Call &, Answer &answer) {
  if (rig.flow == nullptr) return;
  number(answer, [&] { return ibv_exp_destroy_flow(rig.flow); });
  rig.flow = nullptr;
}

}  // namespace

void add_other_verbs(Verbs &verbs) {
  verbs["query_intf"] = query_intf;
  verbs["functions"] = functions;
  verbs["release_intf"] = release_intf;
  verbs["create_res_domain"] = create_res_domain;
  verbs["create_res_domains"] = create_res_domains;
  verbs["destroy_res_domain"] = destroy_res_domain;
  verbs["get_provider_func"] = get_provider_func;
  verbs["table"] = table;
  verbs["slot"] = slot;
  verbs["poll_dc_info"] = poll_dc_info;
  verbs["alloc_ec_calc"] = alloc_ec_calc;
  verbs["open_device"] = open_device;
  verbs["setenv"] = exp_setenv;
  verbs["use_priv_env"] = exp_use_priv_env;
  verbs["environment"] = environment;
  verbs["create_flow"] = create_flow;
  verbs["destroy_flow"] = destroy_flow;
}

}  // namespace truth
