// Memory for what the library keeps about objects of one kind in one context.
// It stays until the pool goes; a state that was given back is the next one
// handed out, so that a poller that races with a destruction reads an old value,
// not freed memory. Serialised by the owner.
#pragma once

#include <deque>
#include <vector>

namespace ibvexp {

// State::retire() makes a state unfindable.
template <class State>
class StatePool {
 public:
  State &take() {
    if (free_.empty()) {
      // Room for its return first: giving back may not throw.
      if (free_.capacity() <= all_.size()) free_.reserve(2 * all_.size() + 8);
      return all_.emplace_back();
    }
    State &state = *free_.back();
    free_.pop_back();
    return state;
  }

  void give_back(State &state) noexcept {
    state.retire();
    free_.push_back(&state);
  }

 private:
  std::deque<State> all_;  // addresses stay
  std::vector<State *> free_;
};

}  // namespace ibvexp
