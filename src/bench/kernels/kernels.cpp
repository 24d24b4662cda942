#include "bench/kernels/kernels.hpp"

#include <algorithm>
#include <set>

#include "allreduce/known_data.hpp"
#include "bench/kernels/benchmark.hpp"
#include "bench/kernels/budget.hpp"
#include "core/format.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/problems/problem_text.hpp"
#include "runtime/agreement.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

using core::Point;
using core::Status;
using kernels::Precision;

constexpr double usual_point_budget = 1;
/// The reference's work for one check: 0.2 s of it, at 1 GFLOP/s.
constexpr double usual_check_s = 0.2, reference_flops_per_s = 1e9;

/// What is known of a point before it is measured.
struct Entry {
  KernelPoint point;
  Point row;
  bool kept = false;
  double call_s = 0, setup_s = 0;  ///< by the roofline; by the bytes to be filled
};

std::string kind_of(const KernelPoint& p) {
  return fmt::format("{} {} {}", name(p.problem.operation()), name(p.problem.pass), name(p.problem.precision));
}

class Sweep {
 public:
  Sweep(Session& s, const runtime::Communicator& c, const KernelOptions& o, const FinishedRows& finished,
        const KernelListener& l)
      : session_(s),
        c_(c),
        options_(o),
        listener_(l),
        rows_(finished, l.rows, c.rank() == 0),
        at_(placement_of(s, c, o.threads)) {}

  std::size_t run() {
    limits_ = std::make_unique<KernelLimits>(session_, c_, options_.threads, at_.ranks_per_node);
    plan();
    report_limits();
    rows_.start(to_measure_, options_.time_budget);  // the budget is for the points
    for (done_ = 0; done_ < entries_.size(); ++done_) {
      session_.stop_if_interrupted(c_);
      Entry& e = entries_[done_];
      if (!e.kept && e.row.status == Status::ok) measure(e);
      emit(e);
    }
    return rows_.wrong();
  }

 private:
  bool root() const { return c_.rank() == 0; }

  void plan() {
    const auto points = plan_kernels(options_.factors);
    const auto refusals = refusals_of(points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      Entry e{.point = points[i], .row = {}};
      e.row.experiment = "kernels";
      e.row.factors = to_factors(e.point, at_);
      e.kept = rows_.finished(e.row.factors) != nullptr;
      if (!refusals[i].empty()) refuse(e.row, Status::unsupported, refusals[i]);
      if (e.row.status == Status::ok && !e.kept) foresee(e);
      to_measure_ += e.row.status == Status::ok && !e.kept;
      entries_.push_back(std::move(e));
    }
  }

  /// By point, of the first rank that refuses it: nodes may differ.
  std::vector<std::string> refusals_of(const std::vector<KernelPoint>& points) const {
    std::vector<std::string> out;
    for (const KernelPoint& p : points) out.push_back(kernels::kernel_case_refusal(p.problem));
    const std::string mine = fmt::format("{}", fmt::join(out, "\n"));
    if (runtime::same_on_all(c_, allreduce::hash_of(std::as_bytes(std::span(mine))))) return out;
    std::vector<double> first;  // the largest of these is the lowest rank's
    for (const auto& why : out) first.push_back(why.empty() ? -c_.size() : -c_.rank());
    c_.max(first);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const int rank = static_cast<int>(-first[i]);
      if (rank < c_.size()) out[i] = c_.broadcast_text(out[i], rank);
    }
    return out;
  }

  /// Memory and time, as far as they can be predicted.
  void foresee(Entry& e) {
    const std::size_t needs =
        kernel_memory(e.point, limits_->last_cache_bytes()) * static_cast<std::size_t>(at_.ranks_per_node);
    if (const std::size_t free = session_.memory_per_node(); needs > free) {
      return refuse(e.row, Status::skipped, short_of_memory(needs, free));
    }
    e.call_s = bound(e).seconds;
    constexpr double filled_per_s = 4e8;
    e.setup_s = static_cast<double>(needs) / at_.ranks_per_node / filled_per_s;
  }

  KernelBound bound(const Entry& e) {
    const auto& p = e.point.problem;
    const auto& level = limits_->level(e.point.cache == CacheState::cold, kernels::kernel_case_bytes(p));
    KernelBound b = kernel_bound(full_flops(p), bytes(p), limits_->peak(p.precision), level);
    const bool beyond_caches = kernels::kernel_case_bytes(p) > limits_->last_cache_bytes();
    // DeepBench's count has products with padding, which a library need not compute.
    const auto* conv = std::get_if<kernels::ConvShape>(&p.shape);
    const bool padded = conv && conv->pad_width + conv->pad_height > 0;
    b.certain = (b.name == "compute" && !padded) || (b.name == "memory" && beyond_caches);
    return b;
  }

  void report_limits() {
    if (!root() || !listener_.limits) return;
    std::set<Precision> used;
    for (const Entry& e : entries_) {
      if (!e.kept && e.row.status == Status::ok) used.insert(e.point.problem.precision);
    }
    listener_.limits(*limits_, {used.begin(), used.end()});
  }

  double least_of(const Entry& e) const {
    if (e.kept || e.row.status != Status::ok) return 0;
    const std::string kind = kind_of(e.point);
    constexpr double calls = 2;
    return setup_.of(kind) * (e.setup_s + check_s()) + calls * slow_.of(kind) * e.call_s;
  }

  double check_s() const {
    if (!options_.check) return 0;
    if (!options_.time_budget) return usual_check_s;
    const double each = options_.time_budget->value / static_cast<double>(std::max<std::size_t>(1, to_measure_));
    return std::clamp(0.2 * each, 0.001, usual_check_s);
  }

  /// Rank 0 decides: clocks differ.
  TimeShare share() const {
    if (!options_.time_budget) return {.seconds = usual_point_budget};
    std::vector<double> least;
    for (std::size_t i = done_; i < entries_.size(); ++i) {
      if (const double s = least_of(entries_[i]); s > 0) least.push_back(s);
    }
    return c_.broadcast_value(share_out(rows_.left(), least));
  }

  void measure(Entry& e) {
    const TimeShare time = share();
    if (time.skip) {
      return refuse(e.row, Status::skipped,
                    fmt::format("the time budget has no room: a call takes about {}, with its check {}",
                                core::to_text(core::Seconds{slow_.of(kind_of(e.point)) * e.call_s}),
                                core::to_text(core::Seconds{least_of(e)})));
    }
    say(e);
    const double begin = runtime::host_clock();
    const std::size_t sets =
        operand_sets(e.point.cache, kernels::kernel_case_bytes(e.point.problem), limits_->last_cache_bytes());
    KernelBenchmark benchmark(session_, c_, e.point, options_.threads, sets, options_.seed);
    if (const auto why = benchmark.prepare(); !why.empty()) return refuse(e.row, Status::failed, why);
    KernelFindings found{
        .point = e.point, .ranks = c_.size(), .host_of = [this](int rank) { return session_.host_of(rank); }};
    found.bound = bound(e);
    found.oversubscribed = at_.ranks_per_node * options_.threads > session_.cores_per_node();
    if (options_.check && !check(benchmark, e, found)) return;
    const double call = benchmark.probe(options_.check);
    const double setup = runtime::host_clock() - begin;
    learn(e, call, setup);
    const double left = c_.broadcast_value(options_.time_budget ? time.seconds - setup : time.seconds);
    benchmark.measure(options_.rule, std::max(0.0, left), options_.time_budget.has_value(), found);
    if (c_.broadcast_value(beats_bound(found))) {
      limits_->measure_again(found.bound, e.point.problem.precision);
      found.bound = bound(e);
    }
    fill_kernel_times(found, e.row);
  }

  bool check(KernelBenchmark& benchmark, Entry& e, KernelFindings& found) {
    const bool inject_error = options_.error_rank == c_.rank();
    const auto why = benchmark.check(check_s() * reference_flops_per_s, inject_error, found);
    if (!why.empty()) return refuse(e.row, Status::failed, why), false;
    fill_kernel_check(found, e.row);
    return e.row.status == Status::ok;
  }

  /// Improves predictions for the next points of this kind.
  void learn(const Entry& e, double call, double setup) {
    if (e.call_s > 0) slow_.learn(kind_of(e.point), call / e.call_s);
    const double foreseen = e.setup_s + check_s();
    const double own = setup - (options_.check ? 2 : 3) * call;
    if (foreseen > 0) setup_.learn(kind_of(e.point), std::max(0.0, own) / foreseen);
  }

  void say(const Entry& e) const {
    rows_.progress(fmt::format("{} {} {}", kernels::problem_text(e.point.problem.shape), name(e.point.problem.pass),
                               name(e.point.problem.precision)));
  }

  void emit(Entry& e) {
    Point& row = e.row;
    if (e.kept) row = *rows_.finished(row.factors);
    row.metrics[core::Metric::application] = core::Value{};
    if (const auto& a = e.point.problem.application; !a.empty()) row.metrics[core::Metric::application] = a;
    if (options_.against) {
      fill_published(options_.against->name(), options_.against->find(e.point.problem, e.point.training), row);
    }
    e.kept ? rows_.show(row) : rows_.emit(row);
  }

  Session& session_;
  const runtime::Communicator& c_;
  const KernelOptions& options_;
  const KernelListener& listener_;
  SweepRows rows_;
  KernelPlacement at_;
  std::unique_ptr<KernelLimits> limits_;
  std::vector<Entry> entries_;
  Slowness slow_{1.5}, setup_{1};
  std::size_t to_measure_ = 0, done_ = 0;
};

}  // namespace

KernelPlacement placement_of(const Session& s, const runtime::Communicator& c, int threads) {
  return {.ranks = c.size(),
          .nodes = s.nodes(c.size()),
          .ranks_per_node = s.ranks_per_node(c.size()),
          .threads = threads,
          .ranks_as = c.ranks_as()};
}

std::size_t run_kernels(Session& s, const runtime::Communicator& c, const KernelOptions& o,
                        const FinishedRows& finished, const KernelListener& l) {
  return Sweep(s, c, o, finished, l).run();
}

}  // namespace gradmeter::bench
