// Makes progress on the calls of one rank: in the waiting thread, or in a progress thread while the rank computes.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "allreduce/collective.hpp"
#include "dataparallel/fabric.hpp"
#include "runtime/process/activity.hpp"
#include "runtime/time/backoff.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::dataparallel {

/// Which thread moves bytes. on_wait: the thread that waits, so nothing moves while it computes. thread: a progress
/// thread.
enum class ProgressMode { on_wait, thread };

/// A call as the engine sees it: something to start and to advance.
class EngineOperation : public Operation {
 public:
  EngineOperation(const char* label, int order, runtime::EventPtr ready)
      : label_(label), order_(order), ready_(std::move(ready)) {}
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
  int order_;  ///< calls of one order run one after another; with a negative one they start in order and overlap
  runtime::EventPtr ready_;
  bool started_ = false;
  std::atomic<bool> done_{false};
};
using EngineTicket = std::shared_ptr<EngineOperation>;

/// Polled in every pass for as long as it is attached: messages, which arrive at any time.
class Pollable {
 public:
  virtual ~Pollable() = default;
  /// One pass; true when anything moved.
  virtual bool poll() = 0;
  /// No message waits to leave.
  virtual bool idle() const = 0;
  /// Sleeps until something may have come, or some time has passed. needed: there is other work, asked at the last
  /// moment before. Another thread may poll meanwhile.
  virtual void doze(const std::function<bool()>& needed) = 0;
  /// Any thread: ends a `doze`.
  virtual void wake() = 0;
  /// From now on nothing moves, whoever polls; or it may again.
  virtual void pause(bool) = 0;
  /// The engine has failed, or ends: nothing will make progress any more.
  virtual void fail(std::exception_ptr) = 0;
};

/// The first error of the progress thread is thrown from every `wait` after it. The destructor gives up calls that are
/// under way, but lets messages leave first, because tasks usually end with one.
class Engine {
 public:
  Engine(ProgressMode, runtime::SpinPolicy, runtime::Activity&);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void submit(EngineTicket);
  void wait(EngineOperation&);
  ProgressMode mode() const { return mode_; }

  /// Only with a progress thread. It must outlive the engine.
  void attach(Pollable&);
  /// An error of a background task: every wait on this engine throws it. Any thread.
  void report(std::exception_ptr);
  /// While it lives the progress thread moves nothing, so that whatever else is measured has the machine to itself.
  class ProgressPause {
   public:
    explicit ProgressPause(Engine& e) : engine_(e) { engine_.hold(true); }
    ~ProgressPause() { engine_.hold(false); }
    ProgressPause(const ProgressPause&) = delete;
    ProgressPause& operator=(const ProgressPause&) = delete;

   private:
    Engine& engine_;
  };

 private:
  void hold(bool);
  bool poll();  ///< one pass over what is under way; true when anything moved
  bool poll_one(EngineOperation&);
  void note_waiting(const EngineOperation&);
  void take_submitted();
  void fail(std::exception_ptr);
  void abandon();
  bool await_work();
  void wait();
  void wake();  ///< under the lock
  void run();   ///< the progress thread

  ProgressMode mode_;
  runtime::Backoff backoff_;  ///< used by the moving thread alone
  runtime::Activity& activity_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<EngineTicket> submitted_;  ///< by the computing thread, not yet taken by the moving one
  std::deque<EngineTicket> active_;      ///< used by the moving thread alone
  std::vector<Pollable*> attached_;      ///< not yet taken by the progress thread
  std::vector<Pollable*> pollables_;     ///< changed by the progress thread alone, and under the lock
  std::exception_ptr reported_;
  int holds_ = 0;
  bool parked_ = false;  ///< the progress thread sleeps until it is notified
  std::condition_variable parking_;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gradmeter::dataparallel
