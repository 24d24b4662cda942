// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/streams.hpp"

#include <algorithm>
#include <utility>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/graphs.hpp"
#include "support/cuda_emulator/hardware.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/order.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {

namespace {

/// Of streams that are gone. Their work was before a new stream's in nearly all programs: that saves a millisecond for
/// each of a kernel's threads.
auto& spare_threads = *new std::vector<std::unique_ptr<FiberPool>>;
auto& gone = *new std::vector<std::unique_ptr<Stream>>;
std::uint64_t submissions = 0;

bool wait_for_each_other(const Stream& a, const Stream& b) {
  const bool one_is_default = &a == all_streams().front().get() || &b == all_streams().front().get();
  return &a != &b && one_is_default && a.waits_for_default && b.waits_for_default;
}

}  // namespace

std::vector<std::unique_ptr<Stream>>& all_streams() {
  static auto& streams = *new std::vector<std::unique_ptr<Stream>>;  // never destroyed: the driver's thread uses them
  return streams;
}

Stream& default_stream() {
  auto& streams = all_streams();
  if (streams.empty()) {
    begin_memory();
    begin_order();
    streams.push_back(std::make_unique<Stream>());
    begin_driver();
  }
  return *streams.front();
}

Stream* make_stream(bool waits_for_default) {
  (void)default_stream();
  Stream& s = *all_streams().emplace_back(std::make_unique<Stream>());
  s.waits_for_default = waits_for_default;
  s.priority = order.bits();
  if (!spare_threads.empty()) {
    s.threads = std::move(spare_threads.back());
    spare_threads.pop_back();
  }
  return &s;
}

/// Its work goes on.
void destroy_stream(Stream* s) {
  s->is_destroyed = true;
  if (!s->queue.empty()) return;
  give_back_hardware_queue(s->hardware_queue);
  s->hardware_queue = -1;
  s->fiber = nullptr;
  if (s->threads) spare_threads.push_back(std::move(s->threads));
  const auto it = std::ranges::find(all_streams(), s, &std::unique_ptr<Stream>::get);
  if (it == all_streams().end()) return;
  gone.push_back(std::move(*it));
  all_streams().erase(it);
}

Stream* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &default_stream();
  for (const auto& s : all_streams()) {
    if (reinterpret_cast<cudaStream_t>(s.get()) == handle && !s->is_destroyed) return s.get();
  }
  report("a stream that was destroyed, or never made, is used");
  return nullptr;
}

MarkPtr push(Stream& s, StreamWork work, std::vector<MarkPtr> after) {
  if (s.capture.graph) {
    add_node(s.capture, std::move(work));
    return nullptr;
  }
  // The legacy default stream and those that do not opt out wait for each other.
  for (const auto& other : all_streams()) {
    if (wait_for_each_other(s, *other) && other->last && !other->last->done) after.push_back(other->last);
  }
  auto mark = std::make_shared<Mark>();
  mark->stream = &s;
  release(&mark->submitted);
  s.last = mark;
  s.queue.push_back({.work = std::move(work), .after = std::move(after), .mark = mark, .number = submissions++});
  while (order.is_eager() && run_one(nullptr) == Step::ran) {
  }
  return mark;
}

}  // namespace cuda_emulator
