// A collective that is nothing but work in its queue's stream, so that it can be captured.
#pragma once
#include <functional>

#include "allreduce/collective.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::allreduce {

class StreamCollective : public Collective {
 public:
  bool takes_device_memory() const override { return true; }
  bool reads_device() const override { return true; }
  /// Puts a whole call into the queue's stream, which may be captured; returns when it is there, and no call is under
  /// way then: the stream says when it is done. All ranks make equal calls in the same order, captured on all or on
  /// none. Errors: as `start`.
  virtual void enqueue(const Call&) = 0;

  /// For whoever launches what `enqueue` has put into a graph. Launches are calls too: the same on all ranks.
  virtual void launched() {}
  /// While waiting for the stream. Errors: BackendError, PeerFailed.
  virtual void check() {}
  /// The stream is past the launch. Errors: BackendError.
  virtual void completed() {}
  /// Is the stream past `done`, which was recorded behind a call or a launch? It is complete then. Errors: of both.
  bool completes(const runtime::EventPtr& done) {
    if (done && !done->reached()) {
      check();
      return false;
    }
    completed();
    return true;
  }
  virtual int late_peer() const { return -1; }
  /// Ends what is under way on this rank, so that its stream goes on.
  virtual void abort() noexcept {}
  /// Is called before an abort, for whatever reason. Null: nothing is.
  virtual void before_abort(std::function<void()>) {}
};

}  // namespace gradmeter::allreduce
