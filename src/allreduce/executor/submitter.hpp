// SPDX-License-Identifier: Apache-2.0
// Runs the copies, sums and codec work of a plan: by functions of the host, or by a GPU's kernels in the stream of the
// queue that runs the work.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allreduce/reduce.hpp"
#include "runtime/device.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::allreduce {

/// The functions that a plan's work calls: host functions on host memory, or launches of GPU kernels on device memory,
/// which give the same bits. count: elements.
struct SliceKernels {
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);
  void (*reduce)(core::Element, core::Element accumulate, Op, std::byte* to, std::span<const std::byte* const> sources,
                 std::size_t count);
  void (*finish)(core::Element, Op, std::byte* to, const std::byte* from, std::size_t count, int ranks);
};
inline constexpr SliceKernels host_kernels{
    .copy = [](std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
    .reduce = reduce,
    .finish = finish};

/// The reason why a GPU's kernels cannot add up the contributions of `ranks` ranks; empty: they can.
std::string gpu_kernels_refusal(std::uint32_t ranks);
/// The launches for a GPU. Errors: BackendError without CUDA.
const SliceKernels& gpu_kernels();

// Work is done at once on the caller's thread (AtOnce), or submitted to a queue (Submitter). A lane is compiled for one
// of the two.

/// The addresses that a sum reads.
using SourceAddresses = std::vector<const std::byte*>;

/// Does work at once, on the caller's thread.
class AtOnce {
 public:
  static constexpr bool at_once = true;
  /// The functions are known at compile time, so that a step calls them directly.
  static constexpr SliceKernels kernels() { return host_kernels; }
  template <class Work>
  static void run(std::string_view, std::size_t, const Work& work) {
    work();
  }
  template <class Add>
  static void sum(std::size_t, const SourceAddresses& sources, const Add& add) {
    add(sources);
  }
  static bool done() { return true; }
  static bool received_memory_is_free() { return true; }
  static void release(runtime::Transport& t, runtime::MessageHandle& message) { t.release(message); }
  static void release_read_messages(runtime::Transport&) {}
};

/// Submits the work of one lane to a queue, in order.
class Submitter {
 public:
  static constexpr bool at_once = false;
  /// kernels: the functions for the memory on which the work is done.
  explicit Submitter(runtime::Queue& queue, const SliceKernels& kernels = host_kernels)
      : queue_(&queue), kernels_(&kernels) {}
  const SliceKernels& kernels() const { return *kernels_; }

  /// Submits work that moves `bytes` to and from memory. Objects that the work refers to must live until it is done.
  template <class Work>
  void run(std::string_view label, std::size_t bytes, const Work& work) {
    queue_->submit(label, {.flops = 0, .bytes = static_cast<double>(bytes)}, work);
    ++submitted_;
  }
  /// Submits `add(sources)`, which reads messages in the memory where they were received.
  template <class Add>
  void sum(std::size_t bytes, const SourceAddresses& sources, const Add& add) {
    run("reduce", bytes, [add, sources] { add(sources); });
    last_sum_ = submitted_;
  }
  /// True once all submitted work is done.
  bool done() { return done(submitted_); }
  /// True once the memory of received messages may be overwritten, since the work that reads them is done.
  bool received_memory_is_free() { return done(last_sum_); }
  /// Releases the message once all work that was submitted so far is done, since that work may read the message. The
  /// release happens in `release_read_messages`, which must be given the same transport.
  void release(runtime::Transport&, const runtime::MessageHandle& message) {
    messages_in_use_.emplace_back(submitted_, message);
  }
  /// Releases all messages whose work is done.
  void release_read_messages(runtime::Transport& t) {
    for (; !messages_in_use_.empty() && done(messages_in_use_.front().first); messages_in_use_.pop_front())
      t.release(messages_in_use_.front().second);
  }

 private:
  /// True once work number `work` is done. An event is recorded only here; it covers all work submitted before it.
  bool done(std::uint64_t work) {
    if (done_ >= work) return true;
    if (recorded_ < work) event_ = queue_->record(), recorded_ = submitted_;
    if (event_ && !event_->reached()) return false;
    done_ = recorded_;
    return true;
  }

  runtime::Queue* queue_;
  const SliceKernels* kernels_;
  /// Messages that work reads, each with the number of the last work that may read it, in ascending order.
  std::deque<std::pair<std::uint64_t, runtime::MessageHandle>> messages_in_use_;
  // Numbers of work, counted from 1 in the order of submission; 0: none.
  std::uint64_t last_sum_ = 0;  ///< number of the last sum of received data
  /// The number of the last work that was submitted, that `event_` covers, and that is known to be done.
  std::uint64_t submitted_ = 0, recorded_ = 0, done_ = 0;
  runtime::EventPtr event_;  ///< recorded after work number `recorded_`
};

}  // namespace gradmeter::allreduce
