#include "dataparallel/probe.hpp"

#include <algorithm>
#include <utility>

namespace gradmeter::dataparallel {
namespace {

class WatchedPort final : public Port {
 public:
  using Mark = std::function<bool(MailHeader&)>;  ///< says whether to keep
  WatchedPort(std::unique_ptr<Port> inner, Mark mark, std::function<void(const Ticket&)> keep)
      : inner_(std::move(inner)), mark_(std::move(mark)), keep_(std::move(keep)) {}
  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override { return inner_->draft(to, bytes); }
  Ticket post(int to, const MailHeader& given, const char* label) override {
    MailHeader header = given;
    const bool kept = mark_(header);
    Ticket t = inner_->post(to, header, label);
    if (kept) keep_(t);
    return t;
  }
  std::optional<Mail> next(const char* why, double deadline) override { return inner_->next(why, deadline); }
  bool lossy() const override { return inner_->lossy(); }

 private:
  std::unique_ptr<Port> inner_;
  Mark mark_;
  std::function<void(const Ticket&)> keep_;
};

/// The fabric of a program beside the worker, with everything it computes in the ledger.
class Beside final : public Forwarding {
 public:
  Beside(Fabric& inner, Ledger& ledger) : Forwarding(inner), ledger_(ledger) { inner_.log_to(&log_); }
  ~Beside() override { inner_.log_to(nullptr); }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  void compute(std::string_view label, model::Cost cost, const std::function<void()>& work) override {
    inner_.compute(label, cost, work);
    ledger_.add(log_);
    log_.clear();
  }
  void log_to(ComputeLog*) override {}

 private:
  Ledger& ledger_;
  ComputeLog log_;
};

}  // namespace

void Ledger::keep(bool yes) {
  const std::lock_guard lock(mutex_);
  keep_ = yes;
}

void Ledger::add(const ComputeLog& log) {
  const std::lock_guard lock(mutex_);
  if (keep_) record_.computations.insert(record_.computations.end(), log.begin(), log.end());
}

void Ledger::add(const Ticket& t) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back(t);
}

void Ledger::sweep() {
  const auto done = std::partition(under_way_.begin(), under_way_.end(), [](const Ticket& t) { return !t->done(); });
  for (auto it = done; it != under_way_.end(); ++it) {
    if (keep_) record_.calls.push_back({(*it)->label(), (*it)->completion()});
    count((*it)->completion());
  }
  under_way_.erase(done, under_way_.end());
}

void Ledger::count(const Completion& c) {
  totals_.bytes_sent += c.bytes_sent;
  totals_.bytes_between_nodes += c.bytes_between_nodes;
  totals_.bytes_due += c.bytes_due.value_or(0);
  totals_.bytes_known &= c.bytes_due.has_value();
  ++totals_.calls;
}

StepRecord Ledger::take() {
  const std::lock_guard lock(mutex_);
  sweep();
  return std::exchange(record_, {});
}

Totals Ledger::totals() {
  const std::lock_guard lock(mutex_);
  sweep();
  return totals_;
}

void Ledger::add_done(const Completion& c) {
  const std::lock_guard lock(mutex_);
  count(c);
}

void Probe::begin_step() {
  record_.computations.clear();
  record_.calls.clear();
  inner_.log_to(&record_.computations);
  record_.step.begin = inner_.now();
  in_step_ = true;
}

const StepRecord& Probe::end_step() {
  inner_.settle();
  inner_.log_to(nullptr);  // what is computed between steps (a validation) is in none
  record_.step.end = inner_.now();
  in_step_ = false;
  std::vector<Ticket> under_way;
  for (Ticket& t : tickets_) {
    if (!t->done()) {
      under_way.push_back(std::move(t));
      continue;
    }
    record_.calls.push_back({t->label(), t->completion()});
    ledger_.add_done(t->completion());
  }
  tickets_ = std::move(under_way);
  return record_;
}

Ports Probe::open(Group g, const MailOptions& o) {
  Ports p = inner_.open(g, o);
  const auto worker = [this](MailHeader& h) {
    if (!in_step_) h.beside = 1;
    return in_step_;
  };
  const auto server = [](const MailHeader& h) { return h.beside == 0; };
  p.worker = std::make_unique<WatchedPort>(std::move(p.worker), worker, [this](const Ticket& t) { keep(t); });
  p.server = std::make_unique<WatchedPort>(std::move(p.server), server, [this](const Ticket& t) { ledger_.add(t); });
  return p;
}

std::unique_ptr<Companion> Probe::launch(std::function<void(Fabric&)> program) {
  return inner_.launch([this, program = std::move(program)](Fabric& f) {
    Beside beside(f, ledger_);
    program(beside);
  });
}

}  // namespace gradmeter::dataparallel
