// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/ranks/engine.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/fabric/ranks/messenger.hpp"
#include "runtime/communicator.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/threads/this_thread.hpp"

namespace gradmeter::dataparallel {

const Completion& PendingEngineCall::completion() const {
  if (!done()) throw std::logic_error("a call's completion was asked for before it was done");
  return completion_;
}

Engine::Engine(ProgressMode mode, runtime::SpinPolicy spin_policy, runtime::Activity& activity)
    : mode_(mode), backoff_(spin_policy), activity_(activity) {
  if (mode_ == ProgressMode::thread) thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  if (!thread_.joinable()) return;
  const auto all_left = [this] {
    const std::lock_guard lock(mutex_);
    return attached_.empty() &&
           std::all_of(messengers_.begin(), messengers_.end(), [](const Messenger* m) { return m->idle(); });
  };
  while (runtime::may_call_collectives() && !failed_.load(std::memory_order_acquire) && !all_left())
    std::this_thread::yield();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake();
  }
  thread_.join();
}

void Engine::submit(EngineTicket op) {
  op->completion_.posted = runtime::host_clock();
  if (mode_ == ProgressMode::on_wait) {
    active_.push_back(std::move(op));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(std::move(op));
    wake();
  }
}

void Engine::take_submitted() {
  for (auto& op : submitted_) active_.push_back(std::move(op));
  submitted_.clear();
  messengers_.insert(messengers_.end(), attached_.begin(), attached_.end());
  attached_.clear();
}

bool Engine::poll_one(PendingEngineCall& op) {
  if (!op.started_) {
    if (op.ready_event_ && !op.ready_event_->reached()) return false;
    op.completion_.started = runtime::host_clock();
    op.start();
    op.started_ = true;
  }
  if (!op.advance()) return false;
  op.completion_.finished = runtime::host_clock();
  op.done_.store(true, std::memory_order_release);
  op.done_.notify_all();
  return true;
}

void Engine::attach(Messenger& m) {
  if (mode_ != ProgressMode::thread) throw std::logic_error("messages need a progress thread");
  const std::lock_guard lock(mutex_);
  attached_.push_back(&m);
  wake();
}

void Engine::report(std::exception_ptr e) {
  const std::lock_guard lock(mutex_);
  if (!reported_) reported_ = std::move(e);
  wake();
}

std::shared_ptr<void> Engine::pause_progress() {
  pause(true);
  return {this, [](Engine* engine) { engine->pause(false); }};
}

void Engine::pause(bool yes) {
  if (mode_ != ProgressMode::thread) return;
  std::unique_lock lock(mutex_);
  pauses_ += yes ? 1 : -1;
  wake();
  if (yes) parking_.wait(lock, [this] { return parked_; });
  for (const auto* messengers : {&messengers_, &attached_}) {
    for (Messenger* m : *messengers) m->pause(pauses_ > 0);
  }
}

bool Engine::poll() {
  bool moved = false;
  for (Messenger* m : messengers_) moved |= m->poll();
  std::vector<int> blocked;  // sequences with a call for which later calls of the sequence must wait
  for (std::size_t i = 0; i < active_.size();) {
    PendingEngineCall& op = *active_[i];
    const bool must_wait = !op.started_ && std::find(blocked.begin(), blocked.end(), op.sequence_) != blocked.end();
    if (!must_wait && poll_one(op)) {
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
      continue;
    }
    if (op.sequence_ >= 0 || !op.started_) blocked.push_back(op.sequence_);
    ++i;
  }
  return moved;
}

void Engine::note_waiting(const PendingEngineCall& op) {
  const allreduce::Waiting waiting = op.started_ ? op.waiting() : allreduce::Waiting{};
  activity_.waiting({.operation = op.label_,
                     .peer = waiting.peer < 0 ? -1 : op.world_rank(waiting.peer),
                     .round = waiting.rounds ? static_cast<int>(waiting.round) - 1 : -1,
                     .rounds = waiting.rounds ? static_cast<int>(waiting.rounds) : -1});
}

void Engine::wait(PendingEngineCall& op) {
  if (mode_ == ProgressMode::thread) {
    while (!op.done()) op.done_.wait(false, std::memory_order_acquire);
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
    return;
  }
  bool waited = false;
  while (!op.done()) {
    if (poll()) {
      activity_.beat();
      backoff_.reset();
    } else {
      note_waiting(op);
      waited = true;
      backoff_.wait();
    }
  }
  if (waited) activity_.wait_ended();
}

void Engine::fail(std::exception_ptr e) {
  // Only the first error is kept: it is the cause, and the computing thread may be reading it already.
  if (!failed_.load(std::memory_order_relaxed)) error_ = std::move(e);
  failed_.store(true, std::memory_order_release);
  abandon();
}

/// Ends all calls, those posted before the error and those posted after it, so that threads that wait for them find the
/// error.
void Engine::abandon() {
  for (Messenger* m : messengers_) m->fail(error_);
  for (auto& op : active_) {
    op->done_.store(true, std::memory_order_release);
    op->done_.notify_all();
  }
  active_.clear();
}

/// Sleeps while there is nothing to move, or progress is paused. Returns false when the engine is being destroyed.
bool Engine::await_work() {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] {
    return reported_ || !submitted_.empty() || !active_.empty() || !attached_.empty() ||
           (!messengers_.empty() && !failed_);
  };
  const auto may_go_on = [&] { return stop_ || (pauses_ == 0 && has_work()); };
  if (!may_go_on()) {
    parked_ = true;
    parking_.notify_all();
    work_.wait(lock, may_go_on);
    parked_ = false;
  }
  take_submitted();
  if (reported_) fail(std::exchange(reported_, nullptr));
  if (failed_) abandon();
  return !stop_;  // then calls that are still under way are abandoned
}

/// Waits between two polls that moved nothing. A thread that waits for a message polls too. So if cores are shared and
/// only messages are under way, this thread sleeps and leaves its core to a thread that computes.
void Engine::wait_between_polls() {
  if (!active_.empty() || messengers_.size() != 1 || !backoff_.may_sleep()) return backoff_.wait();
  messengers_.front()->sleep_until_rung([this] {
    const std::lock_guard lock(mutex_);
    return stop_ || pauses_ > 0 || reported_ || !submitted_.empty() || !attached_.empty();
  });
}

void Engine::wake() {
  work_.notify_one();
  for (Messenger* m : messengers_) m->wake();
}

void Engine::run() {
  runtime::request_short_time_slices();
  while (await_work()) {
    try {
      if (poll()) {
        activity_.wait_ended();
        backoff_.reset();
      } else {
        if (!active_.empty()) note_waiting(*active_.front());
        wait_between_polls();
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }
}

namespace {

constexpr int channel = 0;  // transports of messages have only this channel

/// The sequence of sends to a peer, or of receives from it. A message that is not ready delays later messages of its
/// sequence only.
int sequence_of(CallKind kind, int peer) { return (kind == CallKind::send ? -1 : -2) - 2 * peer; }

}  // namespace

void CollectiveOperation::start() {
  sent_before_ = collective_.sent();
  required_before_ = collective_.bytes_required();
  coding_before_ = collective_.coding();
  collective_.start(call_);
}

bool CollectiveOperation::advance() {
  if (!collective_.advance()) return false;
  if (const auto sent = collective_.sent()) {
    completion_.bytes_sent = sent->bytes - sent_before_->bytes;
    completion_.bytes_between_nodes = sent->bytes_between_nodes - sent_before_->bytes_between_nodes;
    completion_.bytes_required = *collective_.bytes_required() - *required_before_;
  }
  if (const auto coding = collective_.coding()) {
    completion_.encode_s = coding->encode_s - coding_before_->encode_s;
    completion_.decode_s = coding->decode_s - coding_before_->decode_s;
  }
  return true;
}

MessageOperation::MessageOperation(CallKind kind, runtime::EventPtr ready, runtime::Transport& t, int peer,
                                   std::span<const std::byte> in, std::span<std::byte> out,
                                   const std::vector<int>& world_ranks)
    : PendingEngineCall(dataparallel::label(kind), sequence_of(kind, peer), std::move(ready)),
      kind_(kind),
      transport_(t),
      peer_(peer),
      in_(in),
      out_(out),
      world_ranks_(world_ranks) {
  completion_.bytes_required = in.size();
}

void MessageOperation::start() {
  if (!in_.empty()) send();
  if (!out_.empty()) handle_ = transport_.receive(peer_, channel, out_);
}

void MessageOperation::send() {
  if (!transport_.can_send_from(in_)) {
    throw core::BackendError("dataparallel", "send",
                             fmt::format("the peer cannot read this buffer over {}; take it from the fabric's memory "
                                         "or use transport mpi",
                                         transport_.name()));
  }
  const runtime::Traffic before = transport_.traffic();
  handle_ = transport_.send(peer_, channel, in_);
  const runtime::Traffic sent = transport_.traffic() - before;
  completion_.bytes_sent = sent.bytes;
  completion_.bytes_between_nodes = sent.bytes_between_nodes;
}

bool MessageOperation::advance() {
  if (kind_ == CallKind::receive && out_.empty()) return true;
  transport_.progress();
  if (kind_ == CallKind::send) return transport_.send_done(handle_);
  const std::byte* from = transport_.try_receive(handle_);
  if (!from) return false;
  if (from != out_.data()) std::memcpy(out_.data(), from, out_.size());
  transport_.release(handle_);
  return true;
}

}  // namespace gradmeter::dataparallel
