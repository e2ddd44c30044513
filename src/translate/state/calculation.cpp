#include "translate/state/calculation.h"

#include <csignal>
#include <new>
#include <utility>

#include "translate/convert/galois.h"

namespace ibvexp {

namespace {

[[gnu::tls_model("initial-exec")]] thread_local const Calculation *of_report = nullptr;

}  // namespace

const Calculation *Calculation::reporting() { return of_report; }

void Calculation::run(const CodeJob &job) const noexcept {
  using namespace translate;
  const auto size = static_cast<std::size_t>(job.blocks.block_size);
  const auto at = [&](int n) { return static_cast<std::size_t>(n); };
  const auto data = [&](int block) { return Cursor(job.blocks.data_blocks, at(block) * size); };
  const auto code = [&](int block) { return Cursor(job.blocks.code_blocks, at(block) * size); };
  const auto put = [&](Cursor to, Cursor from, std::uint8_t factor, bool adds) {
    multiply(to, from, size, products(factor, symbol_bits), adds);
  };
  const auto counts = [&](int of_data, int in_code) {
    return matrix[at(of_data) * at(code_blocks) + at(in_code)];
  };

  if (job.kind == CodeJob::Kind::encode) {
    for (int i = 0; i < code_blocks; ++i)
      for (int j = 0; j < data_blocks; ++j) put(code(i), data(j), counts(j, i), j != 0);
    return;
  }
  if (job.kind == CodeJob::Kind::update) {
    const auto wanted = static_cast<int>(job.code.count());
    for (int i = 0, to = 0; i < code_blocks; ++i) {
      if (!job.code[at(i)]) continue;
      put(code(to), data(to), 1, false);
      for (int j = 0, pair = wanted; j < data_blocks; ++j) {
        if (!job.data[at(j)]) continue;
        put(code(to), data(pair++), counts(j, i), true);
        put(code(to), data(pair++), counts(j, i), true);
      }
      ++to;
    }
    return;
  }
  // The first of those that are left make up each lost one.
  const auto any = [&](int block) {
    return block < data_blocks ? data(block) : code(block - data_blocks);
  };
  const std::size_t columns = job.data.count();
  for (int lost = 0, column = 0; lost < data_blocks + code_blocks; ++lost) {
    if (!job.data[at(lost)]) continue;
    for (int from = 0, row = 0; row < data_blocks; ++from) {
      if (job.data[at(from)]) continue;
      put(any(lost), any(from), job.matrix[at(row) * columns + at(column)], row != 0);
      ++row;
    }
    ++column;
  }
}

void Calculation::notice_fork() {
  const std::uint32_t now = fork_generation.load(std::memory_order_relaxed);
  if (generation_ == now) return;
  generation_ = now;
  has_thread_ = false;
  waiting_.clear();
  in_flight_ = 0;
}

bool Calculation::add(const CodeJob &job) {
  const MutexGuard guard(mutex_);
  notice_fork();
  if (in_flight_ == most_in_flight) return false;
  if (!polled && !has_thread_) start_thread();
  waiting_.push_back(job);
  ++in_flight_;
  changes_.fetch_add(1, std::memory_order_release);
  changes_.notify_one();
  return true;
}

bool Calculation::serve_one() {
  CodeJob job;
  {
    const MutexGuard guard(mutex_);
    notice_fork();
    if (waiting_.empty()) return false;
    job = waiting_.front();
    waiting_.pop_front();
  }
  run(job);
  job.report->status = IBV_EXP_EC_CALC_SUCCESS;
  {
    // The program's done function may start the next one.
    const MutexGuard guard(mutex_);
    --in_flight_;
  }
  const Calculation *const outer = std::exchange(of_report, this);
  job.report->done(job.report);
  of_report = outer;
  return true;
}

void *Calculation::serve(void *self) {
  auto &calculation = *static_cast<Calculation *>(self);
  for (;;) {
    const std::uint32_t seen = calculation.changes_.load(std::memory_order_acquire);
    if (calculation.serve_one()) continue;
    {
      const MutexGuard guard(calculation.mutex_);
      if (calculation.ends_ && calculation.waiting_.empty()) return nullptr;
    }
    calculation.changes_.wait(seen, std::memory_order_acquire);
  }
}

// Signals are for the program's own threads.
void Calculation::start_thread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, nullptr, &serve, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) throw std::bad_alloc();
  has_thread_ = true;
}

void Calculation::finish() noexcept {
  {
    const MutexGuard guard(mutex_);
    notice_fork();
    ends_ = true;
  }
  changes_.fetch_add(1, std::memory_order_release);
  changes_.notify_one();
  if (has_thread_) pthread_join(thread_, nullptr);
  has_thread_ = false;
}

}  // namespace ibvexp
