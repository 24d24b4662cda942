// SPDX-License-Identifier: Apache-2.0
#include "allreduce/executor/executor.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

std::size_t message_bytes(const runtime::Transport& t, const ExchangeSpec& spec) {
  return spec.message_bytes ? spec.message_bytes : t.message_bytes();
}

/// True where data from every rank are read in that rank's memory, so that no landing memory is needed.
bool reads_in_place(const runtime::Transport& t) {
  for (int r = 0; r < t.size(); ++r) {
    if (!t.zero_copy_from(r)) return false;
  }
  return true;
}

MessageForm form_of(const ExchangeSpec& spec) { return spec.codec ? MessageForm::coded : MessageForm::plain; }

bool takes_whole_tensors(const ExchangeSpec& spec) {
  return spec.codec && spec.codec->codec->grain() == compression::whole_tensor;
}

/// The grain: slices and blocks begin at its multiples [elements].
std::size_t grain_of(const ExchangeSpec& spec) {
  return spec.codec && !takes_whole_tensors(spec) ? spec.codec->codec->grain() : 1;
}

/// True where a buffer must be one slice, since some message holds several blocks. A slice would have a share of each
/// of these blocks, and shares of neighbouring blocks are not contiguous. Rank 0's steps suffice: where the collective
/// kind says who owns which block, either all ranks or none send several blocks in a message (a test verifies this).
bool spans_blocks(const ScheduledAlgorithm& a) {
  return std::ranges::any_of(a.schedules, [](const SchedulePtr& s) {
    return slice_cut_for(s->collective_kind()) == SliceCut::share_of_each_block && sends_several_blocks(*s, 0);
  });
}

/// The most bytes that the scratch of a slice must hold, for any buffer up to max_bytes. whole: a buffer is one slice.
/// Blocks may be longer than equal ones, since they are cut at cache lines.
std::size_t slice_bytes(const ScheduledAlgorithm& a, std::size_t bytes_per_message, const ExchangeSpec& spec,
                        bool whole) {
  const std::size_t blocks = a.schedules.front()->blocks();
  const std::size_t usual = whole ? spec.max_bytes : std::min(spec.max_bytes, bytes_per_message * blocks);
  return usual + 4096 + 1024 * blocks;
}

/// The most elements of a slice that is encoded.
std::size_t coded_elements(const ScheduledAlgorithm& a, std::size_t bytes_per_message, const ExchangeSpec& spec,
                           bool whole) {
  if (whole) return spec.max_bytes / sizeof(float);
  return slice_bytes(a, bytes_per_message, spec, whole) / sizeof(float) + grain_of(spec) * 16;
}

/// The most bytes of an encoded slice that a lane keeps.
std::size_t wire_bytes(const ScheduledAlgorithm& a, std::size_t bytes_per_message, const ExchangeSpec& spec,
                       bool whole) {
  return CodedSlice::most_wire_bytes(*spec.codec->codec, coded_elements(a, bytes_per_message, spec, whole),
                                     a.schedules.front()->blocks());
}

CodedSlice coded_slice(const ScheduledAlgorithm& a, std::size_t bytes_per_message, const ExchangeSpec& spec, bool whole,
                       const runtime::Transport& t, std::span<std::byte> wire) {
  const std::size_t longest = CodedSlice::longest_block(
      *spec.codec->codec, coded_elements(a, bytes_per_message, spec, whole), a.schedules.front()->blocks());
  const compression::Codec& codec = *spec.codec->codec;
  auto block_codec = spec.gpu() ? gpu_block_codec(*spec.codec, *spec.gpu(), longest) : host_block_codec(codec);
  return {codec, std::move(block_codec), t.rank(), t.size(), wire};
}

Slices cut(const ScheduledAlgorithm& a, const ExchangeSpec& spec, std::size_t elements, std::size_t element_bytes,
           bool whole, std::size_t bytes_per_message) {
  const Schedule& s = *a.schedules.front();
  const std::size_t bytes = message_bytes_for(a.schedules, elements * element_bytes, bytes_per_message);
  return {slice_cut_for(s.collective_kind()), elements, element_bytes, s.blocks(), bytes, whole, grain_of(spec)};
}

}  // namespace

std::size_t Executor::arena_bytes(const ScheduledAlgorithm& a, std::uint32_t rank, const ExchangeSpec& spec) {
  const std::size_t bytes_per_message = spec.message_bytes ? spec.message_bytes : runtime::longest_usual_message;
  const std::size_t lanes = lanes_for(a.schedules);
  if (spec.codec) {
    const bool whole = takes_whole_tensors(spec) || spans_blocks(a);
    return lanes * (wire_bytes(a, bytes_per_message, spec, whole) + 4096);
  }
  const bool alternates = std::any_of(a.schedules.begin(), a.schedules.end(),
                                      [&](const auto& s) { return uses_alternate(*s, rank, spec.placement); });
  return alternates ? lanes * (slice_bytes(a, bytes_per_message, spec, spans_blocks(a)) + 4096) : 0;
}

Executor::Executor(ScheduledAlgorithm a, runtime::Transport& t, runtime::Arena& scratch, ExchangeSpec spec)
    : algorithm_(std::move(a)),
      transport_(t),
      spec_(std::move(spec)),
      is_one_slice_(takes_whole_tensors(spec_) || spans_blocks(algorithm_)) {
  for (const auto& s : algorithm_.schedules)
    plans_.push_back(compile(*s, static_cast<std::uint32_t>(t.rank()), spec_.placement, form_of(spec_)));
  if (spec_.gpu()) {
    set_up_device();
    add_lanes(Submitter(*spec_.queue, gpu_kernels()), scratch);
  } else if (spec_.queue) {
    add_lanes(Submitter(*spec_.queue), scratch);
  } else {
    add_lanes(AtOnce(), scratch);
  }
}

void Executor::set_up_device() {
  if (auto why = gpu_kernels_refusal(static_cast<std::uint32_t>(transport_.size())); !why.empty())
    throw core::BackendError("allreduce", name(), why);
  on_device_ = true;
  if (!spec_.transport_takes_device)
    staged_ = std::make_unique<runtime::StagedTransport>(transport_, spec_.queue->device());
}

/// Takes scratch from memory that both the lanes' work and their messages can reach.
std::span<std::byte> Executor::take_scratch(runtime::Arena& arena, std::size_t bytes) {
  if (bytes == 0) return {};
  if (!on_device_) return arena.take(bytes);
  runtime::Device& device = spec_.queue->device();
  const auto& taken =
      device_scratch_.emplace_back(staged_ ? device.allocate_beside(core::Element::i8, arena.take(bytes))
                                           : device.allocate(core::Element::i8, bytes));
  return {taken.buffer.device().device_address(), bytes};
}

template <class Submit>
void Executor::add_lanes(const Submit& submit, runtime::Arena& scratch) {
  bool alternate = false;
  std::uint32_t landing_blocks = 0;
  for (const Plan& p : plans_) {
    alternate |= p.uses_alternate;
    landing_blocks = std::max(landing_blocks, p.landing_blocks);
  }
  runtime::Transport& t = message_transport();
  const std::size_t bytes_per_message = message_bytes(t, spec_);
  const std::size_t slice = slice_bytes(algorithm_, bytes_per_message, spec_, is_one_slice_);
  const std::size_t wire = spec_.codec ? wire_bytes(algorithm_, bytes_per_message, spec_, is_one_slice_) : 0;
  const std::size_t landing = reads_in_place(t) ? 0 : landing_bytes(algorithm_, wire ? wire : slice, landing_blocks);
  const int lanes = std::min(t.channels(), static_cast<int>(lanes_for(algorithm_.schedules)));
  if (landing && (staged_ || !on_device_)) landings_.emplace(static_cast<std::size_t>(lanes) * (landing + 4096));
  if (landing && staged_) pinned_landings_ = spec_.queue->device().pin(landings_->memory());
  auto& made = lanes_.emplace<Lanes<Submit>>();
  for (int c = 0; c < lanes; ++c) {
    const auto alternates = take_scratch(scratch, alternate ? slice : 0);
    const auto landings = take_scratch(landings_ ? *landings_ : scratch, landing);
    std::optional<CodedSlice> coded;
    if (spec_.codec)
      coded.emplace(coded_slice(algorithm_, bytes_per_message, spec_, is_one_slice_, t, take_scratch(scratch, wire)));
    made.emplace_back(t, c, alternates, landings, submit, std::move(coded));
  }
}

std::size_t Executor::alternate_bytes(const ScheduledAlgorithm& a, const ExchangeSpec& spec) {
  return slice_bytes(a, spec.message_bytes, spec, spans_blocks(a));
}

std::size_t Executor::landing_bytes(const ScheduledAlgorithm& a, std::size_t slice_bytes,
                                    std::uint32_t landing_blocks) {
  return (slice_bytes / a.schedules.front()->blocks() + 2048) * landing_blocks;
}

void Executor::check_call(const ScheduledAlgorithm& a, const ExchangeSpec& spec, const Call& call) {
  const std::size_t bytes = call.out.bytes();
  if (bytes > spec.max_bytes) {
    throw core::BackendError("allreduce", a.name,
                             fmt::format("{} bytes given, made for {} at most", bytes, spec.max_bytes));
  }
  if ((spec.placement == Placement::in_place) != call.in_place() && bytes > 0) {
    throw core::BackendError("allreduce", a.name, "made for the other of in place and out of place");
  }
  check_supported(call.element(), call.op, call.accumulates_in());
  const Schedule& schedule = *a.schedules.front();
  if (schedule.collective_kind() == CollectiveKind::all_to_all && call.count() % schedule.blocks() != 0) {
    throw core::BackendError("allreduce", a.name,
                             fmt::format("{} elements do not make {} equal blocks; use a multiple of the ranks",
                                         call.count(), schedule.blocks()));
  }
}

void Executor::check(const Call& call, CallMemory memory) const {
  const std::size_t bytes = call.out.bytes();
  if (running_) throw core::BackendError("allreduce", name(), "started before the last call was complete");
  if (spec_.codec && (call.element() != core::Element::f32 || (call.op != Op::sum && call.op != Op::average))) {
    throw core::BackendError("allreduce", name(), "codecs are for sums and averages of fp32");
  }
  check_call(algorithm_, spec_, call);
  if (spec_.codec) return;
  const runtime::Transport& t = message_transport();
  if (!t.can_send_from({memory.in, bytes}) || !t.can_send_from({memory.out, bytes})) {
    throw core::BackendError("allreduce", name(),
                             fmt::format("peers cannot read these buffers over {}; take them from the arena or use "
                                         "transport mpi",
                                         transport_.name()));
  }
}

CallMemory Executor::memory_of(const Call& call) const {
  if (!spec_.queue) return {call.in.host(), call.out.host()};
  if (on_device_) {
    if (call.in.on_device() && call.out.on_device()) return {call.in.address(), call.out.address()};
    throw core::BackendError("allreduce", name(), "it was given memory of the host, and moves memory of a GPU alone");
  }
  const runtime::Device& device = spec_.queue->device();
  return {device.transport_address(call.in), device.transport_address(call.out)};
}

void Executor::start(const Call& call) {
  const CallMemory memory = memory_of(call);
  check(call, memory);
  const std::size_t element_bytes = core::size_of(call.element());
  call_ = call;
  memory_ = memory;
  slices_ = slices_of(call.count(), element_bytes);
  bytes_required_ += bytes_required_for(call.count(), element_bytes, slices_);
  finished_ = 0;
  running_ = true;
  traffic_at_start_ = transport_.traffic();
  // Messages go by other streams, or by MPI, which know nothing of what the queue still does with the buffers.
  if (on_device_) ready_ = spec_.queue->record();
  std::visit(
      [this](auto& lanes) {
        for (std::size_t lane = 0; lane < std::min(lanes.size(), slices_.count()); ++lane) launch(lanes[lane], lane);
      },
      lanes_);
}

template <class Submit>
void Executor::launch(Lane<Submit>& lane, std::size_t slice) {
  lane.launch(plans_[slice % plans_.size()], call_, memory_, slices_[slice]);
}

template <class Submit>
void Executor::advance(Lanes<Submit>& lanes) {
  for (bool moved = true; moved && finished_ < slices_.count();) {
    moved = false;
    message_transport().progress();
    for (auto& lane : lanes) {
      if (!lane.busy()) continue;
      moved |= lane.advance();
      if (lane.busy()) continue;
      ++finished_;
      // A lane skips to its own next slice, not to the next free one: both ends of a channel must agree on its slices.
      if (const std::size_t next = lane.slice() + lanes.size(); next < slices_.count()) launch(lane, next);
    }
  }
}

bool Executor::advance() {
  if (!running_) return true;
  if (ready_ && !ready_->reached()) return false;
  ready_ = nullptr;
  std::visit([this](auto& lanes) { advance(lanes); }, lanes_);
  if (finished_ < slices_.count()) return false;
  running_ = false;
  sent_ += transport_.traffic() - traffic_at_start_;
  return true;
}

std::optional<CodingTime> Executor::coding() const {
  if (!spec_.codec) return std::nullopt;
  CodingTime sum;
  const auto add = [&sum](const auto& lanes) {
    for (const auto& lane : lanes) sum.add_times(lane.coding());
  };
  std::visit(add, lanes_);
  return sum;
}

Waiting Executor::waiting() const {
  const auto first = [](const auto& lanes) -> Waiting {
    for (const auto& lane : lanes) {
      if (lane.busy() && lane.waiting().peer >= 0) return lane.waiting();
    }
    return {};
  };
  return std::visit(first, lanes_);
}

Slices Executor::slices(const ScheduledAlgorithm& a, const ExchangeSpec& spec, std::size_t elements,
                        std::size_t element_bytes) {
  return cut(a, spec, elements, element_bytes, takes_whole_tensors(spec) || spans_blocks(a), spec.message_bytes);
}

Slices Executor::slices_of(std::size_t elements, std::size_t element_bytes) const {
  return cut(algorithm_, spec_, elements, element_bytes, is_one_slice_, message_bytes(transport_, spec_));
}

std::uint64_t Executor::buffer_bytes(const ExchangeSpec& spec, const Slices& slices, std::size_t element_bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < slices.count(); ++i) {
    const Slice slice = slices[i];
    for (std::uint32_t b = 0; b < slice.blocks; ++b) {
      const std::size_t n = slice.extent({b, 1}).elements;
      sum += spec.codec ? spec.codec->codec->wire_bytes(n) : n * element_bytes;
    }
  }
  return sum;
}

std::uint64_t Executor::bytes_required_for(std::size_t elements, std::size_t element_bytes, const Slices& slices) {
  const auto cached = known_bytes_required_.find({elements, element_bytes});
  if (cached != known_bytes_required_.end()) return cached->second;
  const auto rank = static_cast<std::uint32_t>(transport_.rank());
  const auto coded = [&](std::size_t n) { return spec_.codec->codec->wire_bytes(n); };
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < slices.count(); ++i) {
    const Schedule& schedule = *algorithm_.schedules[i % algorithm_.schedules.size()];
    sum += spec_.codec ? coded_bytes_sent(schedule, rank, slices[i], coded)
                       : elements_sent(schedule, rank, slices[i]) * element_bytes;
  }
  known_bytes_required_.emplace(std::pair(elements, element_bytes), sum);
  return sum;
}

}  // namespace gradmeter::allreduce
