// What ibv_exp_alloc_ec_calc() returns: a matrix, and the calculations under way with it.
#pragma once

#include <infiniband/verbs_exp.h>
#include <pthread.h>

#include <atomic>
#include <bitset>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/lock.h"

namespace ibvexp {

// By number: the largest field has a symbol for as many blocks, of data and of code.
using BlockMap = std::bitset<256>;

struct CodeJob {
  enum class Kind : std::uint8_t { encode, decode, update } kind;
  ibv_exp_ec_mem blocks;
  BlockMap data;               // decode: the lost blocks of both kinds; update: the changed ones
  BlockMap code;               // update: those to bring up to date
  const std::uint8_t *matrix;  // decode: the program's
  ibv_exp_ec_comp *report;     // null: the caller waits
};

struct Calculation {
  Calculation() = default;
  Calculation(const Calculation &) = delete;
  Calculation &operator=(const Calculation &) = delete;
  ~Calculation() { finish(); }

  ibv_exp_ec_calc handle{};  // first
  int data_blocks = 0, code_blocks = 0;
  int symbol_bits = 0;
  int most_data_pieces = 0, most_code_pieces = 0;
  std::uint32_t most_in_flight = 1;
  bool polled = false;               // reports wait for ibv_exp_ec_poll()
  std::vector<std::uint8_t> matrix;  // data block j counts in code block i by matrix[j * m + i]

  // Calculates in the caller's thread. Any thread, also several at a time.
  void run(const CodeJob &job) const noexcept;

  // Leaves a job to the thread of this object, or to serve_one() if it is polled. What the job points
  // to stays the program's until its report. Throws bad_alloc. False: as many as may be are under way.
  bool add(const CodeJob &job);
  // Calculates the oldest and reports it, unless there is none.
  bool serve_one();
  // Ends the thread, which calculates what waits first.
  void finish() noexcept;
  // The calculation in whose done function the calling thread is; null: in none.
  static const Calculation *reporting();

 private:
  // A child has neither its parent's thread nor its jobs. With the mutex taken.
  void notice_fork();
  static void *serve(void *self);
  void start_thread();

  Mutex mutex_;
  std::deque<CodeJob> waiting_;
  std::uint32_t in_flight_ = 0;
  bool ends_ = false;
  std::atomic<std::uint32_t> changes_{0};  // the thread waits for the next
  bool has_thread_ = false;
  std::uint32_t generation_ = fork_generation.load(std::memory_order_relaxed);
  pthread_t thread_{};
};

}  // namespace ibvexp
