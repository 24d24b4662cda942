#include "dataparallel/decorators/probe.hpp"

#include <algorithm>
#include <utility>

namespace gradmeter::dataparallel {
namespace {

class WatchedPort final : public ForwardingPort {
 public:
  using Mark = std::function<bool(MessageHeader&)>;  ///< says whether to keep
  struct Watchers {
    Mark mark;
    std::function<void(const Ticket&)> keep;
    std::function<double()> now;  ///< null: waits are not recorded
    std::function<void(std::string_view why, double begin)> waited;
  };
  WatchedPort(std::unique_ptr<Port> inner, Watchers w) : ForwardingPort(std::move(inner)), watchers_(std::move(w)) {}
  Ticket post(int to, const MessageHeader& given, const char* label) override {
    MessageHeader header = given;
    const bool kept = watchers_.mark(header);
    Ticket t = inner_->post(to, header, label);
    if (kept) watchers_.keep(t);
    return t;
  }
  Ticket post_from(int to, const MessageHeader& given, std::span<const std::byte> payload, const char* label) override {
    MessageHeader header = given;
    const bool kept = watchers_.mark(header);
    Ticket t = inner_->post_from(to, header, payload, label);
    if (kept && t) watchers_.keep(t);
    return t;
  }
  Ticket post_written(int to, const MessageHeader& given, std::span<std::byte> payload, const char* label) override {
    MessageHeader header = given;
    const bool kept = watchers_.mark(header);
    Ticket t = inner_->post_written(to, header, payload, label);
    if (kept && t) watchers_.keep(t);
    return t;
  }
  std::optional<Message> next(const char* why, double deadline, int of) override {
    if (!watchers_.now || *why == 0) return inner_->next(why, deadline, of);  // polling is no wait
    const double begin = watchers_.now();
    auto message = inner_->next(why, deadline, of);
    watchers_.waited(why, begin);
    return message;
  }

 private:
  Watchers watchers_;
};

/// A background task's, with everything it computes in the log.
class LoggedContext final : public ForwardingContext<ExecutionContext> {
 public:
  LoggedContext(ExecutionContext& inner, BackgroundLog& ledger) : ForwardingContext(inner), background_log_(ledger) {
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
  BackgroundLog& background_log_;
  ComputeLog log_;
};

}  // namespace

void BackgroundLog::keep(bool yes) {
  const std::lock_guard lock(mutex_);
  keep_ = yes;
}

void BackgroundLog::add(const ComputeLog& log) {
  const std::lock_guard lock(mutex_);
  if (keep_) record_.computations.insert(record_.computations.end(), log.begin(), log.end());
}

void BackgroundLog::add(const Ticket& t) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back(t);
}

void BackgroundLog::sweep() {
  const auto done = std::partition(under_way_.begin(), under_way_.end(), [](const Ticket& t) { return !t->done(); });
  for (auto it = done; it != under_way_.end(); ++it) {
    if (keep_) record_.calls.push_back({(*it)->label(), (*it)->completion()});
    totals_.add((*it)->completion());
  }
  under_way_.erase(done, under_way_.end());
}

void Totals::add(const Completion& c) {
  bytes_sent += c.bytes_sent;
  bytes_between_nodes += c.bytes_between_nodes;
  bytes_due += c.bytes_due.value_or(0);
  bytes_known &= c.bytes_due.has_value();
  ++calls;
}

StepRecord BackgroundLog::take() {
  const std::lock_guard lock(mutex_);
  sweep();
  return std::exchange(record_, {});
}

Totals BackgroundLog::totals() {
  const std::lock_guard lock(mutex_);
  sweep();
  return totals_;
}

void BackgroundLog::add_done(const Completion& c) {
  const std::lock_guard lock(mutex_);
  totals_.add(c);
}

void Probe::begin_step() {
  record_.computations.clear();
  record_.calls.clear();
  record_.waits.clear();
  record_.layers.clear();
  record_.submitted = 0;
  kept_.clear();
  inner_.log_to(&record_.computations);
  record_.step.begin = inner_.now();
  in_step_ = true;
}

const StepRecord& Probe::end_step() {
  inner_.synchronise();
  inner_.log_to(nullptr);  // computation between steps (an evaluation) is in no step
  record_.step.end = inner_.now();
  in_step_ = false;
  const auto first_done =
      std::stable_partition(tickets_.begin(), tickets_.end(), [](const Ticket& t) { return !t->done(); });
  for (auto it = first_done; it != tickets_.end(); ++it) {
    record_.calls.push_back({(*it)->label(), (*it)->completion()});
    background_log_.add_done((*it)->completion());
    kept_.push_back(std::move(*it));
  }
  tickets_.erase(first_done, tickets_.end());
  return record_;
}

Totals Probe::totals() {
  Totals sum = background_log_.totals();
  for (const Ticket& t : tickets_) {
    if (t->done()) sum.add(t->completion());
  }
  return sum;
}

bool BackgroundLog::idle() {
  const std::lock_guard lock(mutex_);
  sweep();
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
  if (in_step_ && inner_.now() > begin) record_.waits.push_back({why, {begin, inner_.now()}});
}

Ports Probe::open(Group g, const PortOptions& o) {
  Ports p = inner_.open(g, o);
  const auto worker = [this](MessageHeader& h) {
    if (!in_step_) h.outside_step = 1;
    return in_step_;
  };
  const auto server = [](const MessageHeader& h) { return h.outside_step == 0; };
  p.worker = std::make_unique<WatchedPort>(
      std::move(p.worker), WatchedPort::Watchers{.mark = worker,
                                                 .keep = [this](const Ticket& t) { keep(t); },
                                                 .now = [this] { return inner_.now(); },
                                                 .waited = [this](auto why, double begin) { note_wait(why, begin); }});
  p.server = std::make_unique<WatchedPort>(
      std::move(p.server),
      WatchedPort::Watchers{
          .mark = server, .keep = [this](const Ticket& t) { background_log_.add(t); }, .now = {}, .waited = {}});
  return p;
}

std::unique_ptr<BackgroundTask> Probe::launch(BackgroundProgram program) {
  return inner_.launch([this, program = std::move(program)](ExecutionContext& context) {
    LoggedContext background(context, background_log_);
    program(background);
  });
}

}  // namespace gradmeter::dataparallel
