// SPDX-License-Identifier: Apache-2.0
// What is wrong: reports, and errors that stay.
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/grid.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/order.hpp"
#include "support/cuda_emulator/running_counts.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {
namespace {

auto& reports = *new std::vector<std::string>;
auto& hung = *new std::vector<std::unique_ptr<Fiber>>;  ///< what they own stays theirs
cudaError_t sticky = cudaSuccess;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;
thread_local bool has_chosen = false;  ///< a device, by cudaSetDevice

/// With several GPUs such a call makes a context on the first, which costs memory and time there. A program's first
/// thread may leave the choice to CUDA, unless it is a program that chooses.
void check_choice() {
  static const bool first_too = std::getenv("GRADMETER_CUDA_EMULATOR_CHOSEN") != nullptr;
  if (has_chosen) return;
  ++running_counts().unchosen;
  if (gettid() != getpid() || first_too)
    report(
        "a thread that has chosen no GPU calls CUDA, which makes a context on the first: cudaSetDevice comes before");
}

/// Work that is left after a failure never runs. But for a function of the host's that runs now.
void drop_work(Stream& s) {
  const std::size_t kept = s.is_at_host ? 1 : 0;
  while (s.queue.size() > kept) {
    s.queue.back().mark->done = true;
    s.queue.pop_back();
  }
  if (kept > 0 || !s.is_begun) return;
  hung.push_back(std::exchange(s.fiber, std::make_unique<Fiber>(Fiber::large_stack)));
  s.is_begun = s.is_paused = false;
}

/// A program that nobody asked for its reports must not look right.
void tell_at_exit() {
  const Lock lock;
  for (const std::string& r : reports) std::fprintf(stderr, "CUDA emulator: %s\n", r.c_str());
  if (!reports.empty()) _exit(86);
}

}  // namespace

void begin_host_functions() { in_host_function = true; }
bool is_host_function() { return in_host_function; }

void fail(cudaError_t e) { sticky = e; }
bool has_failed() { return sticky != cudaSuccess; }

void note_choice() { has_chosen = true; }

cudaError_t result(cudaError_t e) {
  if (!in_host_function) check_choice();
  return result_without_context(e);
}

cudaError_t result_without_context(cudaError_t e) {
  if (in_host_function) {
    report("a host function of a stream calls CUDA, which it may not");
    return cudaErrorNotPermitted;
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
  const Lock lock;
  static const int told = std::atexit(tell_at_exit);
  (void)told;
  constexpr std::size_t most = 100;
  if (reports.size() < most && std::ranges::find(reports, text) == reports.end()) reports.emplace_back(text);
  if (in_kernel()) fail(cudaErrorLaunchFailure);
}

void set_seed(std::uint64_t seed) {
  const Lock lock;
  (void)default_stream();
  if (sticky == cudaSuccess) (void)wait_for_all();
  order.set_seed(seed);
}

std::vector<std::string> take_reports() {
  const Lock lock;
  report_overruns();
  if (sticky != cudaSuccess) {
    for (const auto& s : all_streams()) drop_work(*s);
  }
  sticky = last_error = cudaSuccess;
  return std::exchange(reports, {});
}

}  // namespace cuda_emulator
