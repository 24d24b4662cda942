// SPDX-License-Identifier: Apache-2.0
// Collectives on a GPU's memory. Some run wholly in their queue's stream, so that CUDA graphs can capture them; others
// copy to host memory, exchange there, and copy back.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "allreduce/collective.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"

namespace gradmeter::allreduce {

/// A collective whose calls run wholly in their queue's stream.
class StreamCollective : public Collective {
 public:
  bool takes_device_memory() const override { return true; }
  bool works_on_device_memory() const override { return true; }
  bool holds_up_other_calls() const override { return true; }
  /// Puts a whole call into the queue's stream, which may be in capture, and returns. Such a call needs no `advance`:
  /// an event in the stream says when it is done. All ranks make equal calls in the same order, captured on all ranks
  /// or on none.
  /// Errors: as `start`.
  virtual void enqueue(const Call&) = 0;

  /// Starts the time limit for peers. Call it before a graph of captured calls is launched; if the graph is launched
  /// several times in a row, call it once, before the first launch. All ranks make equal launches in the same order.
  virtual void before_launch() {}
  /// To be called while waiting for the stream. Errors: BackendError, PeerFailed.
  virtual void check() {}
  /// To be called once the stream has done the call or the launched graph. Errors: BackendError.
  virtual void note_completion() {}
  /// Calls `note_completion` and returns true once the stream has reached `done`, the event behind a call or a launch
  /// (null: at once); until then calls `check` and returns false. Errors: those of `check` and `note_completion`.
  bool poll_completion(const runtime::EventPtr& done) {
    if (done && !done->reached()) {
      check();
      return false;
    }
    note_completion();
    return true;
  }
  /// A rank that has made fewer calls than this one; -1: none is known.
  virtual int late_peer() const { return -1; }
  /// Ends the calls under way on this rank without a result, so that its stream can go on.
  virtual void abort() noexcept {}
  /// Sets a function that is called before every abort. Null: none is called.
  virtual void on_abort(const std::function<void()>&) {}
};

// Runs calls of a collective as CUDA graphs.

/// The shape of an iteration: a graph of `calls` calls, one after another, which is launched `launches` times.
struct GraphShape {
  std::size_t calls = 1, launches = 1;
};

/// Two collectives that run each call as a CUDA graph. The first call on given buffers captures the graph and launches
/// it; later calls on these buffers only launch it. Only the graphs for calls of one length are kept; a call of another
/// length discards them. Since the first call is slower, a caller that times calls first makes an untimed one.
/// Source: CUDA C++ Programming Guide, "CUDA Graphs"; NCCL User Guide, "Using NCCL with CUDA Graphs"
struct GraphedCollectives {
  std::unique_ptr<Collective> one;        ///< a call to it launches, once, a graph that holds one captured call
  std::unique_ptr<Collective> iteration;  ///< a call to it launches the graph of the iteration `launches` times
};
/// The reason why no collective of these ranks can be captured on the queue's device; empty: there is none, but a
/// collective may still refuse. To be called by all ranks, which get the same result. Ranks that are threads of one
/// process with several GPUs are refused. Their graphs wait for each other, but the launch of one graph may block the
/// launches of the others, which would be a deadlock.
/// Source: NCCL User Guide, "Using NCCL with CUDA Graphs", "Requirements and Limitations"
std::string graph_refusal(const runtime::Communicator&, runtime::Queue&);
/// The same reason, from the CUDA device numbers of the ranks of one process.
std::string graph_refusal(std::span<const int> gpus_of_process);
/// Only one call of the two collectives may be under way at a time. The queue must outlive them. Errors: BackendError
/// where the collective does not run in its queue's stream, or without CUDA; a call that cannot be captured throws.
GraphedCollectives capture_calls(std::unique_ptr<Collective>, runtime::Queue&, GraphShape iteration);

// Runs a collective of the host's memory on buffers of a device, by way of memory that transports reach.

/// A call copies its input to memory that transports reach, exchanges it, and copies the result back: three steps one
/// after another, each on the whole buffer. Work that was submitted to the queue before the call is done first, and
/// `advance` is true once the device holds the result. All other functions are those of the inner collective.
class StagedCollective final : public Collective {
 public:
  /// The queue is that of a device that `is_staged`, and outlives this object.
  StagedCollective(std::unique_ptr<Collective> inner, runtime::Queue& queue)
      : inner_(std::move(inner)), queue_(queue) {}
  ~StagedCollective() override;
  const std::string& name() const override { return inner_->name(); }
  const std::string& algorithm_for(std::uint64_t bytes) const override { return inner_->algorithm_for(bytes); }
  const Collective& serving(std::uint64_t bytes) const override { return inner_->serving(bytes); }
  bool takes_device_memory() const override { return true; }
  bool works_on_device_memory() const override { return true; }
  bool holds_up_other_calls() const override { return inner_->holds_up_other_calls(); }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override { return inner_->waiting(); }
  std::optional<runtime::Traffic> sent() const override { return inner_->sent(); }
  std::optional<std::uint64_t> bytes_required() const override { return inner_->bytes_required(); }
  std::optional<CodingTime> coding() const override { return inner_->coding(); }
  CodecState take_state() override { return inner_->take_state(); }
  void restore_state(const CodecState& s) override { inner_->restore_state(s); }

 private:
  /// leaving: the input is copied to host memory; arriving: the result is copied back to the device.
  enum class Phase : std::uint8_t { idle, leaving, exchanging, arriving };
  void exchange();

  std::unique_ptr<Collective> inner_;
  runtime::Queue& queue_;
  Call call_{};
  runtime::EventPtr copied_;  ///< reached when the copy to or from host memory is done
  Phase phase_ = Phase::idle;
};

}  // namespace gradmeter::allreduce
