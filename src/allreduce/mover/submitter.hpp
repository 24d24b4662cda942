// Where copies, sums and codecs' work go: done at once on the caller's thread, or submitted to a queue. A pipeline is
// made for one of the two.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "allreduce/mover/kernels.hpp"
#include "runtime/queue.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::allreduce {

/// The addresses that a sum reads.
using Sources = std::vector<const std::byte*>;

/// On the caller's thread.
class AtOnce {
 public:
  static constexpr bool at_once = true;
  static constexpr HostKernels kernels() { return {}; }
  template <class Work>
  static void run(std::string_view, std::size_t, const Work& work) {
    work();
  }
  template <class Add>
  static void sum(std::size_t, const Sources& sources, const Add& add) {
    add(sources);
  }
  static bool done() { return true; }
  static bool landing_read() { return true; }
  static void release(runtime::Transport& t, runtime::MessageHandle& message) { t.release(message); }
  static void release_read(runtime::Transport&) {}
};

/// The work of one pipeline, in order.
class Submitter {
 public:
  static constexpr bool at_once = false;
  /// kernels: of the memory that the work is on.
  explicit Submitter(runtime::Queue& queue, const SliceKernels& kernels = host_kernels)
      : queue_(&queue), kernels_(&kernels) {}
  const SliceKernels& kernels() const { return *kernels_; }

  /// `bytes` are moved to and from memory. What the work refers to must live until it is done.
  template <class Work>
  void run(std::string_view label, std::size_t bytes, const Work& work) {
    queue_->submit(label, {.flops = 0, .bytes = static_cast<double>(bytes)}, work);
    ++submitted_;
  }
  /// `add(sources)` reads messages where they have landed.
  template <class Add>
  void sum(std::size_t bytes, const Sources& sources, const Add& add) {
    run("reduce", bytes, [add, sources] { add(sources); });
    landing_read_ = submitted_;
  }
  /// Is all of it done?
  bool done() { return done(submitted_); }
  /// May the landing be written?
  bool landing_read() { return done(landing_read_); }
  /// Once the work so far, which reads it, is done. The transport must outlive it.
  void release(runtime::Transport&, const runtime::MessageHandle& message) {
    reading_.push_back({submitted_, message});
  }
  void release_read(runtime::Transport& t) {
    for (; !reading_.empty() && done(reading_.front().work); reading_.pop_front()) t.release(reading_.front().message);
  }

 private:
  /// Messages that work reads, in its order.
  struct Read {
    std::uint64_t work;
    runtime::MessageHandle message;
  };
  /// An event is recorded only where one is asked for, and serves all that was before it.
  bool done(std::uint64_t work) {
    if (done_ >= work) return true;
    if (recorded_ < work) event_ = queue_->record(), recorded_ = submitted_;
    if (event_ && !event_->reached()) return false;
    done_ = recorded_;
    return true;
  }

  runtime::Queue* queue_;
  const SliceKernels* kernels_;
  std::deque<Read> reading_;
  std::uint64_t landing_read_ = 0;
  std::uint64_t submitted_ = 0, recorded_ = 0, done_ = 0;
  runtime::EventPtr event_;  ///< after the recorded work
};

}  // namespace gradmeter::allreduce
