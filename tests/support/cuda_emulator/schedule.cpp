// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <set>
#include <thread>
#include <utility>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/hardware.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/order.hpp"

namespace cuda_emulator {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto idle_time = 300ms;  // then work runs that nobody waits for
constexpr auto peers_time = 5ms;   // and this, where peers are waited for
Clock::duration timeout = 20s;

Stream* running = nullptr;
std::uint64_t moves = 0;  ///< ends of pieces of work, and progress of others
auto last_move = Clock::now();
auto& for_host = *new std::deque<Stream*>;

bool is_runnable(const Stream& s) {
  return !s.queue.empty() && !s.is_paused && !s.is_at_host && !holder_of(s) &&
         std::ranges::all_of(s.queue.front().after, [](const MarkPtr& m) { return m->done; });
}

/// Whose work must run before a stream's goes on.
struct Needed {
  std::vector<Stream*> can = {};  ///< run now
  bool by_peers_only = false;     ///< what has begun waits for peers, and for nothing else of this process
  std::set<const Stream*> seen = {};
};

void collect_needed(Stream& s, Needed& needed) {
  if (s.queue.empty() || !needed.seen.insert(&s).second) return;
  const QueuedWork& q = s.queue.front();
  if (is_runnable(s)) needed.can.push_back(&s);
  if (s.is_begun && q.work.peers) {
    needed.by_peers_only = true;
    for (Stream* peer : q.work.peers()) collect_needed(*peer, needed);
  }
  for (const MarkPtr& m : q.after) {
    if (!m->done) collect_needed(*m->stream, needed);
  }
}

Needed needed_streams(const Stream* needed_by) {
  Needed needed;
  if (needed_by && !order.is_eager()) collect_needed(const_cast<Stream&>(*needed_by), needed);
  return needed;
}

std::vector<Stream*> runnable_streams() {
  std::vector<Stream*> out;
  for (const auto& s : all_streams()) {
    if (is_runnable(*s)) out.push_back(s.get());
  }
  return out;
}

/// With a random order streams keep their priority for a while, so that some run far ahead.
Stream& chosen(const std::vector<Stream*>& can) {
  if (!order.is_random()) return *can.front();
  if (order.below(8) == 0) {
    for (Stream* s : can) s->priority = order.bits();
  }
  return **std::ranges::max_element(can, {}, [](const Stream* s) { return s->priority; });
}

/// On the stream's fiber.
void run_in_order(const QueuedWork& q) {
  for (const MarkPtr& m : q.after) acquire(&m->finished);
  acquire(&q.mark->submitted);
  if (q.work.run) q.work.run();
  release(&q.mark->finished);
}

void end_first(Stream& s) {
  const QueuedWork q = std::move(s.queue.front());
  s.queue.pop_front();
  s.is_begun = false;
  double begin = s.seconds;
  for (const MarkPtr& m : q.after) begin = std::max(begin, m->seconds);
  s.seconds = q.mark->seconds = begin + q.work.seconds;
  q.mark->done = true;
  note_progress();
  if (s.is_destroyed) destroy_stream(&s);
}

void begin_first(Stream& s) {
  if (std::exchange(s.is_begun, true)) return;
  s.fiber->begin([&q = s.queue.front()] { run_in_order(q); });
}

/// Nothing of ours can run: others shall. Longer each time.
void let_others_run(std::chrono::microseconds& pause) {
  const Unlocked unlocked;
  std::this_thread::sleep_for(pause);
  pause = std::min<std::chrono::microseconds>(2 * pause, 1ms);
}

void run_host_function(Stream& s) {
  begin_first(s);
  {
    const Unlocked unlocked;
    (void)s.fiber->resume();  // one of the host's does not pause
  }
  s.is_at_host = false;
  end_first(s);
}

[[noreturn]] void drive() {
  begin_host_functions();
  const Lock lock;
  for (std::uint64_t seen = 0, last = 0;;) {
    while (!for_host.empty()) {
      Stream& s = *for_host.front();
      for_host.pop_front();
      run_host_function(s);
    }
    const auto since = Clock::now();
    while (for_host.empty() && Clock::now() - since < idle_time) {
      const Unlocked unlocked;
      std::this_thread::sleep_for(1ms);
    }
    if (calls_so_far() == seen && moves == last) {
      while (for_host.empty() && run_one(nullptr) == Step::ran) {
      }
    }
    seen = calls_so_far();
    last = moves;
  }
}

}  // namespace

Step run_one(const Stream* needed_by) {
  auto [can, by_peers_only, seen] = needed_streams(needed_by);
  // A device does not wait for those who ask, and a peer may wait for work that nobody asks for: but late.
  const bool is_late = Clock::now() - last_move > peers_time;
  if (can.empty() && (!by_peers_only || is_late)) can = runnable_streams();
  if (can.empty()) {
    bool waited = false;
    for (const auto& s : all_streams()) waited |= std::exchange(s->is_paused, false) || s->is_at_host;
    return waited ? Step::waited : Step::none;
  }
  Stream& s = chosen(can);
  if (s.queue.front().work.is_host) {
    s.is_at_host = true;
    for_host.push_back(&s);
    return Step::ran;
  }
  begin_first(s);
  running = &s;
  bool has_ended = false;
  {
    const DeviceOpen open;
    has_ended = s.fiber->resume();
  }
  running = nullptr;
  if (has_ended) {
    end_first(s);
  } else {
    s.is_paused = true;
  }
  return Step::ran;
}

bool run_until(const std::function<bool()>& holds, const Stream* needed_by) {
  constexpr auto shortest = 20us;
  auto pause = shortest;
  auto since = Clock::now();
  for (std::uint64_t seen = moves; !holds() && !has_failed();) {
    const Step step = run_one(needed_by);
    if (step == Step::none && needed_by) return false;
    if (step != Step::ran) let_others_run(pause);
    hand_over();
    if (std::exchange(seen, moves) != moves) {
      since = Clock::now();
      pause = shortest;
    }
    if (Clock::now() - since > timeout) return false;
  }
  return true;
}

cudaError_t wait_for(MarkPtr mark) {
  if (is_host_function()) return result(cudaErrorNotPermitted);  // it would wait for itself
  if (!mark) return result(cudaSuccess);
  if (!run_until([&] { return mark->done; }, mark->stream)) {
    report_hang_of(*mark->stream);
    fail(cudaErrorLaunchTimeout);
  }
  acquire(&mark->finished);
  return result(cudaSuccess);
}

cudaError_t wait_for_all() {
  std::vector<MarkPtr> marks;
  for (const auto& s : all_streams()) {
    if (s->last) marks.push_back(s->last);
  }
  for (const MarkPtr& m : marks) {
    if (const cudaError_t e = wait_for(m); e != cudaSuccess) return e;
  }
  return result(cudaSuccess);
}

cudaError_t query(const MarkPtr& mark) {
  if (mark && !mark->done) (void)run_one(mark->stream);
  if (mark && !mark->done) return result(cudaErrorNotReady);
  if (mark) acquire(&mark->finished);
  return result(cudaSuccess);
}

void pause_work() {
  Stream* const s = running;
  s->fiber->leave();
}

void note_progress() {
  ++moves;
  last_move = Clock::now();
  for (const auto& other : all_streams()) other->is_paused = false;
}

FiberPool& kernel_fibers() {
  static auto& shared = *new FiberPool;
  if (!finds_races()) return shared;
  if (!running->threads) running->threads = std::make_unique<FiberPool>();
  return *running->threads;
}

void begin_driver() { std::thread(drive).detach(); }

void set_patience(double seconds) {
  const Lock lock;
  timeout = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace cuda_emulator
