// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/hardware.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/running_counts.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {
namespace {

std::string_view text_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? text : "";
}

/// As the environment has it when CUDA is first called.
Hardware first_hardware() {
  Hardware h;
  h.is_shared = text_of("GRADMETER_CUDA_EMULATOR_SHARED") == "1";
  h.loads_lazily = text_of("CUDA_MODULE_LOADING") != "EAGER";
  if (const auto text = text_of("CUDA_DEVICE_MAX_CONNECTIONS"); !text.empty()) {
    h.queues = std::clamp(std::atoi(text.data()), 1, 32);
  }
  return h;
}

Hardware& hardware() {
  static Hardware h = first_hardware();
  return h;
}

unsigned sharing = 0;  ///< objects of SharedDevice
auto& streams_of_queue = *new std::vector<unsigned>;
auto& loaded = *new std::set<const void*>;  ///< kernels

bool may_wait_for_others(const StreamWork& w) { return w.is_cooperative || w.peers; }

}  // namespace

Hardware hardware_now() {
  Hardware h = hardware();
  h.is_shared |= sharing > 0;
  if (h.is_shared)
    h = {.is_shared = true,
         .queues = 0,
         .loads_lazily = false,
         .frees_wait = false,
         .one_cooperative_grid = false,
         .pending_work = h.pending_work,
         .has_switches = h.has_switches};
  return h;
}

void set_hardware(const Hardware& h) {
  const Lock lock;
  hardware() = h;
}
Hardware current_hardware() {
  const Lock lock;
  return hardware();
}
bool ranks_share_device() {
  const Lock lock;
  return hardware_now().is_shared;
}

SharedDevice::SharedDevice() {
  const Lock lock;
  ++sharing;
}
SharedDevice::~SharedDevice() {
  const Lock lock;
  --sharing;
}

int take_hardware_queue() {
  const auto queues = static_cast<std::size_t>(hardware().queues);
  if (queues == 0) return -1;
  if (streams_of_queue.size() < queues) streams_of_queue.resize(queues);
  const auto end = streams_of_queue.begin() + static_cast<std::ptrdiff_t>(queues);
  const auto least = std::min_element(streams_of_queue.begin(), end);
  ++*least;
  return static_cast<int>(least - streams_of_queue.begin());
}
void give_back_hardware_queue(int queue) {
  if (queue >= 0) --streams_of_queue[static_cast<std::size_t>(queue)];
}

const Stream* holder_of(const Stream& s) {
  const Hardware h = hardware_now();
  if (h.is_shared || s.is_begun || s.queue.empty()) return nullptr;
  const QueuedWork& first = s.queue.front();
  for (const auto& other : all_streams()) {
    if (other.get() == &s || !other->is_begun || other->queue.front().work.is_host) continue;
    const QueuedWork& runs = other->queue.front();
    if (h.one_cooperative_grid && first.work.is_cooperative && runs.work.is_cooperative) return other.get();
    const bool same_queue = h.queues > 0 && s.hardware_queue >= 0 && s.hardware_queue == other->hardware_queue;
    if (same_queue && runs.number < first.number) return other.get();
  }
  return nullptr;
}

void report_hang_of(const Stream& s) {
  for (const auto& held : all_streams()) {
    const Stream* const holder = holder_of(*held);
    if (!holder) continue;
    const char* const first = held->queue.front().work.what;
    const char* const runs = holder->queue.front().work.what;
    if (held->queue.front().work.is_cooperative && holder->queue.front().work.is_cooperative)
      return report("hang: a cooperative kernel never ends, and another begins only then: a device runs one at a time");
    return report(
        "hang: %s never ends, and %s stands behind it in one of %d hardware queues, which their streams share", runs,
        first, hardware_now().queues);
  }
  const StreamWork& work = s.queue.front().work;
  report(work.peers ? "hang: %s waits for a peer that does not come" : "hang: %s never ends", work.what);
}

cudaError_t wait_for_waiting_kernels(const char* call) {
  std::vector<MarkPtr> marks;
  for (const auto& s : all_streams()) {
    for (const QueuedWork& q : s->queue) {
      const bool runs = s->is_begun && &q == &s->queue.front() && !q.work.is_host;
      if (runs || may_wait_for_others(q.work)) marks.push_back(q.mark);
    }
  }
  for (const MarkPtr& m : marks) {
    if (m->done || has_failed()) continue;
    if (run_until([&] { return m->done; }, m->stream)) continue;
    report("hang: %s waits for a kernel that never ends", call);
    fail(cudaErrorLaunchTimeout);
  }
  return result(cudaSuccess);
}

cudaError_t load(const void* function, const Stream& s) {
  if (!loaded.insert(function).second || !hardware_now().loads_lazily || s.capture.graph) return result(cudaSuccess);
  return wait_for_waiting_kernels("the first launch of a kernel, which loads it (CUDA_MODULE_LOADING is not EAGER),");
}

cudaError_t wait_for_place(const Stream& s) {
  const int most = hardware_now().pending_work;
  const auto is_full = [&] {
    const auto is_of_device = [](const QueuedWork& q) { return q.work.run && !q.work.is_host; };
    return s.queue.size() >= static_cast<std::size_t>(most) && std::ranges::count_if(s.queue, is_of_device) >= most;
  };
  if (most == 0 || s.capture.graph || !is_full()) return result(cudaSuccess);
  ++running_counts().full_streams;
  if (!run_until([&] { return !is_full(); }, &s)) {
    report("hang: a launch waits behind %d others in its stream, of which the first never ends", most);
    fail(cudaErrorLaunchTimeout);
  }
  return result(cudaSuccess);
}

}  // namespace cuda_emulator
