// The device under the table's calls, and what they have made. A call names what it works on where
// there are several; one that makes an object in another's place destroys that one.
#pragma once

#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "table.h"

namespace truth {

inline constexpr std::size_t MEMORY_SIZE = 1 << 20;
// As in the legacy enum; rdma-core has another number for it.
inline constexpr int DC_INITIATOR = 32;

struct Rig {
  ibv_device *device = nullptr;
  ibv_context *context = nullptr;
  ibv_pd *pd = nullptr;
  ibv_cq *cq = nullptr;  // of queue pairs
  char *memory = nullptr;
  ibv_mr *mr = nullptr;  // all of it, with every right
  ibv_port_attr port{};
  int gid_index = -1;  // on Ethernet only
  ibv_gid gid{};

  ibv_exp_device_attr device_attr{};
  std::map<std::string, ibv_qp *> qps;
  std::map<std::string, ibv_cq *> cqs;
  std::map<std::string, ibv_mr *> mrs;
  ibv_srq *srq = nullptr;
  ibv_xrcd *xrcd = nullptr;
  ibv_mw *window = nullptr;
  ibv_mr *window_mr = nullptr;
  ibv_ah *ah = nullptr;
  ibv_exp_dct *dct = nullptr;
  ibv_exp_wq *wq = nullptr;        // the last one
  ibv_exp_wq *first_wq = nullptr;  // the one that tables and changes are made with
  ibv_exp_rwq_ind_table *ind_table = nullptr;
  ibv_exp_mkey_list_container *key_list = nullptr;
  ibv_exp_res_domain *domain = nullptr;
  void *family = nullptr;
  ibv_exp_flow *flow = nullptr;
  bool nothing_comes = false;  // no completion is on its way

  explicit Rig(const char *link);
  ~Rig();
  Rig(const Rig &) = delete;

  ibv_qp *qp(const Call &call) const {
    const auto found = qps.find(call.text("qp", "qp"));
    return found == qps.end() ? nullptr : found->second;
  }
  // A call may have made another one.
  ibv_cq *polled() const {
    const auto own = cqs.find("polled");
    return own != cqs.end() && own->second != nullptr ? own->second : cq;
  }
  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(memory) + offset;
  }
  void fill_path(ibv_ah_attr &path) const;
};

using Verb = std::function<void(Rig &, const Call &, Answer &)>;
using Verbs = std::map<std::string, Verb>;

void add_device_verbs(Verbs &verbs);
void add_qp_verbs(Verbs &verbs);
void add_memory_verbs(Verbs &verbs);
void add_queue_verbs(Verbs &verbs);
void add_transfer_verbs(Verbs &verbs);
void add_other_verbs(Verbs &verbs);

// The outcome of a verb that returns a number: `ok` or the number, by name where it has one.
inline void returned(Answer &answer, int result, int error) {
  answer.outcome = result == 0 ? "ok" : result == -1 ? "-1" : name_of(result);
  answer.members["errno"] = name_of(error);
}
template <class Function>
void number(Answer &answer, Function call) {
  errno = 0;
  const int result = call();
  returned(answer, result, errno);
}
// The outcome of a verb that returns a pointer.
template <class Function>
auto pointer(Answer &answer, Function call) {
  errno = 0;
  const auto made = call();
  const int error = errno;
  answer.outcome = made != nullptr ? "ok" : "null";
  if (made == nullptr) answer.members["errno"] = name_of(error);
  return made;
}

template <class T>
void set(Answer &answer, const std::string &name, T value) {
  answer.members[name] = std::to_string(value);
}
inline void set_two(Answer &answer, const std::string &name, unsigned first, unsigned second) {
  answer.members[name] = std::to_string(first) + '/' + std::to_string(second);
}
inline void say(Answer &answer, const std::string &name, const std::string &value) {
  answer.members[name] = value;
}

// A member that was filled with 0xee before the call.
template <class T>
bool is_kept(const T &value) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  for (const auto byte : bytes)
    if (byte != 0xee) return false;
  return true;
}
template <class T>
void set_or_kept(Answer &answer, const std::string &name, T value) {
  if (is_kept(value)) say(answer, name, "kept");
  else set(answer, name, value);
}
// Where only whether it was written is the same from run to run.
template <class T>
void whether_set(Answer &answer, const std::string &name, T value) {
  say(answer, name, is_kept(value) ? "kept" : value != T{} ? "set" : "0");
}

// first/second
inline std::pair<unsigned, unsigned> two(const Call &call, const std::string &name, unsigned first,
                                         unsigned second) {
  if (!call.has(name)) return {first, second};
  const auto text = call.text(name);
  return {static_cast<unsigned>(std::stoul(text)),
          static_cast<unsigned>(std::stoul(text.substr(text.find('/') + 1)))};
}

// One step of a queue pair to the next state, without one attribute or with more.
int step_to(Rig &rig, ibv_qp *qp, int state, int without, std::uint64_t more,
            const ibv_exp_qp_attr &extra);
// To RTS, connected to itself.
bool bring_up(Rig &rig, ibv_qp *qp);

}  // namespace truth
