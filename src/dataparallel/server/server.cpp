#include "dataparallel/server/server.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

class Add final : public Optimizer {
 public:
  Add() : Optimizer("add") {}
  void apply(runtime::Buffer w, runtime::ConstBuffer d, std::size_t, UpdateStep) override {
    const auto to = w.values<float>();
    const auto change = d.values<float>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += change[i];
  }
  runtime::Cost cost(std::size_t n) const override { return {double(n), 12.0 * double(n)}; }
};

/// The tensors, as far as they lie in the range.
std::vector<model::Tensor> clipped(std::span<const model::Tensor> tensors, Range r) {
  std::vector<model::Tensor> out;
  for (const auto& t : tensors) {
    const std::size_t first = std::max(t.offset, r.first), end = std::min(t.offset + t.count, r.end());
    if (first < end) out.push_back({t.name, {end - first}, first - r.first, end - first});
  }
  return out;
}

}  // namespace

std::unique_ptr<Optimizer> make_add() { return std::make_unique<Add>(); }

Server::Server(const ServerPlan& plan, const Sharding& sharding, std::uint32_t shard, std::span<const float> weights,
               std::span<const model::Tensor> tensors, std::unique_ptr<Port> port)
    : plan_(plan),
      port_(std::move(port)),
      tensors_(clipped(tensors, sharding.shard(shard))),
      change_queue_(sharding, shard, plan.changes, plan.seed, plan.workers),
      reply_queue_(sharding, shard, plan.weights, plan.seed, plan.workers,
                   weights.subspan(sharding.shard(shard).first, sharding.shard(shard).count)),
      held_(static_cast<std::size_t>(plan.workers)),
      admission_(plan.workers, plan.staleness),
      staleness_(plan.workers) {
  const auto mine = weights.subspan(sharding.shard(shard).first, sharding.shard(shard).count);
  weights_.assign(mine.begin(), mine.end());
  optimizer_ =
      plan.optimizer == "add"
          ? make_add()
          : make_optimizer(plan.optimizer,
                           {.elements = weights_.size(), .tensors = tensors_, .first = sharding.shard(shard).first});
}

void Server::run(ExecutionContext& f) {
  context_ = &f;
  for (;;) {
    reply_queue_.send(f, *port_);
    if (admission_.training() == 0 && reply_queue_.all_acknowledged()) break;
    if (const auto message = port_->next("messages from workers")) take(*message);
  }
  port_->close();
}

void Server::take(const Message& message) {
  if (message.from >= plan_.workers) return;  // the failure notice of a rank that only served
  if (message.is_failure_notice) {
    reply_queue_.drop_all(message.from);
    return leave(message.from);
  }
  const MessageHeader& h = message.header;
  switch (static_cast<Opcode>(h.operation)) {
    case Opcode::push:
      return take_push(message.from, h, message.payload);
    case Opcode::pull:
    case Opcode::evaluate:
      return ask(message.from, {.sequence = h.sequence,
                                .clock = h.clock,
                                .own = h.version,
                                .for_evaluation = static_cast<Opcode>(h.operation) == Opcode::evaluate,
                                .outside_step = h.outside_step,
                                .since = context_->now()});
    case Opcode::disconnect:
      return leave(message.from);
    default:
      break;
  }
  throw std::logic_error(fmt::format("rank {} sent a server operation {}", message.from, h.operation));
}

void Server::take_push(int from, const MessageHeader& h, std::span<const std::byte> payload) {
  if (admission_.is_gone(from)) return;
  reply_queue_.acknowledge(from, h);
  if (h.clock != admission_.clock(from)) throw std::logic_error(fmt::format("rank {} pushed out of turn", from));
  if (!change_queue_.take(*context_, from, h, payload)) return;
  note_gap(h.clock);  // of the read that it was computed from, which may have been of weights that the worker had
  admission_.pushed(from);
  if (admission_.grouped()) {
    apply_clocks();
  } else {
    apply_one(from);
  }
  if (h.sequence > 0) {
    const std::uint64_t next = h.clock + 1;
    ask(from,
        {.sequence = h.sequence, .clock = next, .own = next, .outside_step = h.outside_step, .since = context_->now()});
  }
  let_through();
}

void Server::leave(int worker) {
  if (admission_.all_train()) {
    const std::lock_guard lock(mutex_);
    observed_.staleness_under_way = staleness_.outstanding(version_);
  }
  admission_.gone(worker);
  held(worker).reset();
  reply_queue_.drop_reply(worker);
  change_queue_.drop_incomplete(worker);
  if (admission_.grouped()) apply_clocks();
  let_through();
}

void Server::apply(std::span<const float> change, float size) {
  const UpdateStep step{.size = size, .number = version_ + 1};
  context_->submit("server.update", optimizer_->cost(change.size()),
                   [&] { optimizer_->apply(weights_, change, 0, step); });
  ++version_;
}

void Server::count(std::span<const Change> changes) {
  const std::lock_guard lock(mutex_);
  ++observed_.applied;
  for (const Change& c : changes) {
    if (admission_.all_train()) staleness_.applied(c.base, version_);
  }
}

void Server::apply_one(int from) {
  Change change = change_queue_.pop(from);
  count({&change, 1});
  apply(change.values, change.size / (plan_.divide ? static_cast<float>(plan_.workers) : 1.0f));
  change_queue_.recycle(std::move(change));
}

bool Server::clock_is_complete() const {
  bool any = false;
  for (int w = 0; w < plan_.workers; ++w) {
    if (!change_queue_.has(w) && !admission_.is_gone(w)) return false;
    any |= change_queue_.has(w);
  }
  return any;
}

void Server::add_up(std::vector<Change>& clock) {
  std::vector<float>& sum = clock.front().values;
  const double n = double(sum.size()), all = double(clock.size());
  context_->submit("server.sum", {all * n, 4 * n * (all + 1)}, [&] {
    for (std::size_t k = 1; k < clock.size(); ++k) {
      const std::vector<float>& next = clock[k].values;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += next[i];
    }
    if (!plan_.divide || clock.size() == 1) return;
    const auto count = static_cast<float>(clock.size());
    for (float& x : sum) x /= count;
  });
}

void Server::apply_clocks() {
  while (clock_is_complete()) {
    std::vector<Change> clock;  // in rank order, whatever came first
    for (int w = 0; w < plan_.workers; ++w) {
      if (change_queue_.has(w)) clock.push_back(change_queue_.pop(w));
    }
    add_up(clock);
    count(clock);
    apply(clock.front().values, clock.front().size);
    for (Change& c : clock) change_queue_.recycle(std::move(c));
  }
}

void Server::note_gap(std::uint64_t clock) {
  const std::lock_guard lock(mutex_);
  observed_.largest_gap = std::max(observed_.largest_gap, admission_.gap(clock));
}

void Server::ask(int from, const ReadRequest& r) {
  if (admission_.is_gone(from)) return;
  if (!r.for_evaluation) note_gap(r.clock);
  held(from) = r;
  let_through();
}

bool Server::all_evaluate() const {
  for (int w = 0; w < plan_.workers; ++w) {
    const auto& held = held_[static_cast<std::size_t>(w)];
    const bool for_evaluation = held && held->for_evaluation && admission_.clock(w) >= held->own;
    if (!for_evaluation && !admission_.is_gone(w)) return false;
  }
  return true;
}

void Server::let_through() {
  const bool all_evaluate = this->all_evaluate();
  for (int w = 0; w < plan_.workers; ++w) {
    auto& held = this->held(w);
    if (!held || !(held->for_evaluation ? all_evaluate : admission_.may_read(w, held->clock, held->own))) continue;
    const ReadRequest r = *std::exchange(held, std::nullopt);
    answer(w, r);
  }
}

void Server::answer(int worker, const ReadRequest& r) {
  const double held = context_->now() - r.since;
  reply_queue_.answer(*context_, worker, r, weights_, version_, admission_.slowest(), held);
  if (r.for_evaluation) return;
  const std::lock_guard lock(mutex_);
  observed_.held_s += held;
  if (admission_.all_train()) staleness_.read(worker, version_);
}

Observations Server::observed() const {
  const std::lock_guard lock(mutex_);
  Observations o = observed_;
  o.staleness = staleness_.histogram();
  return o;
}

}  // namespace gradmeter::dataparallel
