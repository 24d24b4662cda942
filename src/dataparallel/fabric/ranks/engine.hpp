// SPDX-License-Identifier: Apache-2.0
// The engine that makes progress on the calls of one rank: in the waiting thread, or in a progress thread while the
// rank computes.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "allreduce/collective.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "runtime/clock.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/backoff.hpp"

namespace gradmeter::dataparallel {

/// The thread that moves bytes. on_wait: the thread that waits for a call, so nothing moves while it computes. thread:
/// a progress thread.
enum class ProgressMode { on_wait, thread };

/// The sequence of all collectives that hold up other calls (Collective::holds_up_other_calls), whatever their group.
/// They start in the order of submission, which is the same on all ranks. The order in which they become ready differs
/// between ranks; if they started in that order, ranks would wait for each other for ever.
inline constexpr int ordered_collectives = std::numeric_limits<int>::max();

/// A call as the engine sees it. The engine calls `start` once, then `advance` until it returns true.
class PendingEngineCall : public PendingCall {
 public:
  PendingEngineCall(const char* label, int sequence, runtime::EventPtr ready)
      : label_(label), sequence_(sequence), ready_event_(std::move(ready)) {}
  std::string_view label() const final { return label_; }
  bool done() const final { return done_.load(std::memory_order_acquire); }
  const Completion& completion() const final;

 protected:
  virtual void start() = 0;
  virtual bool advance() = 0;
  virtual allreduce::Waiting waiting() const { return {}; }
  /// The peer's rank in the world, for the watchdog's line.
  virtual int world_rank(int peer) const { return peer; }
  Completion completion_;

 private:
  friend class Engine;
  const char* label_;
  /// The sequence that the call belongs to; the calls of a sequence start in the order of submission. 0 or more (the
  /// collectives of one group, or `ordered_collectives`): a call starts when the previous call is done. Negative (the
  /// sends to one peer, or the receives from one peer): calls may overlap.
  int sequence_;
  runtime::EventPtr ready_event_;
  bool started_ = false;
  std::atomic<bool> done_{false};
};
using EngineTicket = std::shared_ptr<PendingEngineCall>;

class Messenger;

/// Runs the calls of one rank. After an error in the progress thread, every `wait` throws the first such error. The
/// destructor abandons calls that are under way, but waits until posted messages have left, because tasks usually end
/// by posting a message.
class Engine {
 public:
  Engine(ProgressMode, runtime::SpinPolicy, runtime::Activity&);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void submit(EngineTicket);
  void wait(PendingEngineCall&);
  ProgressMode mode() const { return mode_; }

  /// From now on, the progress thread polls this messenger too, since messages arrive at any time. Errors:
  /// std::logic_error without a progress thread. The messenger must outlive the engine.
  void attach(Messenger&);
  /// Reports an error of a background task; every later `wait` throws it. Any thread may call this function.
  void report(std::exception_ptr);
  /// As long as the returned object lives, the progress thread moves nothing, so that other measurements have the
  /// machine to themselves.
  std::shared_ptr<void> pause_progress();

 private:
  void pause(bool);
  bool poll();  ///< makes one pass over all calls and messengers; true when anything moved
  bool poll_one(PendingEngineCall&);
  void note_waiting(const PendingEngineCall&);
  void take_submitted();
  void fail(std::exception_ptr);
  void abandon();
  bool await_work();
  void wait_between_polls();
  void wake();  ///< call it under the lock
  void run();   ///< the loop of the progress thread

  ProgressMode mode_;
  runtime::Backoff backoff_;  ///< used only by the thread that moves bytes
  runtime::Activity& activity_;
  std::mutex mutex_;
  std::condition_variable work_;
  /// Calls that were submitted and that the progress thread has not taken yet.
  std::vector<EngineTicket> submitted_;
  std::deque<EngineTicket> active_;     ///< calls under way; used only by the thread that moves bytes
  std::vector<Messenger*> attached_;    ///< messengers that the progress thread has not taken yet
  std::vector<Messenger*> messengers_;  ///< changed by the progress thread alone, and under the lock
  std::exception_ptr reported_;         ///< an error of a background task, not yet taken by the progress thread
  int pauses_ = 0;                      ///< number of pauses that have begun and not ended
  bool parked_ = false;                 ///< the progress thread sleeps until `work_` is notified
  std::condition_variable parking_;     ///< notified when `parked_` becomes true
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  bool stop_ = false;
  std::thread thread_;
};

// The operations that a fabric over ranks submits to its engine: a collective, a send or a receive.

/// One call of a collective. The calls of a group may share one `Collective`: they belong to one sequence, so they run
/// one after another.
class CollectiveOperation final : public PendingEngineCall {
 public:
  /// world_ranks: for each member of the group, its rank in the world. This vector and `label` must outlive the
  /// operation.
  CollectiveOperation(const char* label, int sequence, runtime::EventPtr ready, allreduce::Collective& collective,
                      allreduce::Call call, const std::vector<int>& world_ranks)
      : PendingEngineCall(label, sequence, std::move(ready)),
        collective_(collective),
        call_(call),
        world_ranks_(world_ranks) {}

 private:
  void start() override;
  bool advance() override;
  allreduce::Waiting waiting() const override { return collective_.waiting(); }
  int world_rank(int peer) const override { return world_ranks_[static_cast<std::size_t>(peer)]; }

  allreduce::Collective& collective_;
  allreduce::Call call_;
  const std::vector<int>& world_ranks_;
  // The collective's totals when this call began.
  std::optional<runtime::Traffic> sent_before_;
  std::optional<std::uint64_t> required_before_;
  std::optional<allreduce::CodingTime> coding_before_;
};

/// A send or a receive. It does not wait for collectives, since messages have a transport of their own. It starts after
/// all earlier sends to (or receives from) the same peer have started, and waits for no other message.
class MessageOperation final : public PendingEngineCall {
 public:
  /// For a send, `out` is empty; for a receive, `in` is empty. world_ranks: as for CollectiveOperation.
  MessageOperation(CallKind, runtime::EventPtr ready, runtime::Transport&, int peer, std::span<const std::byte> in,
                   std::span<std::byte> out, const std::vector<int>& world_ranks);

 private:
  void start() override;
  bool advance() override;
  allreduce::Waiting waiting() const override { return {.peer = peer_}; }
  int world_rank(int peer) const override { return world_ranks_[static_cast<std::size_t>(peer)]; }
  void send();

  const CallKind kind_;
  runtime::Transport& transport_;
  int peer_;
  std::span<const std::byte> in_;
  std::span<std::byte> out_;
  const std::vector<int>& world_ranks_;
  runtime::MessageHandle handle_;
};

}  // namespace gradmeter::dataparallel
