// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

RoundPeers peers_of(Session& session, const runtime::Communicator& c) {
  return {.agree = [&c](std::size_t value) { return c.broadcast_value(value); },
          .stop_if_interrupted = [&session, &c] { session.stop_if_interrupted(c); },
          .stop_between_points = [&session, &c] { session.stop_between_points(c); },
          .is_first = c.rank() == 0};
}

RoundPeers no_peers(const runtime::SignalWatch& signals) {
  return {.agree = [](std::size_t value) { return value; },
          .stop_if_interrupted =
              [&signals] {
                if (const int seen = signals.first_signal(); seen > 0) throw core::Interrupted(seen);
              },
          .stop_between_points =
              [&signals] {
                if (const int seen = signals.pending_signal_or_warning(); seen > 0) throw core::Interrupted(seen);
              }};
}

void Rounds::warm_up() {
  const double begin = peers_.clock();
  const std::size_t least = options_.exact_warmup.value_or(options_.warmup_min);
  double before = 0;
  for (bool settled = options_.exact_warmup == 0; !settled;) {
    std::size_t group = warmup_iterations_ == 0 ? 1 : std::max<std::size_t>(2, least / 2);
    if (options_.exact_warmup) group = std::min(group, least - warmup_iterations_);
    const auto times = run_(group, false);
    warmup_iterations_ += group;
    last_median_ = times.empty() ? 0 : core::median(times);
    const bool steady = before > 0 && std::fabs(last_median_ - before) < 0.05 * before;
    const bool over = peers_.clock() - begin > options_.warmup_budget.value;
    const bool enough = warmup_iterations_ >= least;
    settled = peers_.agree((options_.exact_warmup ? enough : (enough && steady) || over) ? 1 : 0) != 0;
    before = last_median_;
    peers_.stop_if_interrupted();
  }
  warmup_s_ = peers_.clock() - begin;
}

core::Stop Rounds::round() {
  const double begin = peers_.clock();
  // The alignment of small messages to cache lines depends on all messages before them: with Open MPI 4.1 an 8-byte
  // all-reduce takes 0.62 or 0.70 us. One more message before every other block puts both cases into the samples.
  if (++rounds_ == 1) first_begin_ = begin;
  if (rounds_ % 2 == 0) (void)peers_.agree(0);
  if (const auto n = peers_.agree(discarded()); n > 0) run_(n, false);
  const std::size_t length = block_length();
  const double block_begin = peers_.clock();
  const auto times = run_(length, true);
  iteration_with_gaps_s_ = (peers_.clock() - block_begin) / static_cast<double>(std::max<std::size_t>(1, length));
  blocks_.add(times);
  measured_s_ += peers_.clock() - begin;
  if (!times.empty()) last_median_ = core::median(times);  // the median of all times would need a sort in every round
  // Rank 0 decides for all, since the ranks' clocks differ.
  stop_ = static_cast<core::Stop>(peers_.agree(static_cast<std::size_t>(decide())));
  peers_.stop_if_interrupted();
  return stop_;
}

core::Stop Rounds::decide() const {
  const bool spent = measured_s_ > options_.rule.budget.value;
  // There are no times if in every iteration some rank began late; the budget still ends the rounds.
  if (times().empty()) return spent ? core::Stop::budget : core::Stop::none;
  if (options_.exact_samples) {
    return times().size() >= options_.exact_samples ? core::Stop::samples : core::Stop::none;
  }
  return options_.rule.decide(blocks_, core::Seconds{peers_.clock() - first_begin_}, core::Seconds{measured_s_});
}

std::size_t Rounds::discarded() const {
  constexpr double most = 1e4, refill_s = 0.05, long_s = 1;
  if (last_median_ > long_s) return 0;  // such a sample is so long that the state of the caches does not matter
  if (last_median_ > refill_s) return std::min<std::size_t>(options_.discarded, 1);  // one iteration refills the caches
  const double settling = last_median_ > 0 ? std::min(most, std::ceil(options_.settling.value / iteration_s())) : 0;
  return std::max(options_.discarded, static_cast<std::size_t>(settling));
}

core::Seconds Rounds::least_time() const {
  const double iteration = iteration_s(),
               block = std::max(static_cast<double>(wanted_length()) * iteration, options_.block.value) +
                       static_cast<double>(discarded()) * iteration;
  return core::Seconds{block * static_cast<double>(core::fewest_blocks_of(core::Seconds{iteration}))};
}

/// Shortens blocks such that `rule.min_blocks` of them take at most half of the budget.
core::Seconds Rounds::fitting_block(const RoundOptions& o) {
  constexpr double least = 0.002;
  const double share = o.rule.budget.value / static_cast<double>(2 * std::max<std::size_t>(1, o.rule.min_blocks));
  return core::Seconds{std::min(o.block.value, std::max(least, share))};
}

std::size_t Rounds::wanted_length() const {
  const double wanted = last_median_ > 0 ? std::ceil(options_.block.value / iteration_s()) : 1;
  const std::size_t longest = options_.most_block_iterations;
  const auto length = static_cast<std::size_t>(std::clamp(wanted, 1.0, static_cast<double>(longest)));
  return std::min(length | 1U, longest);  // a block's median leaves a sample of an even number out
}

std::size_t Rounds::block_length() const {
  std::size_t length = wanted_length();
  if (options_.exact_samples) length = std::min(length, options_.exact_samples - times().size());
  return peers_.agree(length);
}

namespace {

constexpr double build_share = 0.2;  ///< share of the time that all points together may spend on building

}  // namespace

void Rebuilder::build(const std::function<void()>& make) {
  const double begin = runtime::host_clock();
  make();
  last_s_ = runtime::host_clock() - begin;
  spent_s_ += last_s_;
}

void Rebuilder::start(std::size_t points) {
  share_ = build_share / static_cast<double>(points);
  begin_ = runtime::host_clock();
  spent_s_ = 0;
}

bool Rebuilder::has_time(const runtime::Communicator& c) const {
  return c.broadcast_value(spent_s_ + last_s_ <= share_ * (runtime::host_clock() - begin_));
}

std::vector<OwnTime> own_times_by_rank(const runtime::Communicator& c, const core::Blocks& mine) {
  OwnTime t{
      .median = std::numeric_limits<double>::quiet_NaN(), .low = 0, .high = std::numeric_limits<double>::infinity()};
  if (mine.count() > 0) {
    const auto s = core::summarise(mine);
    t.median = s.median;
    if (std::isfinite(s.ci95_low)) t.low = s.ci95_low, t.high = s.ci95_high;
  }
  return c.gather_value(t);
}

core::Blocks slowest_blocks(const runtime::Communicator& c, const core::Blocks& mine, std::vector<double>& medians) {
  medians = c.gather_value(core::summarise(mine).median);
  const auto slowest = c.broadcast_value(static_cast<int>(std::ranges::max_element(medians) - medians.begin()));
  core::Blocks slowest_blocks;
  for (std::size_t i = 0; i < mine.count(); ++i) {
    std::vector<double> block(mine.block(i).begin(), mine.block(i).end());
    c.broadcast(std::span<double>(block), slowest);
    slowest_blocks.add(block);
  }
  return slowest_blocks;
}

std::optional<int> straggler(std::span<const double> medians) {
  std::vector<OwnTime> exact;
  exact.reserve(medians.size());
  for (const double m : medians) exact.push_back({m, m, m});
  return straggler(exact);
}

std::optional<int> straggler(std::span<const OwnTime> ranks) {
  constexpr double noticeable = 1.1;
  if (ranks.size() < 2 || std::ranges::any_of(ranks, [](const OwnTime& t) { return std::isnan(t.median); })) {
    return std::nullopt;
  }
  std::vector<OwnTime> sorted(ranks.begin(), ranks.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::ranges::nth_element(sorted, middle, {}, &OwnTime::median);
  const auto slowest = std::ranges::max_element(ranks, {}, &OwnTime::median);
  if (!(slowest->median > noticeable * middle->median) || !(slowest->low > middle->high)) return std::nullopt;
  return static_cast<int>(slowest - ranks.begin());
}

void fill_medians(std::span<const double> medians, const std::function<std::string(int rank)>& host_of,
                  core::Metrics& m) {
  if (medians.empty()) return;
  const auto [least, most] = std::ranges::minmax(medians);
  if (least > 0) m[core::Metric::ranks_spread] = most / least;
  if (const auto late = straggler(medians)) fill_slowest(*late, host_of(*late), m);
}

void fill_slowest(int rank, const std::string& host, core::Metrics& m) {
  m[core::Metric::slowest_rank] = static_cast<std::int64_t>(rank);
  m[core::Metric::slowest_host] = host;
}

}  // namespace gradmeter::bench
