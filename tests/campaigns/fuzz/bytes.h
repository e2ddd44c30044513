// The input of a fuzz target, taken from the front; zeros when it is used up.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

class Bytes {
 public:
  Bytes(const std::uint8_t *data, std::size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  template <class T>
  T take() {
    T value{};
    take_into(&value, sizeof(value));
    return value;
  }
  void take_into(void *to, std::size_t size) {
    const std::size_t part = size < left() ? size : left();
    std::memset(to, 0, size);
    if (part != 0) std::memcpy(to, at_, part);
    at_ += part;
  }
  // 0..limit-1
  std::uint32_t below(std::uint32_t limit) { return take<std::uint16_t>() % limit; }

 private:
  const std::uint8_t *at_, *end_;
};

// What a target promises.
#define PROMISE(condition)                                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (false)
