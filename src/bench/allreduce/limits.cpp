// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/limits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "allreduce/reduce.hpp"
#include "bench/engine/coded_sum.hpp"
#include "core/statistics.hpp"
#include "core/streaming_copy.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

using allreduce::CollectiveKind;

/// The measured rate of the wire is the best of some exchanges, and may lie below what the wire can do by this share
/// (by 3 % in one of two runs on 1 Gbit/s, results/interconnects.md). A point that is faster than its limit by less is
/// not called "faster than can be".
constexpr double wire_doubt = 0.05;

/// Reads and writes all words, whose values stay: each becomes the larger one of itself and itself.
void update(std::byte* words, std::size_t bytes) {
  const std::array<const std::byte*, 2> twice{words, words};
  const auto word = core::Element::i32;
  allreduce::reduce(word, word, allreduce::Op::max, words, twice, bytes / core::size_of(word));
}

}  // namespace

std::string_view name(Traffic t) {
  constexpr std::array<std::string_view, 5> names{"none", "memcpy", "update", "write", "reduce"};
  return names[static_cast<std::size_t>(t)];
}

LeastTraffic least_traffic(CollectiveKind collective_kind, std::size_t count, std::size_t ranks, bool in_place,
                           bool is_root) {
  const std::size_t others = count - count / ranks;
  const LeastTraffic whole{in_place ? Traffic::update : Traffic::copy, count};
  if (count == 0 || (ranks == 1 && in_place)) return {};
  if (ranks == 1) return whole;
  switch (collective_kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::send_receive:
      return whole;
    case CollectiveKind::all_to_all:
      return in_place ? LeastTraffic{Traffic::update, others} : whole;
    case CollectiveKind::reduce_scatter:
      return count < ranks ? LeastTraffic{} : LeastTraffic{Traffic::reduce, count};
    case CollectiveKind::all_gather:
      return {Traffic::write, in_place ? others : count};
    case CollectiveKind::broadcast:
      break;
  }
  return in_place && is_root ? LeastTraffic{} : LeastTraffic{Traffic::write, count};
}

bool have_equal_traffic(const CollectivePoint& p, std::size_t ranks) {
  const auto traffic = [&](bool is_root) {
    return least_traffic(p.collective->collective_kind, p.count, ranks, p.in_place, is_root);
  };
  return traffic(false).kind != Traffic::none && traffic(true) == traffic(false);
}

CollectiveLimit wire_limit(const CollectivePoint& p, const NodeMap& map, const core::Machine& machine) {
  const double bound = wire_bound(p, map, machine);
  const bool has_slowest_rank = p.reduction == RankReduction::max || p.reduction == RankReduction::span;
  const bool goes_one_way = p.collective->collective_kind == CollectiveKind::broadcast;
  return {.seconds = bound,
          .low = has_slowest_rank && !goes_one_way ? bound * (1 - wire_doubt) : 0,
          .name = "wire",
          .link = {machine.node_port.bytes_per_s}};
}

void LeastWork::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t long_bytes = std::size_t{32} << 20;  // shorter copies: memcpy, as caches hold much of them
  if (bytes < long_bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  constexpr std::size_t tries = 8;  // the first calls also pay for pages that nobody has touched
  const std::size_t faster = fastest_s_[1] < fastest_s_[0] ? 1 : 0;
  const std::size_t variant = long_copies_ < tries ? long_copies_ % 2 : faster;
  ++long_copies_;
  const double begin = runtime::host_clock();
  if (variant == 0) {
    std::memcpy(to, from, bytes);
  } else {
    core::copy_streaming(to, from, bytes);
    core::end_streaming();
  }
  const double took = runtime::host_clock() - begin;
  double& fastest = fastest_s_.at(variant);
  fastest = fastest > 0 ? std::min(fastest, took) : took;
}

void LeastWork::start(const allreduce::Call& call) {
  constexpr int normal_number = 0x3f;  // in every byte: a normal number in every float
  const std::size_t width = core::size_of(call.element()), bytes = traffic_.count * width;
  switch (traffic_.kind) {
    case Traffic::none:
      return;
    case Traffic::copy:
      return copy(call.out.host(), call.in.host(), bytes);
    case Traffic::update:
      return update(call.out.host(), bytes);
    case Traffic::write:
      std::memset(call.out.host(), normal_number, bytes);
      return;
    case Traffic::reduce:
      break;
  }
  const std::size_t block = traffic_.count / sources_.size();
  for (std::size_t b = 0; b < sources_.size(); ++b) sources_[b] = call.in.host() + b * block * width;
  allreduce::reduce(call.element(), call.accumulates_in(), call.op, call.out.host(), sources_, block);
}

namespace {

LeastTraffic traffic_of(const CollectivePoint& p, const runtime::Communicator& c, bool is_root) {
  return least_traffic(p.collective->collective_kind, p.count, static_cast<std::size_t>(c.size()), p.in_place, is_root);
}

}  // namespace

LimitBenchmark::LimitBenchmark(Session& s, CollectiveSetup& setup, runtime::SharedClock& clock,
                               const CollectivePoint& p, const RoundOptions& o)
    : setup_(setup),
      point_(p),
      most_traffic_(traffic_of(p, setup.world(), false)),
      work_(setup.with_slow_fault(
          std::make_unique<LeastWork>(traffic_of(p, setup.world(), setup.world().rank() == p.root),
                                      static_cast<std::size_t>(setup.world().size())))),
      call_(call_of(p, setup.buffers(p))),
      task_(make_call_task(
          {setup.world(), clock, p.cadence, p.reduction},
          CollectiveCaller(s.activity(), runtime::spin_policy_for(1, 1), *work_, "limit", call_, p.calls))),
      rounds_(s, setup.world(), o, blocks_of(*task_, p.calls)) {}

void LimitBenchmark::warm_up() { rounds_.warm_up(); }

bool LimitBenchmark::round() {
  call_ = call_of(point_, setup_.buffers(point_, turns_.count() % CollectiveSetup::first_page_count));
  const auto stop = rounds_.round();
  turns_.note(rounds_.blocks().count());
  own_times_.add(task_->take_own_times());
  own_turns_.note(own_times_.count());
  return stop != core::Stop::none;
}

void LimitBenchmark::finish(const MachineState& state) {
  by_rank_ = own_times_by_rank(setup_.world(), own_turns_.undisturbed(own_times_, state));
  if (rounds_.blocks().count() == 0 || most_traffic_.kind == Traffic::none) return;
  const auto time = core::summarise(turns_.undisturbed(rounds_.blocks(), state));
  limit_ = {.seconds = time.median,
            .low = std::isfinite(time.ci95_low) ? time.ci95_low : 0,
            .name = std::string(name(most_traffic_.kind)),
            .link = {}};
}

namespace {

// [elements] that are encoded at once: 256 KiB of fp32, as a slice's block, which stays in the cache.
constexpr std::size_t chunk_elements = std::size_t{64} << 10;
constexpr int repeats = 15;

/// The rate of `work` on one chunk, on the slowest rank while all ranks work [bytes of fp32/s].
template <class Work>
double rate(const runtime::Communicator& c, const Work& work) {
  std::vector<double> times;
  c.barrier();
  for (int i = 0; i < repeats; ++i) {
    const double begin = runtime::host_clock();
    work();
    times.push_back(runtime::host_clock() - begin);
  }
  return static_cast<double>(chunk_elements * sizeof(float)) / c.max(core::median(times));
}

/// The link from a rank to the next rank while all ranks send: the median of the rounds.
core::Link measure_link(Session& session, runtime::TransportKind kind) {
  const auto& c = session.world();
  constexpr std::size_t bytes = std::size_t{4} << 20;
  constexpr int rounds = 9;
  const bool crowded = session.ranks_per_node(c.size()) > session.cores_per_node();
  dataparallel::RankFabric fabric(c,
                                  {.transport = kind,
                                   .spin_policy = runtime::spin_policy_for(crowded ? 2 : 1, 1),
                                   .memory_bytes = 2 * (bytes + 4096)},
                                  session.activity());
  const auto out = fabric.arena().take_of<float>(bytes / sizeof(float));
  const auto in = fabric.arena().take_of<float>(bytes / sizeof(float));
  std::fill(out.begin(), out.end(), 1.0f);
  std::fill(in.begin(), in.end(), 0.0f);
  const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    c.barrier();
    const double begin = fabric.now();
    const auto sent = fabric.send(dataparallel::everybody, next, std::span<const float>(out), {});
    const auto received = fabric.receive(dataparallel::everybody, previous, in);
    fabric.wait(received);
    fabric.wait(sent);
    times.push_back(c.max(fabric.now() - begin));
  }
  // The first round is left out, since it touches memory and opens connections.
  return {.bandwidth = {{.bytes_per_s = static_cast<double>(bytes) / core::median(std::span(times).subspan(1))}}};
}

}  // namespace

bool costs_as_scatter_and_gather(const allreduce::AlgorithmChoice& a, allreduce::RankShape shape) {
  if (!a.has_schedule() || !a.refusal(shape).empty()) return false;
  for (const auto& schedule : a.make(shape)) {
    if (schedule->finishes_everywhere()) return false;
  }
  constexpr double rounding = 1e-9;
  const double ranks = shape.ranks;
  return std::fabs(a.cost(shape).sent_per_rank_max - 2 * (ranks - 1) / ranks) < rounding;
}

void CodecEstimator::measure(const compression::CodecChoice& choice) {
  if (machine_.codecs.contains(choice.name)) return;
  const auto& c = session_.world();
  const runtime::Computing note(session_.activity(), "codec speed");
  const compression::Codec& codec = *choice.codec;
  std::vector<float> x(chunk_elements), sum(chunk_elements);
  draw_worker_gradient(1, c.rank(), x);
  std::vector<std::byte> wire(codec.wire_bytes(chunk_elements));
  std::vector<float> residual(choice.feedback ? chunk_elements : 0), scratch(residual.size());
  core::CodecRates& rates = machine_.codecs[choice.name];
  rates.encode = rate(c, [&] {
    if (choice.feedback) {
      compression::encode_with_feedback(codec, x, residual, scratch, wire.data(), {});
    } else {
      codec.encode(x, wire.data(), {});
    }
  });
  rates.decode = rate(c, [&] { codec.decode(wire, sum); });
  rates.add = rate(c, [&] { codec.decode_add(wire, sum, sum); });
}

std::optional<compression::CodecEstimate> CodecEstimator::of(const CollectivePoint& p) {
  const int ranks = session_.world().size();
  if (!p.codec || !p.codec->codec || p.codec->exchange != compression::Exchange::schedule || ranks < 2 ||
      !p.transport || p.count < p.codec->min_elements || p.count == 0 ||
      p.collective->collective_kind != CollectiveKind::all_reduce ||
      !costs_as_scatter_and_gather(*p.algorithm, shape_)) {
    return std::nullopt;
  }
  measure(*p.codec);
  if (!links_.contains(*p.transport)) links_[*p.transport] = measure_link(session_, *p.transport);
  machine_.within_node = links_[*p.transport];
  const double bits = 8.0 * static_cast<double>(p.codec->codec->wire_bytes(p.count)) / static_cast<double>(p.count);
  return compression::estimate(machine_, p.codec->name, ranks, p.count, bits);
}

}  // namespace gradmeter::bench
