#include "dataparallel/server/server.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

class Add final : public Rule {
 public:
  Add() : Rule("add") {}
  void apply(runtime::Buffer w, runtime::ConstBuffer d, std::size_t, UpdateStep) override {
    const auto to = w.values<float>();
    const auto change = d.values<float>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += change[i];
  }
  model::Cost cost(std::size_t n) const override { return {double(n), 12.0 * double(n)}; }
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

/// How long a server stays where its last acknowledgement may have got lost, counted from the last message [s].
constexpr double linger_s = 0.25;

}  // namespace

std::unique_ptr<Rule> make_add() { return std::make_unique<Add>(); }

Server::Server(const ServerPlan& plan, const Sharding& sharding, std::uint32_t shard, std::span<const float> weights,
               std::span<const model::Tensor> tensors, std::unique_ptr<Port> port)
    : plan_(plan),
      sharding_(sharding),
      shard_(shard),
      range_(sharding.shard(shard)),
      port_(std::move(port)),
      tensors_(clipped(tensors, range_)),
      clients_(static_cast<std::size_t>(plan.workers)),
      admission_(plan.workers, plan.staleness),
      staleness_(plan.workers) {
  const auto mine = weights.subspan(range_.first, range_.count);
  weights_.assign(mine.begin(), mine.end());
  rule_ = plan.rule == "add" ? make_add() : make_optimizer(plan.rule, {weights_.size(), tensors_});
}

void Server::run(Fabric& f) {
  fabric_ = &f;
  for (send(); !done(); send()) {
    if (const auto mail = port_->next("mail from workers")) take(*mail);
  }
  // A worker whose goodbye was heard may not know it.
  while (port_->lossy()) {
    send();
    const double until = f.now() + linger_s;
    const auto mail = port_->next("late goodbyes", until);
    if (mail) take(*mail);
    if (!mail && f.now() >= until) break;
  }
}

bool Server::done() const {
  return admission_.training() == 0 &&
         std::all_of(clients_.begin(), clients_.end(), [](const Client& c) { return c.acks.empty(); });
}

void Server::take(const Mail& mail) {
  if (mail.from >= plan_.workers) return;  // the obituary of a rank that only served
  if (mail.obituary) {
    clients_[static_cast<std::size_t>(mail.from)].acks.clear();
    return leave(mail.from);
  }
  const MailHeader& h = mail.header;
  switch (static_cast<Word>(h.operation)) {
    case Word::push:
      return take_push(mail.from, h, mail.payload);
    case Word::pull:
      return ask(mail.from, {h.sequence, h.clock, h.version, h.beside, fabric_->now()});
    case Word::bye:
      if (port_->lossy()) clients_[static_cast<std::size_t>(mail.from)].acks.push_back(h);
      return leave(mail.from);
    default:
      break;
  }
  throw std::logic_error(fmt::format("rank {} sent a server operation {}", mail.from, h.operation));
}

Server::Change Server::fresh_change() {
  Change c{.missing = sharding_.chunks(shard_)};
  c.here.assign(c.missing, false);
  if (!spare_.empty()) {
    c.values = std::move(spare_.back());
    spare_.pop_back();
  }
  c.values.resize(range_.count);
  return c;
}

void Server::take_push(int from, const MailHeader& h, std::span<const std::byte> payload) {
  if (admission_.is_gone(from)) return;
  Client& client = clients_[static_cast<std::size_t>(from)];
  client.acks.push_back(h);
  if (h.clock < admission_.clock(from)) return;  // it came before: only its acknowledgement got lost
  if (h.clock != admission_.clock(from))
    throw std::logic_error("a worker pushed an update before its last one was taken");
  if (client.begun == h.clock) {
    client.changes.push_back(fresh_change());
    ++client.begun;
  }
  Change& change = client.changes.back();
  const std::size_t chunk = sharding_.chunk_of(shard_, h.first);
  if (change.here.at(chunk)) return;
  const auto out = std::span(change.values).subspan(h.first - range_.first, h.count);
  if (plan_.changes.encodes(out.size())) {
    fabric_->compute("server.decode", {double(h.count), 4.0 * double(h.count) + double(h.bytes)},
                     [&] { plan_.changes.decode(payload, out); });
  } else {
    plan_.changes.decode(payload, out);
  }
  change.here[chunk] = true;
  change.base = h.version;
  change.size = static_cast<float>(h.value);
  if (--change.missing == 0) complete(from, h);
}

void Server::complete(int from, const MailHeader& h) {
  admission_.pushed(from);
  if (admission_.grouped()) {
    apply_clocks();
  } else {
    apply_one(from);
  }
  if (h.sequence > 0) {
    ask(from, {h.sequence, h.clock + 1, h.clock + 1, h.beside, fabric_->now()});
  }
  let_through();
}

void Server::leave(int worker) {
  if (admission_.all_train()) {
    const std::lock_guard lock(mutex_);
    observed_.staleness_under_way = staleness_.outstanding(version_);
  }
  admission_.gone(worker);
  Client& client = clients_[static_cast<std::size_t>(worker)];
  client.held.reset();
  client.reply.reset();
  if (client.begun > admission_.clock(worker)) {  // it died amid a push
    client.changes.pop_back();
    --client.begun;
  }
  if (admission_.grouped()) apply_clocks();
  let_through();
}

void Server::apply(std::span<const float> change, UpdateStep step) {
  fabric_->compute("server.update", rule_->cost(change.size()), [&] { rule_->apply(weights_, change, 0, step); });
  ++version_;
}

void Server::apply_one(int from) {
  Client& client = clients_[static_cast<std::size_t>(from)];
  Change change = std::move(client.changes.back());
  client.changes.pop_back();
  const float share = plan_.divide ? static_cast<float>(plan_.workers) : 1.0f;
  {
    const std::lock_guard lock(mutex_);
    if (admission_.all_train()) staleness_.applied(change.base, version_);
    ++observed_.updates;
  }
  apply(change.values, {.size = change.size / share, .number = version_ + 1});
  spare_.push_back(std::move(change.values));
}

bool Server::clock_is_complete() const {
  bool any = false;
  for (std::size_t w = 0; w < clients_.size(); ++w) {
    const Client& c = clients_[w];
    const bool here = !c.changes.empty() && c.changes.front().missing == 0;
    if (!here && !admission_.is_gone(static_cast<int>(w))) return false;
    any |= here;
  }
  return any;
}

void Server::apply_clocks() {
  while (clock_is_complete()) {
    std::vector<Change> clock;  // in rank order, whatever came first
    for (Client& c : clients_) {
      if (c.changes.empty()) continue;
      clock.push_back(std::move(c.changes.front()));
      c.changes.pop_front();
    }
    const double n = double(range_.count), all = double(clock.size());
    std::vector<float>& sum = clock.front().values;
    fabric_->compute("server.sum", {all * n, 4 * n * (all + 1)}, [&] {
      for (std::size_t k = 1; k < clock.size(); ++k) {
        const std::vector<float>& next = clock[k].values;
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += next[i];
      }
      const auto count = static_cast<float>(clock.size());
      if (plan_.divide && clock.size() > 1) {
        for (float& x : sum) x /= count;
      }
    });
    {
      const std::lock_guard lock(mutex_);
      for (const Change& c : clock) {
        if (admission_.all_train()) staleness_.applied(c.base, version_);
      }
      ++observed_.updates;
    }
    apply(sum, {.size = clock.front().size, .number = version_ + 1});
    for (Change& c : clock) spare_.push_back(std::move(c.values));
  }
}

void Server::ask(int from, const Request& r) {
  Client& client = clients_[static_cast<std::size_t>(from)];
  if (admission_.is_gone(from) || r.sequence < client.last_request) return;
  if (r.sequence == client.last_request && (client.held || client.reply)) return;  // asked again: it is coming
  const bool is_new = r.sequence > client.last_request;
  client.last_request = r.sequence;
  if (is_new && !r.beside) {
    const std::lock_guard lock(mutex_);
    observed_.largest_gap = std::max(observed_.largest_gap, admission_.gap(r.clock));
  }
  if (!admission_.may_read(from, r.clock, r.own)) {
    client.held = r;
    return;
  }
  answer(from, r);
}

void Server::let_through() {
  for (int w = 0; w < plan_.workers; ++w) {
    Client& client = clients_[static_cast<std::size_t>(w)];
    if (!client.held || !admission_.may_read(w, client.held->clock, client.held->own)) continue;
    const Request r = *std::exchange(client.held, std::nullopt);
    answer(w, r);
  }
}

void Server::answer(int worker, const Request& r) {
  Client& client = clients_[static_cast<std::size_t>(worker)];
  const double held = fabric_->now() - r.since;
  client.reply = Reply{.request = r, .weights = snapshot(), .held = held};
  const std::lock_guard lock(mutex_);
  if (r.beside) return;
  observed_.held_s += held;
  if (admission_.all_train()) staleness_.read(worker, version_);
}

std::shared_ptr<const Server::Version> Server::snapshot() {
  std::shared_ptr<Version> free;
  for (auto& v : versions_) {
    if (v->number == version_) return v;
    if (v.use_count() == 1) free = v;
  }
  if (!free) free = versions_.emplace_back(std::make_shared<Version>());
  free->number = version_;
  fabric_->compute("server.copy", {0, 8.0 * double(range_.count)}, [&] { free->values = weights_; });
  return free;
}

void Server::send() {
  for (int w = 0; w < plan_.workers; ++w) {
    while (send_to(w)) {
    }
  }
}

/// One message, if there is one and there is room for it.
bool Server::send_to(int worker) {
  Client& client = clients_[static_cast<std::size_t>(worker)];
  if (!client.acks.empty()) {
    if (!port_->draft(worker, 0)) return false;
    MailHeader h = client.acks.front();
    client.acks.pop_front();
    h.operation = static_cast<std::uint16_t>(Word::ack);
    h.bytes = 0;
    port_->post(worker, h, "acknowledge");
    return true;
  }
  if (!client.reply) return false;
  Reply& reply = *client.reply;
  const Range chunk = sharding_.chunk(shard_, reply.next);
  const std::size_t bytes = plan_.weights.wire_bytes(chunk.count);
  const auto draft = port_->draft(worker, bytes);
  if (!draft) return false;
  const auto values = std::span(reply.weights->values).subspan(chunk.first - range_.first, chunk.count);
  const compression::Draw draw{
      .seed = plan_.seed, .step = reply.weights->number, .rank = shard_, .phase = 1, .first = chunk.first};
  const auto encode = [&] { plan_.weights.encode(values, {}, draft->data(), draw); };
  if (plan_.weights.encodes(chunk.count)) {
    fabric_->compute("server.encode", {double(chunk.count), 4.0 * double(chunk.count) + double(bytes)}, encode);
  } else {
    encode();
  }
  port_->post(worker,
              {.operation = static_cast<std::uint16_t>(Word::weights),
               .beside = reply.request.beside,
               .shard = shard_,
               .clock = reply.request.clock,
               .version = reply.weights->number,
               .sequence = reply.request.sequence,
               .first = chunk.first,
               .count = chunk.count,
               .bytes = bytes,
               .value = reply.held},
              "weights");
  if (++reply.next == sharding_.chunks(shard_)) client.reply.reset();
  return true;
}

Observations Server::observed() const {
  const std::lock_guard lock(mutex_);
  Observations o = observed_;
  o.staleness = staleness_.histogram();
  return o;
}

}  // namespace gradmeter::dataparallel
