// SPDX-License-Identifier: Apache-2.0
// Decides which tensors of a buffer are encoded and which travel dense, and exchanges both.
#include "allreduce/coded/coded.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "allreduce/coded/collective_sequence.hpp"
#include "allreduce/coded/exchanges.hpp"
#include "allreduce/collective.hpp"
#include "compression/codecs/dgc.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {

namespace {

/// One inner call: a pack of tensors to encode (`coded`), or a batch of tensors, or parts of them, that travel as they
/// are (dense).
struct Job {
  bool coded = false;
  std::vector<TensorPart> parts = {};
  std::size_t elements = 0;
};

/// Adds a dense tensor to batches of at most `most` elements. open: the index in `jobs` of the batch that is not full;
/// there is none if it is beyond the end.
void add_dense(const TensorPart& t, std::size_t most, std::size_t& open, std::vector<Job>& jobs) {
  for (std::size_t done = 0; done < t.count;) {
    if (open >= jobs.size() || jobs[open].elements == most) {
      open = jobs.size();
      jobs.push_back({});
    }
    Job& job = jobs[open];
    const std::size_t n = std::min(t.count - done, most - job.elements);
    job.parts.push_back({.offset = t.offset + done, .count = n});
    job.elements += n;
    done += n;
  }
}

/// Adds a tensor to packs of at most `most` tensors. open: as in `add_dense`, of the pack that is not full.
void add_coded(const TensorPart& t, std::size_t most, std::size_t& open, std::vector<Job>& jobs) {
  if (open >= jobs.size() || jobs[open].parts.size() == most) {
    open = jobs.size();
    jobs.push_back({.coded = true});
  }
  jobs[open].parts.push_back(t);
  jobs[open].elements += t.count;
}

/// Cuts a buffer of `count` elements into jobs, in the order of its tensors. A dense batch has at most `most_dense`
/// elements, a pack at most `most_in_pack` tensors; each takes the place of its first tensor. Without tensors, the
/// buffer counts as one. Cost: O(tensors + batches).
std::vector<Job> cut_into_jobs(std::size_t count, std::span<const TensorPart> tensors, std::size_t most_dense,
                               std::size_t most_in_pack, const std::function<bool(const TensorPart&)>& is_encoded) {
  const TensorPart whole_call{.offset = 0, .count = count};
  std::vector<Job> jobs;
  std::size_t open_batch = SIZE_MAX, open_pack = SIZE_MAX;
  for (const TensorPart& t : tensors.empty() ? std::span(&whole_call, 1) : tensors) {
    if (t.count == 0) continue;
    if (is_encoded(t)) {
      add_coded(t, most_in_pack, open_pack, jobs);
    } else {
      add_dense(t, most_dense, open_batch, jobs);
    }
  }
  return jobs;
}

using compression::CodecChoice;
using compression::Exchange;

// The executor alone encodes on the way: over the algorithm's schedule, or that of `direct` where the algorithm is a
// selection.

AlgorithmPtr scheduled_algorithm(const ExchangeSpec& spec) {
  const bool is_selection = spec.algorithm->info().backend == Backend::selection;
  return is_selection ? find_algorithm("direct") : spec.algorithm;
}

std::string schedule_refusal(const ExchangeSpec& spec) {
  const AlgorithmPtr a = scheduled_algorithm(spec);
  if (!a->has_schedule()) {
    return fmt::format("{} adds up numbers as they are; codec {} needs a schedule of ours, as direct or ring", a->name,
                       spec.codec->info->name);
  }
  for (const auto& s : a->make(spec.shape)) {
    if (auto why = coded_refusal(*s); !why.empty()) {
      return fmt::format("with {} {}; take direct, ring or one-shot with codec {}", a->name, why,
                         spec.codec->info->name);
    }
  }
  return {};
}

std::size_t schedule_arena_bytes(const ExchangeSpec& spec, std::uint32_t rank) {
  const AlgorithmPtr a = scheduled_algorithm(spec);
  return Executor::arena_bytes({a->name, a->make(spec.shape)}, rank, spec);
}

std::unique_ptr<Collective> bind_schedule(const ExchangeSpec& spec, const GroupConnection& connection) {
  const AlgorithmPtr a = scheduled_algorithm(spec);
  ExchangeSpec o = spec;
  o.transport_takes_device = connection.network.takes_device_memory();
  return std::make_unique<Executor>(ScheduledAlgorithm{a->name, a->make(spec.shape)}, connection.transport,
                                    connection.network.arena(), std::move(o));
}

InnerCalls schedule_calls(const ExchangeSpec& spec, std::span<const TensorPart> pack) {
  return {{.algorithm = scheduled_algorithm(spec), .count = pack.front().count, .codec = spec.codec}};
}

// The executor cuts the buffer into pieces and encodes them on their way, tensor by tensor.
constexpr CodedExchange scheduled_exchange{.refusal = schedule_refusal,
                                           .arena_bytes = schedule_arena_bytes,
                                           .bind = bind_schedule,
                                           .inner_calls = schedule_calls,
                                           .packs_hold_several = false};

const CodedExchange& exchange_of(const CodecChoice& c) {
  if (c.exchange == Exchange::schedule) return scheduled_exchange;
  if (c.exchange == Exchange::gather) {
    return compression::warm_up_steps(c.parsed) > 0 ? warm_up_exchange : gathered_exchange;
  }
  if (c.info->name == "powersgd") return power_sgd_exchange;
  return c.info->name == "randomk" ? random_k_exchange : tern_grad_exchange;
}

std::string tensor_refusal(const ExchangeSpec& spec, const TensorPart& t) {
  const auto& exchange = exchange_of(*spec.codec);
  return exchange.tensor_refusal ? exchange.tensor_refusal(spec, t) : "";
}

bool is_encoded(const ExchangeSpec& spec, const TensorPart& t) {
  return spec.shape.ranks > 1 && t.count >= spec.codec->min_elements && tensor_refusal(spec, t).empty();
}

/// Moves the first dense batch into the first pack, whose collective then sends it too.
void join_dense(std::vector<Job>& jobs) {
  const auto pack = std::ranges::find(jobs, true, &Job::coded), batch = std::ranges::find(jobs, false, &Job::coded);
  if (pack == jobs.end() || batch == jobs.end()) return;
  for (const TensorPart& t : batch->parts) {
    pack->parts.push_back({.offset = t.offset, .count = t.count, .rows = 1, .columns = t.count});
  }
  jobs.erase(batch);
}

std::vector<Job> jobs_of(const ExchangeSpec& spec, std::size_t count, std::span<const TensorPart> tensors) {
  const CodedExchange& exchange = exchange_of(*spec.codec);
  auto jobs = cut_into_jobs(count, tensors, dense_bytes(spec) / sizeof(float),
                            exchange.packs_hold_several ? most_tensors_in_pack(spec) : 1,
                            [&](const TensorPart& t) { return is_encoded(spec, t); });
  if (exchange.packs_take_uncoded) join_dense(jobs);
  return jobs;
}

/// The residuals that error feedback keeps, on the host or a device.
class Residuals {
 public:
  /// Makes room for `count` residuals; the new ones are 0. On a device the queue copies the old ones and is waited for,
  /// which happens once for each new length.
  void grow(std::size_t count, runtime::Queue* queue, runtime::Device* device) {
    if (count <= count_) return;
    if (device) {
      const auto longer = device->allocate(core::Element::f32, count);
      queue->copy("grow residuals", device_values_.buffer.part(0, count_), longer.buffer.part(0, count_));
      queue->synchronise();
      device_values_ = longer;
    } else {
      host_values_.resize(count);
    }
    count_ = count;
  }
  float* data() {
    if (host_values_.empty() && device_values_.memory) {
      return reinterpret_cast<float*>(device_values_.buffer.device().device_address());
    }
    return host_values_.data();
  }

 private:
  std::size_t count_ = 0;
  std::vector<float> host_values_;
  runtime::OwnedBuffer device_values_;
};

class CodedAllReduce final : public CollectiveSequence {
 public:
  CodedAllReduce(const ExchangeSpec& spec, const GroupConnection& connection, std::uint64_t seed)
      : CollectiveSequence(fmt::format("{} {}", spec.algorithm->name, spec.codec->label), spec.queue),
        spec_(spec),
        exchange_(exchange_of(*spec.codec)),
        seed_(seed),
        device_(spec.gpu()),
        batch_(batch_of(connection.network.arena().take(dense_bytes(spec)))),
        coded_(add_part(exchange_.bind(spec, connection))),
        dense_(add_part(spec.algorithm->bind(connection, spec.inner_call_spec(dense_bytes(spec))))),
        dense_name_(fmt::format("{} dense: under {} elements", dense_.name(), spec_.codec->min_elements)) {}

  const std::string& algorithm_for(std::uint64_t bytes) const override {
    return bytes / sizeof(float) < spec_.codec->min_elements ? dense_name_ : coded_.name();
  }
  bool works_on_device_memory() const override { return device_ != nullptr; }
  CodecState take_state() override {
    feedback_.inner = coded_.take_state();
    return take_values(feedback_);
  }
  void restore_state(const CodecState& state) override {
    restore_values(state, feedback_);
    if (feedback_.inner) coded_.restore_state(feedback_.inner);
  }

 private:
  struct Feedback {
    std::uint64_t calls = 0;
    Residuals worker = {}, owner = {};  ///< by an element's offset among all that are exchanged
    CodecState inner = {};              ///< the state of the coded collective; null while that collective has it
  };

  runtime::OwnedBuffer batch_of(std::span<std::byte> memory) const {
    if (device_) return device_->allocate_beside(core::Element::f32, memory);
    return {.buffer = {core::Element::f32, memory}};
  }
  const SliceKernels& kernels() const { return device_ ? gpu_kernels() : host_kernels; }

  void begin(const Call& call) override {
    if (call.element() != core::Element::f32 || (call.op != Op::sum && call.op != Op::average)) {
      throw core::BackendError("allreduce", name(), "codecs are for sums and averages of fp32");
    }
    call_ = call;
    ++feedback_.calls;
    begun_ = 0;
    job_ = nullptr;
    jobs_ = jobs_of(spec_, call.count(), call.tensor_layout.tensors);
    if (spec_.codec->feedback) {
      const std::size_t end = call.tensor_layout.offset_in_step + call.count();
      feedback_.worker.grow(end, spec_.queue, device_);
      feedback_.owner.grow(end, spec_.queue, device_);
    }
  }

  SequenceStep next(std::size_t) override {
    if (job_ && !job_->coded) run_local("unpack", [this, job = job_] { unpack(*job); });
    if (const Job* ended = std::exchange(job_, nullptr); ended && ended->coded && records_difference()) {
      run_local("difference", [this] { close_difference(); });
      return wait_for_local_work();  // the next tensor's difference is written where this one is
    }
    if (begun_ == jobs_.size()) return {};
    job_ = &jobs_[begun_++];
    return job_->coded ? coded_call(*job_) : dense_call(*job_);
  }

  SequenceStep coded_call(const Job& job) {
    Call c = call_;
    const std::size_t first = call_.tensor_layout.offset_in_step;
    c.tensor_layout.tensors = job.parts;
    c.encoding.draw = {.seed = seed_, .step = feedback_.calls};
    if (spec_.codec->feedback) {
      c.encoding.worker_residual = feedback_.worker.data() + first;
      c.encoding.owner_residual = feedback_.owner.data() + first;
    }
    if (exchange_.packs_hold_several) return {&coded_, c};
    tensor_.assign(c);
    c = tensor_.calls().front();
    if (records_difference()) open_difference(c);
    return {&coded_, c};
  }

  /// True where this class fills in the difference, as the change of the executor's residuals. Collectives that
  /// exchange packs fill it in themselves.
  bool records_difference() const { return !exchange_.packs_hold_several && call_.tensor_layout.difference; }

  /// Begins the difference of one tensor: adds the residuals before the call. Without error feedback, residuals are
  /// made for this call alone. They begin at -0, because x + -0 has the bits of x.
  void open_difference(Call& c) {
    difference_ = c.tensor_layout.difference;
    if (!spec_.codec->feedback) {
      call_residuals_.grow(2 * c.count(), spec_.queue, device_);
      run_local("difference",
                [this, n = 2 * c.count()] { std::ranges::fill(host_view(call_residuals_.data(), n), -0.0f); });
      c.encoding.worker_residual = call_residuals_.data();
      c.encoding.owner_residual = call_residuals_.data() + c.count();
    }
    tensor_encoding_ = c.encoding;
    run_local("difference", [this] { add_residuals(1); });
  }

  /// Completes the difference: subtracts the residuals after the call.
  void close_difference() {
    add_residuals(-1);
    tensor_.add_squares();
  }

  void add_residuals(float sign) {
    const std::size_t n = difference_->values.size();
    const auto workers = host_view(static_cast<const float*>(tensor_encoding_.worker_residual), n);
    const auto owners = host_view(static_cast<const float*>(tensor_encoding_.owner_residual), n);
    for (std::size_t i = 0; i < n; ++i) {
      const float worker = workers[i], owner = owners[i];
      difference_->values[i] += sign * (worker + owner);
      difference_->term_squares += double{worker} * double{worker} + double{owner} * double{owner};
    }
  }

  SequenceStep dense_call(const Job& job) {
    run_local("pack", [this, &job] { pack(job); });
    const runtime::Buffer batch = batch_.buffer.part(0, job.elements);
    return {&dense_, {.in = batch, .out = batch, .op = call_.op}};
  }

  /// The address at which the queue's kernels reach the buffer, or the host's code where there is no device.
  template <class Byte>
  Byte* address(const runtime::BasicBuffer<Byte>& b) const {
    return device_ ? b.address() : b.host();
  }
  /// The n values at `values`, as local work on the host can read and write them, also where they are a device's.
  template <class T>
  std::span<T> host_view(T* values, std::size_t n) const {
    if (!device_) return {values, n};
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return runtime::BasicBuffer<Byte>(runtime::DeviceSpan<T>(values, n)).template values<float>();
  }

  void pack(const Job& job) {
    std::byte* to = address(batch_.buffer);
    for (const TensorPart& part : job.parts) {
      kernels().copy(to, address(call_.in.part(part.offset, part.count)), part.count * sizeof(float));
      to += part.count * sizeof(float);
    }
  }

  void unpack(const Job& job) {
    const std::byte* from = address(batch_.buffer);
    for (const TensorPart& part : job.parts) {
      kernels().copy(address(call_.out.part(part.offset, part.count)), from, part.count * sizeof(float));
      from += part.count * sizeof(float);
    }
  }

  const ExchangeSpec spec_;
  const CodedExchange& exchange_;
  std::uint64_t seed_;
  runtime::Device* device_;     ///< the device that holds the calls' buffers and the residuals; null: the host
  runtime::OwnedBuffer batch_;  ///< a dense batch, packed
  Collective &coded_, &dense_;
  std::string dense_name_;  ///< what `serves` answers for short tensors
  Call call_{};
  TensorCalls tensor_;  ///< the tensor that is exchanged now, where tensors do not travel together
  std::vector<Job> jobs_;
  std::size_t begun_ = 0;     ///< the number of jobs begun so far
  const Job* job_ = nullptr;  ///< the job that runs now
  Feedback feedback_;
  CodingDifference* difference_ = nullptr;  ///< the difference of the tensor that is exchanged now
  EncodingInputs tensor_encoding_;          ///< the residuals of the tensor that is exchanged now
  Residuals call_residuals_;                ///< the residuals of a call without error feedback
};

/// The spec, without its queue where the queue's GPU cannot do the codec's work. A GPU encodes only where our schedules
/// carry or gather the encodings; other exchanges with a codec work on the host copies of buffers.
ExchangeSpec on_working_queue(const ExchangeSpec& spec) {
  ExchangeSpec out = spec;
  const CodedExchange& exchange = exchange_of(*spec.codec);
  const bool encodes = &exchange == &scheduled_exchange || (&exchange == &gathered_exchange && gathers_on_gpu(spec));
  const bool on_gpu = encodes && spec.algorithm->has_schedule() && gpu_block_codec_refusal(*spec.codec).empty();
  if (spec.gpu() && !on_gpu) out.queue = nullptr;
  return out;
}

}  // namespace

std::string codec_refusal(const ExchangeSpec& spec, CollectiveKind collective_kind, Arithmetic a) {
  const auto& codec = spec.codec->info->name;
  if (collective_kind != CollectiveKind::all_reduce)
    return fmt::format("codec {} has no {}; it is for allreduce", codec, name(collective_kind));
  if (a.element != core::Element::f32) {
    return fmt::format("codec {} takes fp32, not {}", codec, core::info(a.element).name);
  }
  if (a.op != Op::sum && a.op != Op::average) {
    return fmt::format("codec {} has no {}; encoded gradients are summed or averaged", codec, name(a.op));
  }
  if (auto why = spec.algorithm->refusal(spec.shape); !why.empty()) return why;
  const auto& exchange = exchange_of(*spec.codec);
  return exchange.refusal ? exchange.refusal(spec) : "";
}

std::string tensor_layout_refusal(const ExchangeSpec& spec, std::span<const TensorPart> tensors) {
  std::string why;
  for (const TensorPart& t : tensors) {
    if (t.count == 0 || t.count < spec.codec->min_elements) continue;
    why = tensor_refusal(spec, t);
    if (why.empty()) return {};
  }
  return why;
}

InnerCalls inner_calls_of(const ExchangeSpec& spec, std::size_t count, std::span<const TensorPart> tensors) {
  InnerCalls calls;
  for (const Job& job : jobs_of(spec, count, tensors)) {
    const InnerCalls of_job = job.coded ? exchange_of(*spec.codec).inner_calls(spec, job.parts)
                                        : InnerCalls{{.algorithm = spec.algorithm, .count = job.elements}};
    calls.insert(calls.end(), of_job.begin(), of_job.end());
  }
  return calls;
}

std::uint32_t encodings_on_the_way(const ExchangeSpec& spec, const TensorPart& t) {
  if (!is_encoded(spec, t)) return 0;
  if (&exchange_of(*spec.codec) != &scheduled_exchange) return 1;
  // As many rounds reduce as gather. Partial sums are encoded in each reducing round, and the finished sum once more.
  return scheduled_algorithm(spec)->cost(spec.shape).rounds / 2 + 1;
}

std::size_t coded_arena_bytes(const ExchangeSpec& spec, std::uint32_t rank) {
  if (!codec_refusal(spec, CollectiveKind::all_reduce, {}).empty()) return 0;
  return dense_bytes(spec) + arena_slack +
         spec.algorithm->arena_bytes(spec.shape, rank, spec.inner_call_spec(dense_bytes(spec))) + arena_slack +
         exchange_of(*spec.codec).arena_bytes(spec, rank);
}

std::unique_ptr<Collective> bind_coded(const ExchangeSpec& spec, const GroupConnection& connection,
                                       std::uint64_t seed) {
  if (const auto why = codec_refusal(spec, CollectiveKind::all_reduce, {}); !why.empty()) throw core::UsageError(why);
  return std::make_unique<CodedAllReduce>(on_working_queue(spec), connection, seed);
}

}  // namespace gradmeter::allreduce
