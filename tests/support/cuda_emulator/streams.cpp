#include "support/cuda_emulator/streams.hpp"

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <set>
#include <thread>
#include <utility>

#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/grid.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/order.hpp"

namespace cuda_emulator {

Order order;

namespace {

struct Queued {
  StreamWork work;
  std::vector<MarkPtr> after;
  MarkPtr mark;
};

}  // namespace

struct Stream {
  bool waits_for_default = true;
  std::deque<Queued> queue = {};
  MarkPtr last = {};
  double seconds = 0;
  std::uint64_t priority = 0;  ///< among those that can run, with a random order
  bool is_destroyed = false;
  std::thread::id maker = std::this_thread::get_id();
};

namespace {

std::vector<std::unique_ptr<Stream>> streams;  ///< never erased: marks refer to them. The first is the default stream
std::vector<std::string> reports;
cudaError_t sticky = cudaSuccess;
thread_local cudaError_t last_error = cudaSuccess;

using Clock = std::chrono::steady_clock;
Clock::time_point last_progress = Clock::now();
double patience_s = 10;

Stream& default_stream() {
  if (streams.empty()) {
    begin_memory();
    streams.push_back(std::make_unique<Stream>());
  }
  return *streams.front();
}

bool is_runnable(const Stream& s) {
  return !s.queue.empty() && std::ranges::all_of(s.queue.front().after, [](const MarkPtr& m) { return m->done; });
}

/// Streams whose work must run before this one's goes on, and can.
void collect_needed(Stream& s, std::set<Stream*>& seen, std::vector<Stream*>& out) {
  if (s.queue.empty() || !seen.insert(&s).second) return;
  if (is_runnable(s)) return out.push_back(&s);
  for (const MarkPtr& m : s.queue.front().after) {
    if (!m->done) collect_needed(*m->stream, seen, out);
  }
}

std::vector<Stream*> candidates(const Stream* needed_by) {
  std::vector<Stream*> out;
  if (needed_by && !order.is_eager()) {
    std::set<Stream*> seen;
    collect_needed(const_cast<Stream&>(*needed_by), seen, out);
  } else {
    for (const auto& s : streams) {
      if (is_runnable(*s)) out.push_back(s.get());
    }
  }
  return out;
}

thread_local bool in_host_function = false;

void run_now(const StreamWork& work) {
  if (work.is_host) {
    in_host_function = true;
    work.run();
    in_host_function = false;
  } else {
    const DeviceOpen open;
    work.run();
  }
}

/// With a random order streams keep their priority for a while, so that some run far ahead.
Stream& chosen(const std::vector<Stream*>& can) {
  if (!order.is_random()) return *can.front();
  if (order.below(8) == 0) {
    for (Stream* s : can) s->priority = order.bits();
  }
  return **std::ranges::max_element(can, {}, [](const Stream* s) { return s->priority; });
}

}  // namespace

std::recursive_mutex& runtime_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

namespace {

void finish(Stream& s, const Queued& q) {
  double begin = s.seconds;
  for (const MarkPtr& m : q.after) begin = std::max(begin, m->seconds);
  s.seconds = q.mark->seconds = begin + q.work.seconds;
  q.mark->done = true;
}

/// False: the stream's first work waits for a peer.
bool moves_on(Stream& s) {
  if (const auto& advance = s.queue.front().work.advance) {
    const Progress p = advance();
    if (p != Progress::done) return p == Progress::some;
  }
  const Queued q = std::move(s.queue.front());
  s.queue.pop_front();
  if (q.work.run) run_now(q.work);
  finish(s, q);
  return true;
}

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

/// Can nothing go on, except that a peer comes?
bool waits_for_peer(const Stream& stream) {
  std::set<Stream*> seen;
  std::vector<Stream*> can;
  collect_needed(const_cast<Stream&>(stream), seen, can);
  return !can.empty();
}

}  // namespace

bool run_one(const Stream* needed_by) {
  std::vector<Stream*> can = candidates(needed_by);
  while (!can.empty()) {
    Stream& s = chosen(can);
    if (moves_on(s)) {
      last_progress = Clock::now();
      return true;
    }
    std::erase(can, &s);
  }
  return false;
}

bool run_needed(const Stream& stream) {
  constexpr double idle_s = 5e-3;
  return run_one(&stream) || (seconds_since(last_progress) > idle_s && run_one(nullptr));
}

bool has_work_of_this_thread() {
  return std::ranges::any_of(streams, [](const auto& s) {
    return !s->queue.empty() && (s == streams.front() || s->maker == std::this_thread::get_id());
  });
}

void pause() {
  runtime_mutex().unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  runtime_mutex().lock();
}

double patience() { return patience_s; }
void set_patience(double seconds) {
  const std::lock_guard lock(runtime_mutex());
  patience_s = seconds;
}

Stream* make_stream(bool waits_for_default) {
  (void)default_stream();
  Stream& s = *streams.emplace_back(std::make_unique<Stream>());
  s.waits_for_default = waits_for_default;
  s.priority = order.bits();
  return &s;
}

void destroy_stream(Stream* s) { s->is_destroyed = true; }  // its work goes on

Stream* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &default_stream();
  for (const auto& s : streams) {
    if (reinterpret_cast<cudaStream_t>(s.get()) == handle && !s->is_destroyed) return s.get();
  }
  report("a stream that was destroyed, or never made, is used");
  return nullptr;
}

MarkPtr push(Stream& s, StreamWork work, std::vector<MarkPtr> after) {
  // The legacy default stream and those that do not opt out wait for each other.
  for (const auto& other : streams) {
    const bool is_default = other == streams.front() || &s == streams.front().get();
    if (other.get() == &s || !is_default || !s.waits_for_default || !other->waits_for_default) continue;
    if (other->last && !other->last->done) after.push_back(other->last);
  }
  auto mark = std::make_shared<Mark>(Mark{.stream = &s});
  s.last = mark;
  s.queue.push_back({.work = std::move(work), .after = std::move(after), .mark = mark});
  while (order.is_eager() && run_one(nullptr)) {
  }
  return mark;
}

MarkPtr last_of(const Stream& s) { return s.last; }

cudaError_t wait_for(MarkPtr mark) {
  auto begin = Clock::now();
  while (mark && !mark->done) {
    if (sticky != cudaSuccess) return result(sticky);
    if (run_needed(*mark->stream)) {
      begin = Clock::now();
    } else if (waits_for_peer(*mark->stream) && seconds_since(begin) < patience_s) {
      pause();
    } else if (!mark->done && sticky == cudaSuccess) {
      const char* const what = mark->stream->queue.front().work.what;
      report(waits_for_peer(*mark->stream) ? "hang: %s waits for a peer that does not come"
                                           : "hang: %s waits for work that waits for it",
             what);
      fail(cudaErrorLaunchTimeout);
    }
  }
  return result(cudaSuccess);
}

cudaError_t wait_for_all() {
  for (std::size_t i = 0; i < streams.size(); ++i) {  // others may be made meanwhile
    if (const cudaError_t e = wait_for(streams[i]->last); e != cudaSuccess) return e;
  }
  return result(cudaSuccess);
}

void fail(cudaError_t e) { sticky = e; }

cudaError_t result(cudaError_t e) {
  if (in_host_function) {
    report("a host function of a stream calls CUDA, which it may not");
    e = cudaErrorNotPermitted;
  }
  if (sticky != cudaSuccess) e = sticky;
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}

cudaError_t take_last_error() { return std::exchange(last_error, sticky); }
cudaError_t last_error_now() { return last_error; }

void report(const char* format, ...) {
  char text[240];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const std::lock_guard lock(runtime_mutex());
  constexpr std::size_t most = 100;
  if (reports.size() < most && std::ranges::find(reports, text) == reports.end()) reports.emplace_back(text);
  if (in_kernel()) fail(cudaErrorLaunchFailure);
}

void set_seed(std::uint64_t seed) {
  const std::lock_guard lock(runtime_mutex());
  (void)default_stream();
  if (sticky == cudaSuccess) (void)wait_for_all();
  order.set_seed(seed);
}

/// After a failure work that is left never runs.
std::vector<std::string> take_reports() {
  const std::lock_guard lock(runtime_mutex());
  if (sticky != cudaSuccess) {
    for (const auto& s : streams) {
      for (Queued& q : s->queue) q.mark->done = true;
      s->queue.clear();
    }
  }
  sticky = last_error = cudaSuccess;
  return std::exchange(reports, {});
}

}  // namespace cuda_emulator
