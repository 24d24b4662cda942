#include "allreduce/executor.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

std::size_t message_bytes(const runtime::Transport& t, const ExecutorOptions& o) {
  return o.message_bytes ? o.message_bytes : t.message_bytes();
}

/// The longest slice of any buffer up to max_bytes, with room for rounding to cache lines.
std::size_t slice_bytes(const Algorithm& a, const runtime::Transport& t, const ExecutorOptions& o) {
  const std::size_t blocks = a.schedules.front()->blocks();
  return std::min(o.max_bytes, message_bytes(t, o) * blocks) + 4096 + 128 * blocks;
}

}  // namespace

std::size_t Executor::scratch_bytes(const Algorithm& a, const runtime::Transport& t, const ExecutorOptions& o) {
  return static_cast<std::size_t>(t.channels()) * 2 * (slice_bytes(a, t, o) + 8192);
}

Executor::Executor(Algorithm a, runtime::Transport& t, runtime::Arena& scratch, ExecutorOptions o)
    : algorithm_(std::move(a)), transport_(t), options_(o) {
  bool alternate = false;
  std::uint32_t landing_blocks = 0;
  for (const auto& s : algorithm_.schedules) {
    plans_.push_back(compile(*s, static_cast<std::uint32_t>(t.rank()), o.placement));
    alternate |= plans_.back().uses_alternate;
    landing_blocks = std::max(landing_blocks, plans_.back().landing_blocks);
  }
  const std::size_t slice = slice_bytes(algorithm_, t, o);
  const std::uint32_t blocks = algorithm_.schedules.front()->blocks();
  const std::size_t landing = t.reads_peers() ? 0 : (slice / blocks + 128) * landing_blocks;
  for (int c = 0; c < t.channels(); ++c) {
    const PipelineScratch s{.alternate = alternate ? scratch.take(slice) : std::span<std::byte>{},
                            .landing = landing ? scratch.take(landing) : std::span<std::byte>{}};
    lanes_.push_back({Pipeline(t, c, s), 0});
  }
}

void Executor::start(const Call& call) {
  const std::size_t width = core::size_of(call.element), bytes = call.count * width;
  if (running_) throw core::BackendError("allreduce", name(), "started before the last call was complete");
  if (bytes > options_.max_bytes) {
    throw core::BackendError("allreduce", name(),
                             fmt::format("{} bytes given, made for {} at most", bytes, options_.max_bytes));
  }
  if ((options_.placement == Placement::in_place) != (call.in == call.out) && bytes > 0) {
    throw core::BackendError("allreduce", name(), "made for the other of in place and out of place");
  }
  if (!transport_.reaches({call.in, bytes}) || !transport_.reaches({call.out, bytes})) {
    throw core::BackendError("allreduce", name(),
                             fmt::format("peers cannot read these buffers over {}; take them from the arena or use "
                                         "transport mpi",
                                         transport_.name()));
  }
  check_supported(call.element, call.op);
  call_ = call;
  slices_ = cut(call.count, width, plans_.front().blocks, message_bytes(transport_, options_));
  bytes_due_ += due(call.count, width, slices_);
  finished_ = 0;
  running_ = true;
  before_ = transport_.traffic();
  for (std::size_t lane = 0; lane < std::min(lanes_.size(), slices_.count); ++lane) launch(lanes_[lane], lane);
}

void Executor::launch(Lane& lane, std::size_t slice) {
  lane.slice = slice;
  lane.pipeline.launch(plans_[slice % plans_.size()], call_, slices_.begin(slice), slices_.length(slice, call_.count));
}

bool Executor::advance() {
  if (!running_) return true;
  for (bool moved = true; moved && finished_ < slices_.count;) {
    moved = false;
    transport_.progress();
    for (auto& lane : lanes_) {
      if (!lane.pipeline.busy()) continue;
      moved |= lane.pipeline.advance();
      if (lane.pipeline.busy()) continue;
      ++finished_;
      // Not the next slice that is free: both ends of a channel must agree on its slices, whoever is faster.
      if (const std::size_t next = lane.slice + lanes_.size(); next < slices_.count) launch(lane, next);
    }
  }
  if (finished_ < slices_.count) return false;
  running_ = false;
  const auto now = transport_.traffic() - before_;
  sent_.bytes += now.bytes;
  sent_.messages += now.messages;
  sent_.bytes_between_nodes += now.bytes_between_nodes;
  return true;
}

Waiting Executor::waiting() const {
  for (const auto& lane : lanes_) {
    if (lane.pipeline.busy() && lane.pipeline.waiting().peer >= 0) return lane.pipeline.waiting();
  }
  return {};
}

std::uint64_t Executor::due(std::size_t elements, std::size_t width, Slices slices) {
  for (const Due& d : known_due_) {
    if (d.elements == elements && d.width == width) return d.bytes;
  }
  std::uint64_t sum = 0;
  const auto rank = static_cast<std::uint32_t>(transport_.rank());
  const auto& schedules = algorithm_.schedules;
  if (schedules.size() == 1) {
    sum = payload_bytes(*schedules.front(), rank, elements, width, slices);
  } else {
    for (std::size_t s = 0; s < slices.count; ++s) {
      sum += payload_bytes(*schedules[s % schedules.size()], rank, slices.length(s, elements), width,
                           {1, slices.length(s, elements)});
    }
  }
  known_due_.push_back({elements, width, sum});
  return sum;
}

}  // namespace gradmeter::allreduce
