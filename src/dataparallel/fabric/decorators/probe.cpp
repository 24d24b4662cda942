// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/decorators/probe.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradmeter::dataparallel {
namespace {

/// The part of the interval that lies in the step.
Interval clip(const Interval& x, const Interval& step) {
  return {std::max(x.begin, step.begin), std::min(x.end, step.end)};
}

std::vector<CallTimes> call_times(const StepRecord& r, std::span<const double> last_start,
                                  const std::vector<Interval>& computing) {
  std::vector<CallTimes> times;
  std::vector<Interval> covered = computing;  // the time of computations and of the calls so far
  for (std::size_t i = 0; i < r.calls.size(); ++i) {
    const Completion& c = r.calls[i].completion;
    const Interval call = clip({c.started, c.finished}, r.step);
    const double all_started = i < last_start.size() ? std::clamp(last_start[i], c.started, c.finished) : c.started;
    times.push_back({.posted = c.posted - r.step.begin,
                     .started = c.started - r.step.begin,
                     .finished = c.finished - r.step.begin,
                     .transfer = c.finished - all_started,
                     .exposed = total(subtract(unite({&call, 1}), covered))});
    covered.push_back(call);
    covered = unite(covered);
  }
  return times;
}

}  // namespace

Decomposition decompose(const StepRecord& r, std::span<const double> last_start,
                        std::span<const Interval> later_calls) {
  Decomposition d;
  d.step = r.step.length();
  std::vector<Interval> computing, communicating, exchanging, waiting, skewed;
  for (const auto& c : r.computations) (c.is_message_handling ? exchanging : computing).push_back(c.when);
  for (std::size_t i = 0; i < r.calls.size(); ++i) {
    const Completion& c = r.calls[i].completion;
    communicating.push_back(clip({c.started, c.finished}, r.step));
    if (i < last_start.size()) skewed.push_back(clip({c.started, std::min(last_start[i], c.finished)}, r.step));
    d.bytes_sent += c.bytes_sent;
    d.bytes_between_nodes += c.bytes_between_nodes;
    d.bytes_required += c.bytes_required.value_or(0);
    d.bytes_known &= c.bytes_required.has_value();
    d.encode += c.encode_s;
    d.decode += c.decode_s;
  }
  for (const Interval& call : later_calls) communicating.push_back(clip(call, r.step));
  for (const auto& w : r.waits) {
    d.waited += w.when.length();
    waiting.push_back(w.when);
  }
  computing = unite(computing);
  communicating = unite(communicating);
  d.handled = total(subtract(subtract(unite(exchanging), computing), unite(waiting)));
  d.compute = total(computing);
  d.communication = total(communicating);
  d.exposed = total(subtract(communicating, computing));
  d.overlap = d.communication - d.exposed;
  d.skew = total(subtract(unite(skewed), computing));
  d.calls = call_times(r, last_start, computing);
  for (const double ready : r.ready) d.ready.push_back(ready - r.step.begin);
  if (!r.ready.empty()) {
    const Interval before{r.step.begin, *std::ranges::max_element(r.ready)};
    d.update = total(subtract(computing, unite({&before, 1})));
  }
  return d;
}

namespace {

/// A background task's context, which adds the times of all computations to a CallLog.
class LoggedContext final : public ForwardingContext<ExecutionContext> {
 public:
  LoggedContext(ExecutionContext& inner, CallLog& log) : ForwardingContext(inner), background_log_(log) {
    inner_.log_to(&log_);
  }
  ~LoggedContext() override { inner_.log_to(nullptr); }
  LoggedContext(const LoggedContext&) = delete;
  LoggedContext& operator=(const LoggedContext&) = delete;

  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    inner_.submit(label, cost, work);
    background_log_.add(log_);
    log_.clear();
  }
  void log_to(ComputeLog*) override {}

 private:
  CallLog& background_log_;
  ComputeLog log_;
};

}  // namespace

void CallLog::set_recording(bool yes) {
  const std::lock_guard lock(mutex_);
  is_recording_ = yes;
}

void CallLog::add(const ComputeLog& log) {
  const std::lock_guard lock(mutex_);
  if (is_recording_) record_.computations.insert(record_.computations.end(), log.begin(), log.end());
}

void CallLog::add(const Ticket& t) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back(t);
}

void CallLog::collect_done() {
  const auto done = std::partition(under_way_.begin(), under_way_.end(), [](const Ticket& t) { return !t->done(); });
  for (auto it = done; it != under_way_.end(); ++it) {
    if (is_recording_) record_.calls.push_back({std::string((*it)->label()), (*it)->completion()});
    totals_.add((*it)->completion());
  }
  under_way_.erase(done, under_way_.end());
}

void Totals::add(const Completion& c) {
  bytes_sent += c.bytes_sent;
  bytes_between_nodes += c.bytes_between_nodes;
  bytes_required += c.bytes_required.value_or(0);
  bytes_known &= c.bytes_required.has_value();
  ++calls;
}

StepRecord CallLog::take() {
  const std::lock_guard lock(mutex_);
  collect_done();
  return std::exchange(record_, {});
}

Totals CallLog::totals() {
  const std::lock_guard lock(mutex_);
  collect_done();
  return totals_;
}

void CallLog::count_worker_call(const Completion& c) {
  const std::lock_guard lock(mutex_);
  totals_.add(c);
}

Probe::~Probe() {
  inner_.log_to(nullptr);
  if (steps_.empty()) return;
  try {
    inner_.synchronise();  // until this returns, the fabric writes times to the steps' records
  } catch (...) {          // NOLINT(bugprone-empty-catch): the device has failed, and writes nothing any more
  }
}

void Probe::begin_step() {
  if (steps_.empty()) kept_.clear();
  StepRecord& step = steps_.emplace_back();
  step.computations.reserve(most_submitted_);
  step.ready.assign(ready_time_count_, 0.0);
  inner_.log_to(&step.computations);
  inner_.stamp(step.step.begin);
  in_step_ = true;
}

void Probe::leave_step() {
  StepRecord& step = steps_.back();
  most_submitted_ = std::max(most_submitted_, step.submitted);
  inner_.log_to(nullptr);  // computation between steps (an evaluation) is in no step
  inner_.stamp(step.step.end);
  in_step_ = false;
  const auto first_done =
      std::stable_partition(tickets_.begin(), tickets_.end(), [](const Ticket& t) { return !t->done(); });
  for (auto it = first_done; it != tickets_.end(); ++it) {
    step.calls.push_back({std::string((*it)->label()), (*it)->completion()});
    background_log_.count_worker_call((*it)->completion());
    kept_.push_back(std::move(*it));
  }
  tickets_.erase(first_done, tickets_.end());
}

std::vector<StepRecord> Probe::take_steps() {
  inner_.synchronise();
  std::vector<StepRecord> taken(std::make_move_iterator(steps_.begin()), std::make_move_iterator(steps_.end()));
  steps_.clear();
  return taken;
}

const StepRecord& Probe::end_step() {
  leave_step();
  ended_ = std::move(take_steps().back());
  return ended_;
}

Totals Probe::totals() {
  Totals sum = background_log_.totals();
  for (const Ticket& t : tickets_) {
    if (t->done()) sum.add(t->completion());
  }
  return sum;
}

bool CallLog::idle() {
  const std::lock_guard lock(mutex_);
  collect_done();
  return under_way_.empty();
}

bool Probe::idle() {
  return background_log_.idle() &&
         std::all_of(tickets_.begin(), tickets_.end(), [](const Ticket& t) { return t->done(); });
}

void Probe::wait(const Ticket& t) {
  const double begin = inner_.now();
  inner_.wait(t);
  note_wait(t->label(), begin);
}

void Probe::note_wait(std::string_view why, double begin) {
  if (in_step_ && inner_.now() > begin) steps_.back().waits.push_back({why, {begin, inner_.now()}});
}

/// A port that notes to which step each posted message belongs. A worker's message belongs to the worker's present
/// step, or to none between steps. A server answers messages of other ranks' steps; `outside_step` says whether an
/// answer belongs to a step. A worker's waits are recorded.
class Probe::WatchedPort final : public ForwardingPort {
 public:
  WatchedPort(std::unique_ptr<Port> inner, Probe& probe, Role role)
      : ForwardingPort(std::move(inner)), probe_(probe), role_(role) {}
  Ticket post(int to, const MessageHeader& given, const char* label) override {
    const MessageHeader header = marked(given);
    return kept(header, inner_->post(to, header, label));
  }
  Ticket post_from(int to, const MessageHeader& given, std::span<const std::byte> payload, const char* label) override {
    const MessageHeader header = marked(given);
    return kept(header, inner_->post_from(to, header, payload, label));
  }
  Ticket post_written(int to, const MessageHeader& given, std::span<std::byte> payload, const char* label) override {
    const MessageHeader header = marked(given);
    return kept(header, inner_->post_written(to, header, payload, label));
  }
  std::optional<Message> next(const char* why, double deadline, int from) override {
    if (role_ == Role::server || *why == 0) return inner_->next(why, deadline, from);  // polling is no wait
    const double begin = probe_.now();
    auto message = inner_->next(why, deadline, from);
    probe_.note_wait(why, begin);
    return message;
  }

 private:
  MessageHeader marked(MessageHeader h) const {
    if (role_ == Role::worker && !probe_.in_step_) h.outside_step = 1;
    return h;
  }
  /// Keeps the ticket of a message; null: the message was not posted.
  Ticket kept(const MessageHeader& h, Ticket t) {
    if (!t) return t;
    if (role_ == Role::worker) return probe_.keep(std::move(t));
    if (h.outside_step == 0) probe_.background_log_.add(t);
    return t;
  }

  Probe& probe_;
  const Role role_;
};

Ports Probe::open(Group g, const PortOptions& o) {
  Ports p = inner_.open(g, o);
  p.worker = std::make_unique<WatchedPort>(std::move(p.worker), *this, Role::worker);
  p.server = std::make_unique<WatchedPort>(std::move(p.server), *this, Role::server);
  return p;
}

std::unique_ptr<BackgroundTask> Probe::launch(BackgroundProgram program) {
  return inner_.launch([this, program = std::move(program)](ExecutionContext& context) {
    LoggedContext background(context, background_log_);
    program(background);
  });
}

}  // namespace gradmeter::dataparallel
