// A context with an operation table in front of it, laid out as the legacy
// lookup expects, and spies for its slots. No library and no device behind it.
#pragma once

#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>

// Where the table lies and how long it says it is. Slots are written at their
// distance from the end, so a table of another release is one of another size.
class FakeDevice {
 public:
  enum class Place { below, above };

  explicit FakeDevice(Place place = Place::below, size_t table_size = sizeof(verbs_context_exp))
      : memory_(std::make_unique<Memory>()) {
    auto *end = place == Place::below ? memory_->below.bytes + sizeof(memory_->below.bytes)
                                      : memory_->above.bytes + sizeof(memory_->above.bytes);
    table_end_ = end;
    pthread_mutex_init(&context()->mutex, nullptr);
    context()->abi_compat = __VERBS_ABI_IS_EXTENDED;
    words()->has_comp_mask = VERBS_CONTEXT_EXP;
    // Modulo 2^64 when the table lies above.
    words()->sz = sizeof(ibv_context) + (address(context()) - address(end));
    resize(table_size);
    current = this;
  }
  ~FakeDevice() { current = nullptr; }

  ibv_context *context() { return &memory_->verbs.context; }
  // In the layout of this header; for tables shorter than that it begins in
  // front of the fake's.
  verbs_context_exp *table() {
    return reinterpret_cast<verbs_context_exp *>(table_end_ - sizeof(verbs_context_exp));
  }
  void resize(size_t bytes) { table()->sz = bytes; }
  void detach() { words()->has_comp_mask = 0; }

  bool mutex_is_held() {
    if (pthread_mutex_trylock(&context()->mutex)) return true;
    pthread_mutex_unlock(&context()->mutex);
    return false;
  }

  static inline FakeDevice *current;

 private:
  static uintptr_t address(const void *p) { return reinterpret_cast<uintptr_t>(p); }
  ibvexp_context_words *words() { return reinterpret_cast<ibvexp_context_words *>(context()) - 1; }

  struct alignas(16) Room {
    char bytes[1024];
  };
  struct Memory {
    Room below;
    verbs_context verbs;
    Room above;
  };
  std::unique_ptr<Memory> memory_;
  char *table_end_;
};

// Spy<&verbs_context_exp::slot> stands in for one slot: notes the arguments and
// whether the context's mutex was held, answers `result`.
template <auto Slot>
struct Spy;

template <typename R, typename... A, R (*verbs_context_exp::*Slot)(A...)>
struct Spy<Slot> {
  using Result = std::conditional_t<std::is_void_v<R>, char, R>;
  using Arguments = std::tuple<A...>;

  static inline int calls;
  static inline bool mutex_held;
  static inline int sets_errno;
  static inline Result result;
  static inline Arguments arguments;

  static R slot(A... a) {
    ++calls;
    arguments = {a...};
    mutex_held = FakeDevice::current->mutex_is_held();
    if (sets_errno) errno = sets_errno;
    if constexpr (!std::is_void_v<R>) return result;
  }

  static void install(FakeDevice &device, Result answer = {}) {
    calls = 0;
    mutex_held = false;
    sets_errno = 0;
    result = answer;
    arguments = {};
    device.table()->*Slot = slot;
  }
  static void remove(FakeDevice &device) { device.table()->*Slot = nullptr; }

  // Bytes from the slot to the end of the table, the same in all releases.
  static size_t distance_from_end(FakeDevice &device) {
    auto *slot = reinterpret_cast<char *>(&(device.table()->*Slot));
    return reinterpret_cast<char *>(device.table() + 1) - slot;
  }
};

// Collects what is written to stderr while it lives.
class StderrCapture {
 public:
  StderrCapture() : saved_(stderr) { stderr = open_memstream(&text_, &size_); }
  ~StderrCapture() {
    fclose(stderr);
    stderr = saved_;
    free(text_);
  }
  std::string text() {
    fflush(stderr);
    return {text_, size_};
  }

 private:
  FILE *saved_;
  char *text_ = nullptr;
  size_t size_ = 0;
};
