// SPDX-License-Identifier: Apache-2.0
// Our schedules between GPUs, as groups of NCCL's sends and receives with our own sums between them.
#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "allreduce/binding.hpp"
#include "allreduce/gpu/algorithms.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/slices.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "allreduce/gpu/reduce.hpp"
#include "allreduce/gpu/stream_collective.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::allreduce {
namespace {

AlgorithmPtr algorithm_to_run(const Request& r) {
  AlgorithmPtr chosen = find_algorithm(r.name.parameters.at("schedule"));
  if (chosen->has_schedule()) return chosen;
  std::vector<std::string_view> schedules;
  for (const AlgorithmInfo& a : algorithms()) {
    if (a.backend == Backend::schedule) schedules.push_back(a.name);
  }
  throw core::UsageError(fmt::format("{}: {} has no schedule of ours to run; there are {}", r.name.base, chosen->name,
                                     fmt::join(schedules, ", ")));
}

std::size_t message_bytes_of(const Request& r) {
  const std::size_t bytes = core::parse_bytes(r.name.parameters.at("message")).value;
  constexpr std::size_t longest_element = 8;
  if (bytes >= longest_element) return bytes;
  throw core::UsageError(
      fmt::format("{}: message={} is shorter than an element; give at least {} bytes, as in message=4M", r.name.base,
                  r.name.parameters.at("message"), longest_element));
}

#ifdef GRADMETER_HAS_CUDA
constexpr std::size_t scratch_alignment = 64;  // bytes

/// The course of a call on a buffer of so many elements, each of `width` bytes: its slices, the order of the turns, and
/// the bytes that this rank has to send.
struct Course {
  std::size_t elements, width;
  Slices slices;
  std::vector<Turn> turns;
  std::uint64_t bytes_required;
};

/// Checks that no message of a plan arrives where another message of the same group is sent from. Then the order of the
/// stream alone keeps memory safe: the sends that a write must wait for (`sends_before_write`) are done before it, and
/// each round's sums are done before the next group's messages reach the landing memory.
void check_plan(const Plan& plan) {
  for (const PlanRound& round : plan.rounds) {
    for (const ReceiveStep& x : round.receives.of(plan.receives)) {
      if (x.direct && x.sends_before_write > round.sends.first)
        throw std::logic_error("a message arrives where another is read");
    }
  }
}

class NcclMessages final : public StreamCollective {
 public:
  NcclMessages(ScheduledAlgorithm a, const GroupConnection& connection, runtime::NcclOptions nccl, ExchangeSpec spec)
      : algorithm_(std::move(a)),
        spec_(std::move(spec)),
        queue_(*spec_.queue),
        nodes_(connection.network.nodes_of(connection.communicator)),
        depth_(lanes_for(algorithm_.schedules)),
        plans_(plans_of(connection.communicator.rank())),
        scratch_(scratch_on_all_ranks(connection.communicator)),
        nccl_(connection.communicator, std::move(nccl)) {}

  /// Aborts a call that is not complete, and waits for the queue, so that buffers may be freed.
  ~NcclMessages() override {
    if (!running_) return;
    nccl_.abort();
    drain_before_free(queue_);
  }

  const std::string& name() const override { return algorithm_.name; }
  std::optional<runtime::Traffic> sent() const override { return sent_; }
  std::optional<std::uint64_t> bytes_required() const override { return bytes_required_; }
  Waiting waiting() const override {
    if (!running_) return {};
    return {.peer = nccl_.late_peer(),
            .round = static_cast<std::uint32_t>(turn_),
            .rounds = static_cast<std::uint32_t>(course_->turns.size())};
  }

  void start(const Call& call) override {
    check_call(call);
    submit_all(call);
    done_ = queue_.record();
  }

  bool advance() override {
    if (running_) running_ = !poll_completion(done_);
    return !running_;
  }

  void enqueue(const Call& call) override {
    check_call(call);
    submit_all(call);
    nccl_.note_completion();
    running_ = false;
  }
  void before_launch() override { nccl_.begin(nccl_functions); }
  void check() override { nccl_.check(); }
  void note_completion() override { nccl_.note_completion(); }
  int late_peer() const override { return nccl_.late_peer(); }
  void abort() noexcept override { nccl_.abort(); }
  void on_abort(const std::function<void()>& f) override { nccl_.on_abort(f); }

 private:
  static constexpr const char* nccl_functions = "ncclSend and ncclRecv";

  void check_call(const Call& call) const {
    if (running_) throw core::BackendError("allreduce", name(), "started before the last call was complete");
    Executor::check_call(algorithm_, spec_, call);
    if (!call.in.on_device() || !call.out.on_device()) {
      throw core::BackendError("NCCL", nccl_functions,
                               "it was given memory of the host, and moves memory of a GPU alone");
    }
  }

  /// Puts the whole call into the stream.
  void submit_all(const Call& call) {
    course_ = &course(call.count(), core::size_of(call.element()));
    call_ = call;
    nccl_.begin(nccl_functions);
    running_ = true;
    bytes_required_ += course_->bytes_required;
    for (turn_ = 0; turn_ < course_->turns.size(); ++turn_) {
      begin_turn(course_->turns[turn_]);
      end_turn(course_->turns[turn_]);
    }
  }

  std::vector<Plan> plans_of(int rank) const {
    std::vector<Plan> plans;
    for (const SchedulePtr& s : algorithm_.schedules) {
      plans.push_back(compile(*s, static_cast<std::uint32_t>(rank), spec_.placement));
      check_plan(plans.back());
    }
    return plans;
  }

  /// Takes all scratch before the communicator is made. Later, an allocation may wait for the GPU's kernels, which may
  /// wait for a peer, which may wait for this rank; and a rank that found too little memory would leave the others in
  /// NCCL.
  runtime::OwnedBuffer scratch_on_all_ranks(const runtime::Communicator& c) {
    const auto most = [this](auto of) { return (*std::ranges::max_element(plans_, {}, of)).*of; };
    const std::size_t slice = Executor::alternate_bytes(algorithm_, spec_);
    landing_bytes_ = Executor::landing_bytes(algorithm_, slice, most(&Plan::landing_blocks));
    alternate_bytes_ =
        most(&Plan::uses_alternate) ? (slice + scratch_alignment - 1) / scratch_alignment * scratch_alignment : 0;
    const std::size_t bytes = depth_ * alternate_bytes_ + landing_bytes_;
    runtime::OwnedBuffer scratch;
    on_all_ranks(c, name(), [&] {
      if (bytes > 0) scratch = queue_.device().allocate(core::Element::i8, bytes);
    });
    return scratch;
  }

  /// The course for buffers of this length. It is computed once, since training repeats a handful of lengths.
  const Course& course(std::size_t elements, std::size_t width) {
    for (const auto& c : courses_) {
      if (c->elements == elements && c->width == width) return *c;
    }
    Course c{.elements = elements,
             .width = width,
             .slices = Executor::slices(algorithm_, spec_, elements, width),
             .turns = {},
             .bytes_required = 0};
    const auto& schedules = algorithm_.schedules;
    c.turns = linearise(schedules, c.slices.count(), depth_);
    for (std::uint32_t i = 0; i < c.slices.count(); ++i) {
      const Schedule& s = *schedules[i % schedules.size()];
      if (s.rounds() == 0) c.turns.push_back({i, 0});  // one rank: there may be something to copy
      c.bytes_required += elements_sent(s, static_cast<std::uint32_t>(nccl_.rank()), c.slices[i]) * width;
    }
    return *courses_.emplace_back(std::make_unique<Course>(std::move(c)));
  }

  const Plan& plan_of(const Turn& t) const { return plans_[t.slice % plans_.size()]; }

  /// The plan's round of this number; null: this rank has no step in it.
  static const PlanRound* round_of(const Plan& plan, std::uint32_t number) {
    const auto at = std::ranges::lower_bound(plan.rounds, number, {}, &PlanRound::number);
    return at != plan.rounds.end() && at->number == number ? &*at : nullptr;
  }

  void begin_turn(const Turn& t) {
    slice_ = course_->slices[t.slice];
    alternate_offset_ = t.slice % depth_ * alternate_bytes_;
    const Plan& plan = plan_of(t);
    if (t.round == 0) copy(plan.first_copies);
    const PlanRound* const round = round_of(plan, t.round);
    if (!round || !find_messages(plan, *round)) return;
    queue_.submit("nccl messages", {}, [this] {
      nccl_.add_group(gpu::stream(), [this](const runtime::NcclCalls& calls) {
        for (const Message& m : sends_) calls.send(m.address, m.elements, call_.element(), m.peer);
        for (const Message& m : receives_) calls.receive(m.address, m.elements, call_.element(), m.peer);
      });
    });
  }

  /// Fills `sends_`, `receives_` and `received_at_`; false: all messages are empty.
  bool find_messages(const Plan& plan, const PlanRound& round) {
    sends_.clear(), receives_.clear(), received_at_.clear();
    for (const SendStep& x : round.sends.of(plan.sends)) add(sends_, x.peer, slice_.extent(x.blocks), x.from);
    for (const Message& m : sends_) count(m);
    std::size_t landed = 0;
    for (const ReceiveStep& x : round.receives.of(plan.receives)) {
      const Extent e = slice_.extent(x.blocks);
      std::byte* const to = x.direct ? at(x.to, e) : scratch(depth_ * alternate_bytes_ + landed);
      if (!x.direct) landed += (bytes(e) + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
      received_at_.push_back(to);
      if (e.elements > 0) receives_.push_back({static_cast<int>(x.peer), to, e.elements});
    }
    return !sends_.empty() || !receives_.empty();
  }

  struct Message {
    int peer;
    std::byte* address;
    std::size_t elements;
  };
  void add(std::vector<Message>& to, std::uint32_t peer, const Extent& e, Place place) const {
    if (e.elements > 0) to.push_back({static_cast<int>(peer), at(place, e), e.elements});
  }
  void count(const Message& m) {
    const std::size_t n = m.elements * course_->width;
    sent_.bytes += n;
    ++sent_.messages;
    const auto node = [this](int rank) { return nodes_[static_cast<std::size_t>(rank)]; };
    if (node(m.peer) != node(nccl_.rank())) sent_.bytes_between_nodes += n;
  }

  void end_turn(const Turn& t) {
    const Plan& plan = plan_of(t);
    if (const PlanRound* const round = round_of(plan, t.round)) {
      for (const ReduceStep& x : round->reductions.of(plan.reductions)) reduce(plan, x);
      for (const LocalStep& x : round->finishes.of(plan.finishes)) finish(x);
    }
    const Schedule& s = *algorithm_.schedules[t.slice % algorithm_.schedules.size()];
    if (t.round + 1 >= s.rounds()) copy(plan.copies);
  }

  void reduce(const Plan& plan, const ReduceStep& r) {
    const Extent e = slice_.extent(r.blocks);
    if (e.elements == 0) return;
    std::vector<const std::byte*> sources;
    for (std::uint32_t i = 0; i < r.operands; ++i) {
      const std::uint32_t o = plan.operands[r.first_operand + i];
      sources.push_back(o == own_operand ? at(r.own_place, e) : received_at_[o]);
    }
    submit("reduce", (sources.size() + 1) * bytes(e), [this, &sources, &r, &e] {
      cuda::reduce(call_.element(), call_.accumulates_in(), call_.op, at(r.to, e), sources, e.elements, gpu::stream());
    });
  }
  void finish(const LocalStep& x) {
    const Extent e = slice_.extent(x.blocks);
    submit("finish", 2 * bytes(e), [this, &x, &e] {
      cuda::finish(call_.element(), call_.op, at(Place::out, e), at(x.from, e), e.elements, nccl_.size(),
                   gpu::stream());
    });
  }
  /// Copies by `finish`, which has nothing else to do for a sum.
  void copy(const std::vector<LocalStep>& steps) {
    for (const LocalStep& c : steps) {
      const Extent e = slice_.extent(c.blocks);
      submit("copy", 2 * bytes(e), [this, &c, &e] {
        cuda::finish(call_.element(), Op::sum, at(Place::out, e), at(c.from, e), e.elements, 1, gpu::stream());
      });
    }
  }
  /// `launch` may refer to locals: the queue of a GPU calls it at once, and a stream keeps its own copy of a kernel's
  /// arguments.
  template <class Launch>
  void submit(const char* label, std::size_t moved, const Launch& launch) {
    if (moved > 0) queue_.submit(label, {.flops = 0, .bytes = static_cast<double>(moved)}, launch);
  }

  std::size_t bytes(const Extent& e) const { return e.elements * course_->width; }
  std::byte* scratch(std::size_t offset) const {
    return scratch_.buffer.bytes() > 0 ? scratch_.buffer.device().device_address() + offset : nullptr;
  }
  std::byte* at(Place p, const Extent& e) const {
    const std::size_t offset = e.offset * course_->width;
    if (p == Place::in) return const_cast<std::byte*>(call_.in.device().device_address()) + offset;  // only ever read
    if (p == Place::out) return call_.out.device().device_address() + offset;
    return scratch(alternate_offset_ + e.scratch_offset * course_->width);
  }

  const ScheduledAlgorithm algorithm_;
  const ExchangeSpec spec_;
  runtime::Queue& queue_;
  std::vector<int> nodes_;  ///< by rank
  std::size_t depth_;       ///< slices under way
  std::vector<Plan> plans_;
  std::size_t alternate_bytes_ = 0, landing_bytes_ = 0;
  runtime::OwnedBuffer scratch_;  ///< an alternate for each slice under way, then the landing memory
  std::vector<std::unique_ptr<Course>> courses_;
  runtime::NcclCommunicator nccl_;
  Call call_{};
  const Course* course_ = nullptr;
  std::size_t turn_ = 0;
  Slice slice_;                            ///< the slice of the present turn
  std::size_t alternate_offset_ = 0;       ///< where this slice's alternate begins in the scratch
  std::vector<Message> sends_, receives_;  ///< the messages of the present turn that are not empty
  std::vector<std::byte*> received_at_;    ///< by receive: the address of its data
  bool running_ = false;
  runtime::EventPtr done_;
  runtime::Traffic sent_;
  std::uint64_t bytes_required_ = 0;
};
#endif

}  // namespace

// NOLINTBEGIN(performance-unnecessary-value-param): where CUDA is compiled in they are moved
std::unique_ptr<Collective> make_nccl_messages(ScheduledAlgorithm a, const GroupConnection& connection,
                                               runtime::NcclOptions nccl, ExchangeSpec spec) {
  // NOLINTEND(performance-unnecessary-value-param)
#ifdef GRADMETER_HAS_CUDA
  return std::make_unique<NcclMessages>(std::move(a), connection, std::move(nccl), std::move(spec));
#else
  (void)a, (void)connection, (void)nccl, (void)spec;
  throw core::UsageError(runtime::nccl_refusal());
#endif
}

namespace {

std::string nccl_messages_refusal(const Request& r) {
  const AlgorithmPtr schedule = algorithm_to_run(r);
  (void)message_bytes_of(r);
  if (auto why = schedule->refusal(r.shape, r.collective_kind, r.arithmetic); !why.empty()) return why;
#ifdef GRADMETER_HAS_CUDA
  if (r.shape.ranks > cuda::most_sources) {
    return fmt::format("nccl-messages takes up to {} ranks, as many as one kernel adds up; use nccl",
                       cuda::most_sources);
  }
#endif
  return runtime::nccl_refusal();
}

std::unique_ptr<Collective> bind_nccl_messages(const Request& r, const GroupConnection& connection,
                                               const ExchangeSpec& spec) {
  if (!spec.queue || spec.queue->device().name() != "cuda") {
    throw core::BackendError("NCCL", "init",
                             "it moves memory of a GPU, and buffers are the host's: name the schedule alone, or "
                             "--device cuda");
  }
  ExchangeSpec o = spec;
  o.message_bytes = message_bytes_of(r);
  return make_nccl_messages({r.name.canonical(), algorithm_to_run(r)->make(r.shape, r.collective_kind, r.root)},
                            connection, {}, std::move(o));
}

}  // namespace

constinit const AlgorithmInfo nccl_messages_row{.name = "nccl-messages",
                                                .parameters = "schedule=ring,message=4M",
                                                .cost_text = "the schedule's; between GPUs, sums between the messages",
                                                .source = "a schedule of ours over ncclSend and ncclRecv",
                                                .backend = Backend::device,
                                                .on_device = true,
                                                .adds_all_at_once = true,  // where its schedule does: the refusal
                                                .refusal = nccl_messages_refusal,
                                                .bind = bind_nccl_messages};

}  // namespace gradmeter::allreduce
