// SPDX-License-Identifier: Apache-2.0
#include "allreduce/gpu/stream_collective.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/cuda/graph.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "runtime/cuda/device.hpp"
#endif

namespace gradmeter::allreduce {

std::string graph_refusal(std::span<const int> gpus_of_process) {
  const auto is_other = [&](int gpu) { return gpu != gpus_of_process.front(); };
  if (std::ranges::none_of(gpus_of_process, is_other)) return {};
  return "this process drives several GPUs, whose graphs wait for each other while the launch of one may block the "
         "others; start a process a GPU, or leave --cudagraph out";
}

#ifdef GRADMETER_HAS_CUDA
namespace {

/// The bytes that a collective has sent and those that it had to send, where they are counted.
struct PayloadBytes {
  std::optional<runtime::Traffic> sent;
  std::optional<std::uint64_t> required;

  static PayloadBytes of(const Collective& c) { return {c.sent(), c.bytes_required()}; }
};

/// Captures a collective's calls as graphs, and launches them.
class CapturedCalls {
 public:
  CapturedCalls(std::unique_ptr<StreamCollective> inner, runtime::Queue& queue)
      : inner_(std::move(inner)), queue_(queue) {
    // NCCL's abort waits until no graph holds calls of the communicator.
    inner_->on_abort([this] { graphs_.clear(); });
  }
  ~CapturedCalls() {
    if (running_) give_up();
    inner_->on_abort(nullptr);
  }
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  Collective& inner() const { return *inner_; }
  void start(const Call& call, const GraphShape& shape) {
    if (running_) throw core::BackendError("allreduce", inner_->name(), "started before the last call was complete");
    const Captured& captured = captured_call(call, shape.calls);
    running_ = true;
    inner_->before_launch();
    for (std::size_t i = 0; i < shape.launches; ++i) {
      captured.graph.launch();
      count(captured);
    }
    done_ = queue_.record();
  }
  bool advance() {
    if (!running_) return true;
    running_ = !inner_->poll_completion(done_);
    return !running_;
  }
  Waiting waiting() const { return {.peer = running_ ? inner_->late_peer() : -1}; }
  const PayloadBytes& payload() const { return payload_; }

 private:
  struct Captured {
    runtime::CudaGraph graph;
    PayloadBytes before, after;  ///< the collective's payload before and after the capture, which counted the calls
  };
  using Key = std::tuple<const std::byte*, std::byte*, std::size_t, core::Element, core::Element, Op, std::size_t>;

  const Captured& captured_call(const Call& call, std::size_t calls) {
    if (call.out.bytes() != bytes_) graphs_.clear();
    bytes_ = call.out.bytes();
    const Key key{
        call.in.address(), call.out.address(), call.count(), call.element(), call.accumulates_in(), call.op, calls};
    const auto found = graphs_.find(key);
    if (found != graphs_.end()) return found->second;
    const auto enqueue_calls = [&] {
      for (std::size_t i = 0; i < calls; ++i) inner_->enqueue(call);
    };
    const PayloadBytes before = PayloadBytes::of(*inner_);
    runtime::CudaGraph graph(queue_, enqueue_calls);  // a capture may end in an abort, which clears the other graphs
    return graphs_.emplace(key, Captured{std::move(graph), before, PayloadBytes::of(*inner_)}).first->second;
  }
  void count(const Captured& c) {
    if (!payload_.sent || !payload_.required) return;
    *payload_.sent += *c.after.sent - *c.before.sent;
    *payload_.required += *c.after.required - *c.before.required;
  }
  void give_up() {
    inner_->abort();
    drain_before_free(queue_);
  }

  std::unique_ptr<StreamCollective> inner_;
  runtime::Queue& queue_;
  std::map<Key, Captured> graphs_;  ///< destroyed before the collective that they call
  PayloadBytes payload_ = PayloadBytes::of(*inner_);
  std::size_t bytes_ = 0;
  runtime::EventPtr done_;
  bool running_ = false;
};

class GraphedCollective final : public Collective {
 public:
  GraphedCollective(std::shared_ptr<CapturedCalls> calls, GraphShape shape) : calls_(std::move(calls)), shape_(shape) {}
  const std::string& name() const override { return calls_->inner().name(); }
  const std::string& algorithm_for(std::uint64_t bytes) const override { return calls_->inner().algorithm_for(bytes); }
  bool takes_device_memory() const override { return true; }
  bool works_on_device_memory() const override { return true; }
  bool holds_up_other_calls() const override { return true; }
  void start(const Call& call) override { calls_->start(call, shape_); }
  bool advance() override { return calls_->advance(); }
  Waiting waiting() const override { return calls_->waiting(); }
  std::optional<runtime::Traffic> sent() const override { return calls_->payload().sent; }
  std::optional<std::uint64_t> bytes_required() const override { return calls_->payload().required; }

 private:
  std::shared_ptr<CapturedCalls> calls_;
  GraphShape shape_;
};

}  // namespace

std::string graph_refusal(const runtime::Communicator& c, runtime::Queue& queue) {
  const auto* const gpu = dynamic_cast<const runtime::CudaDevice*>(&queue.device());
  if (!gpu || c.ranks_as() == runtime::RanksAs::processes) return {};
  const std::vector<int> gpus = c.all_gather_value(gpu->number());
  return graph_refusal(gpus);
}

GraphedCollectives capture_calls(std::unique_ptr<Collective> inner, runtime::Queue& queue, GraphShape iteration) {
  auto* const in_stream = dynamic_cast<StreamCollective*>(inner.get());
  if (!in_stream) {
    throw core::BackendError("CUDA", "cudaStreamBeginCapture",
                             fmt::format("{} needs the host between its parts, and cannot be captured", inner->name()));
  }
  (void)inner.release();
  const auto calls = std::make_shared<CapturedCalls>(std::unique_ptr<StreamCollective>(in_stream), queue);
  return {.one = std::make_unique<GraphedCollective>(calls, GraphShape{}),
          .iteration = std::make_unique<GraphedCollective>(calls, iteration)};
}
#else
std::string graph_refusal(const runtime::Communicator&, runtime::Queue&) { return {}; }
GraphedCollectives capture_calls(std::unique_ptr<Collective>, runtime::Queue&, GraphShape) {
  throw core::BackendError("CUDA", "cudaStreamBeginCapture", "this program was built without CUDA");
}
#endif

// A call that is given up may have copies under way.
StagedCollective::~StagedCollective() {
  if (phase_ != Phase::idle) drain_before_free(queue_);
}

void StagedCollective::start(const Call& call) {
  call_ = call;
  queue_.to_transport(call.in);
  copied_ = queue_.record();
  phase_ = Phase::leaving;
}

void StagedCollective::exchange() {
  const auto& device = queue_.device();
  Call call = call_;
  call.in = {call_.in.element(), std::span(device.transport_address(call_.in), call_.in.bytes())};
  call.out = {call_.out.element(), std::span(device.transport_address(call_.out), call_.out.bytes())};
  inner_->start(call);
  phase_ = Phase::exchanging;
}

bool StagedCollective::advance() {
  if (phase_ == Phase::leaving) {
    if (copied_ && !copied_->reached()) return false;
    exchange();
  }
  if (phase_ == Phase::exchanging) {
    if (!inner_->advance()) return false;
    queue_.from_transport(call_.out);
    copied_ = queue_.record();
    phase_ = Phase::arriving;
  }
  if (phase_ == Phase::arriving && copied_ && !copied_->reached()) return false;
  phase_ = Phase::idle;
  return true;
}

}  // namespace gradmeter::allreduce
