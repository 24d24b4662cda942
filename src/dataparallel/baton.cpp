#include "dataparallel/baton.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

/// Ends the threads of a run that has failed; never leaves `run`.
struct Abandoned {};

}  // namespace

Baton::Baton(int threads)
    : turn_(static_cast<std::size_t>(threads)),
      state_(turn_.size(), State::runnable),
      clock_(turn_.size(), 0.0),
      why_(turn_.size()) {}

void Baton::run(const std::function<void(int)>& body) {
  std::fill(state_.begin(), state_.end(), State::runnable);
  error_ = nullptr;
  holder_ = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < static_cast<int>(turn_.size()); ++r) {
    threads.emplace_back([this, r, &body] {
      try {
        {
          std::unique_lock lock(mutex_);
          wait_for_turn(lock, r);
        }
        body(r);
      } catch (const Abandoned&) {
        return;
      } catch (...) {
        std::unique_lock lock(mutex_);
        return fail(lock, std::current_exception());
      }
      const std::unique_lock lock(mutex_);
      state_[static_cast<std::size_t>(r)] = State::finished;
      pass();
    });
  }
  for (auto& t : threads) t.join();
  if (error_) std::rethrow_exception(error_);
}

void Baton::wait_for_turn(std::unique_lock<std::mutex>& lock, int rank) {
  turn_[static_cast<std::size_t>(rank)].wait(lock, [&] { return holder_ == rank || error_; });
  if (error_) throw Abandoned();
}

void Baton::fail(std::unique_lock<std::mutex>&, std::exception_ptr e) {
  if (!error_) error_ = std::move(e);
  for (auto& t : turn_) t.notify_all();
}

void Baton::pass() {
  int next = -1;
  for (int r = 0; r < static_cast<int>(state_.size()); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (state_[i] != State::runnable) continue;
    if (next < 0 || clock_[i] < clock_[static_cast<std::size_t>(next)]) next = r;
  }
  if (next >= 0) {
    holder_ = next;
    turn_[static_cast<std::size_t>(next)].notify_all();
    return;
  }
  std::string waiters;
  for (std::size_t r = 0; r < state_.size(); ++r) {
    if (state_[r] == State::blocked)
      waiters += fmt::format("{}rank {} waits for {}", waiters.empty() ? "" : "; ", r, why_[r]);
  }
  if (waiters.empty()) return;  // everybody has finished
  if (!error_) error_ = std::make_exception_ptr(std::logic_error("deadlock in virtual time: " + waiters));
  for (auto& t : turn_) t.notify_all();
}

void Baton::advance(int rank, double seconds) {
  std::unique_lock lock(mutex_);
  clock_[static_cast<std::size_t>(rank)] += seconds;
  pass();
  wait_for_turn(lock, rank);
}

void Baton::block(int rank, std::string why) {
  std::unique_lock lock(mutex_);
  state_[static_cast<std::size_t>(rank)] = State::blocked;
  why_[static_cast<std::size_t>(rank)] = std::move(why);
  pass();
  wait_for_turn(lock, rank);
}

void Baton::wake(int rank, double time) {
  const std::lock_guard lock(mutex_);
  const auto i = static_cast<std::size_t>(rank);
  state_[i] = State::runnable;
  clock_[i] = std::max(clock_[i], time);
}

}  // namespace gradmeter::dataparallel
