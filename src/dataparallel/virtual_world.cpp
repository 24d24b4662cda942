#include "dataparallel/virtual_world.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <tuple>

#include "allreduce/interpret.hpp"
#include "allreduce/schedules/binomial_tree.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/baton.hpp"

namespace gradmeter::dataparallel {
namespace {

class VirtualOperation final : public Operation {
 public:
  VirtualOperation(const Baton& baton, int worker, std::string label)
      : baton_(baton), worker_(worker), label_(std::move(label)) {
    completion_.posted = baton.now(worker);
  }
  bool done() const override { return complete_ && completion_.finished <= baton_.now(worker_); }
  const Completion& completion() const override {
    if (!complete_) throw std::logic_error("a call's completion was asked for before it was done");
    return completion_;
  }
  std::string_view label() const override { return label_; }
  bool complete() const { return complete_; }
  double posted() const { return completion_.posted; }
  int worker() const { return worker_; }

  /// Called when the last partner has come. Wakes the worker if it waits for this.
  void finish(Baton& baton, double started, double finished, std::uint64_t sent, std::uint64_t due) {
    completion_.started = started;
    completion_.finished = finished;
    completion_.bytes_sent = sent;
    completion_.bytes_due = due;
    complete_ = true;
    if (waited_for_) baton.wake(worker_, finished);
  }
  void wait(Baton& baton) {
    if (!complete_) {
      waited_for_ = true;
      baton.block(worker_, label_);
      waited_for_ = false;
    }
    if (const double late = completion_.finished - baton.now(worker_); late > 0) baton.advance(worker_, late);
  }

 private:
  const Baton& baton_;
  int worker_;
  std::string label_;
  Completion completion_;
  bool complete_ = false, waited_for_ = false;
};
using VirtualTicket = std::shared_ptr<VirtualOperation>;

std::span<float> floats(Buffer b) {
  if (b.element() != core::Element::f32) throw std::logic_error("the virtual fabric moves fp32 only");
  return {reinterpret_cast<float*>(b.host()), b.count()};
}

}  // namespace

/// Shared by all workers; touched only by the one that holds the baton.
class VirtualWorld::State {
 public:
  State(int workers, VirtualMachine m) : machine(std::move(m)), baton(workers) {
    if (!machine.algorithm) machine.algorithm = allreduce::find_algorithm("ring");
    if (!machine.algorithm->has_schedule()) {
      throw core::UsageError(
          fmt::format("algorithm {} has no schedule to run in virtual time; use ring", machine.algorithm->name));
    }
    std::vector<int> all;
    for (int r = 0; r < workers; ++r) all.push_back(r);
    members.push_back(all);
    computations.assign(all.size(), 0);
    collective_free.assign(all.size(), 0.0);
    port_free.assign(all.size(), 0.0);
  }

  int position(Group g, int worker) const {
    const auto& m = members.at(static_cast<std::size_t>(g.id));
    const auto it = std::find(m.begin(), m.end(), worker);
    if (it == m.end()) throw std::logic_error(fmt::format("rank {} is not in group {}", worker, g.id));
    return static_cast<int>(it - m.begin());
  }

  /// One collective call, waiting for its members.
  struct Meeting {
    std::vector<VirtualTicket> tickets;
    std::vector<std::span<float>> buffers;
    int root = 0;
    allreduce::Op op = allreduce::Op::sum;
    bool is_broadcast = false;
    std::size_t arrived = 0;
  };

  VirtualTicket join(Group g, int worker, Buffer b, bool is_broadcast, int root, allreduce::Op op) {
    const auto& m = members.at(static_cast<std::size_t>(g.id));
    const auto at = static_cast<std::size_t>(position(g, worker));
    const std::uint64_t call = calls[{g.id, worker}]++;
    Meeting& meeting = meetings[{g.id, call}];
    if (meeting.arrived == 0) {
      meeting = {.tickets = std::vector<VirtualTicket>(m.size()),
                 .buffers = std::vector<std::span<float>>(m.size()),
                 .root = root,
                 .op = op,
                 .is_broadcast = is_broadcast};
    } else if (meeting.is_broadcast != is_broadcast || meeting.root != root || meeting.op != op) {
      throw std::logic_error(fmt::format("rank {} makes another collective call than its peers", worker));
    }
    meeting.tickets[at] = std::make_shared<VirtualOperation>(
        baton, worker, is_broadcast ? "broadcast" : fmt::format("all-reduce {}", machine.algorithm->name));
    meeting.buffers[at] = floats(b);
    VirtualTicket mine = meeting.tickets[at];
    if (++meeting.arrived == m.size()) {
      hold(meeting);
      meetings.erase({g.id, call});
    }
    return mine;
  }

  void hold(Meeting& meeting) {
    const auto p = static_cast<std::uint32_t>(meeting.tickets.size());
    const std::size_t n = meeting.buffers.front().size();
    for (const auto& b : meeting.buffers) {
      if (b.size() != n) throw std::logic_error("ranks gave buffers of different lengths to one collective");
    }
    const auto schedule = meeting.is_broadcast
                              ? allreduce::binomial_broadcast(p, static_cast<std::uint32_t>(meeting.root))
                              : machine.algorithm->make({p, 1}).front();
    std::vector<double> begin;
    for (const auto& t : meeting.tickets) {
      begin.push_back(std::max(t->posted(), collective_free[static_cast<std::size_t>(t->worker())]));
    }
    const auto end = allreduce::hockney_finish_times(*schedule, n, sizeof(float), begin, machine.link);
    const auto bytes = allreduce::interpret(*schedule, meeting.buffers, meeting.op);
    for (std::size_t i = 0; i < meeting.tickets.size(); ++i) {
      auto& t = *meeting.tickets[i];
      collective_free[static_cast<std::size_t>(t.worker())] = end[i];
      t.finish(baton, begin[i], end[i], bytes[i], bytes[i]);
    }
  }

  /// Messages of one (group, source, destination), in order.
  struct Post {
    std::deque<std::pair<std::vector<std::byte>, double>> arriving;  ///< data, and when it is there
    std::deque<std::pair<VirtualTicket, Buffer>> receiving;
  };

  void match(Post& post) {
    while (!post.arriving.empty() && !post.receiving.empty()) {
      auto& [data, there] = post.arriving.front();
      auto& [ticket, buffer] = post.receiving.front();
      if (data.size() != buffer.bytes()) throw std::logic_error("a message and its receive differ in length");
      if (!data.empty()) std::memcpy(buffer.host(), data.data(), data.size());
      ticket->finish(baton, ticket->posted(), std::max(there, ticket->posted()), 0, 0);
      post.arriving.pop_front();
      post.receiving.pop_front();
    }
  }

  VirtualMachine machine;
  Baton baton;
  std::vector<std::vector<int>> members;  ///< by group id: workers in rank order
  std::vector<std::uint64_t> computations;
  std::vector<double> collective_free, port_free;  ///< by worker: one collective, one outgoing message at a time
  std::map<std::pair<int, int>, std::uint64_t> calls;
  std::map<std::pair<int, std::uint64_t>, Meeting> meetings;
  std::map<std::tuple<int, int, int>, Post> posts;
  struct Splitting {
    std::vector<std::tuple<int, int, int>> asked;  ///< color, key, worker
    std::map<int, int> group_of_color;
    std::vector<int> blocked;
  };
  std::vector<Splitting> splits;
  std::map<int, std::size_t> split_calls;  ///< by worker
};

class VirtualWorld::WorkerFabric final : public Fabric {
 public:
  WorkerFabric(State& s, int worker) : s_(s), worker_(worker) {}
  int rank(Group g) const override { return s_.position(g, worker_); }
  int size(Group g) const override { return static_cast<int>(s_.members.at(static_cast<std::size_t>(g.id)).size()); }

  Group split(int color, int key) override {
    const std::size_t call = s_.split_calls[worker_]++;
    if (s_.splits.size() <= call) s_.splits.resize(call + 1);
    s_.splits[call].asked.emplace_back(color, key, worker_);
    if (s_.splits[call].asked.size() < s_.members[0].size()) {
      s_.splits[call].blocked.push_back(worker_);
      s_.baton.block(worker_, "the others to split");
    } else {
      form_groups(s_.splits[call]);
    }
    return {s_.splits[call].group_of_color.at(color)};
  }

  Ticket all_reduce(Group g, Buffer b, allreduce::Op op, Ready, const allreduce::Contents&) override {
    return s_.join(g, worker_, b, false, 0, op);
  }
  Ticket reduce_scatter(Group, Buffer, allreduce::Op, Ready) override { throw std::logic_error("soon"); }
  Ticket all_gather(Group, Buffer, Ready) override { throw std::logic_error("soon"); }
  Ports open(Group, const MailOptions&) override { throw std::logic_error("soon"); }
  std::unique_ptr<Companion> launch(std::function<void(Fabric&)>) override { throw std::logic_error("soon"); }
  std::span<float> memory(std::size_t floats) override { return memory_.emplace_back(floats); }
  Ticket broadcast(Group g, Buffer b, int root, Ready) override {
    return s_.join(g, worker_, b, true, root, allreduce::Op::sum);
  }

  Ticket send(Group g, int peer, ConstBuffer b, Ready) override {
    const auto& link = s_.machine.link;
    auto ticket = std::make_shared<VirtualOperation>(s_.baton, worker_, fmt::format("send to {}", peer));
    double& free = s_.port_free[static_cast<std::size_t>(worker_)];
    const double begin = std::max(ticket->posted(), free);
    free = begin + static_cast<double>(b.bytes()) / link.bytes_per_s;
    State::Post& post = s_.posts[{g.id, rank(g), peer}];
    post.arriving.push_back({{b.host(), b.host() + b.bytes()}, free + link.latency_s});
    ticket->finish(s_.baton, begin, free, b.bytes(), b.bytes());
    s_.match(post);
    return ticket;
  }
  Ticket receive(Group g, int peer, Buffer b) override {
    auto ticket = std::make_shared<VirtualOperation>(s_.baton, worker_, fmt::format("a message from rank {}", peer));
    State::Post& post = s_.posts[{g.id, peer, rank(g)}];
    post.receiving.push_back({ticket, b});
    s_.match(post);
    return ticket;
  }

  void wait(const Ticket& t) override { static_cast<VirtualOperation&>(*t).wait(s_.baton); }
  Ready record() override { return nullptr; }  // a computation's time has passed when `compute` returns
  void compute(std::string_view label, model::Cost cost, const std::function<void()>& work) override {
    work();
    const double begin = now();
    const std::uint64_t n = s_.computations[static_cast<std::size_t>(worker_)]++;
    const double factor = s_.machine.slowdown ? s_.machine.slowdown(worker_, n) : 1.0;
    const double time = std::max(cost.flops / s_.machine.flops_per_s, cost.bytes / s_.machine.bytes_per_s);
    s_.baton.advance(worker_, time * factor);
    if (log_) log_->push_back({label, {begin, now()}});
  }
  void log_to(ComputeLog* log) override { log_ = log; }
  double now() const override { return s_.baton.now(worker_); }

 private:
  void form_groups(State::Splitting& s) {
    std::sort(s.asked.begin(), s.asked.end());
    for (const auto& [color, key, worker] : s.asked) {
      const auto [it, is_new] = s.group_of_color.try_emplace(color, static_cast<int>(s_.members.size()));
      if (is_new) s_.members.emplace_back();
      s_.members[static_cast<std::size_t>(it->second)].push_back(worker);
    }
    for (int w : s.blocked) s_.baton.wake(w, now());
  }
  State& s_;
  int worker_;
  ComputeLog* log_ = nullptr;
  std::deque<std::vector<float>> memory_;
};

VirtualWorld::VirtualWorld(int workers, VirtualMachine m) : state_(std::make_unique<State>(workers, std::move(m))) {}
VirtualWorld::~VirtualWorld() = default;

std::vector<double> VirtualWorld::run(const std::function<void(Fabric&)>& body) {
  state_->baton.run([&](int worker) {
    WorkerFabric fabric(*state_, worker);
    body(fabric);
  });
  std::vector<double> end;
  for (int w = 0; w < static_cast<int>(state_->members[0].size()); ++w) end.push_back(state_->baton.now(w));
  return end;
}

}  // namespace gradmeter::dataparallel
