// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/kernels.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "allreduce/test_data.hpp"
#include "bench/kernels/measure.hpp"
#include "bench/kernels/plan.hpp"
#include "core/format.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/problems/problem_file.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

using core::Status;
using kernels::Precision;

constexpr core::Seconds usual_kernel_budget{1};
/// The time that the float64 reference may take for one check [s], and the rate that it is assumed to have.
constexpr double usual_check_s = 0.2, reference_flops_per_s = 1e9;

/// A point, and what is predicted of it before it is measured.
struct Entry : SweepPoint {
  Entry(SweepPoint planned, KernelPoint p) : SweepPoint(std::move(planned)), point(std::move(p)) {}
  KernelPoint point;
  double call_s = 0, setup_s = 0;  ///< of a call, by the roofline; of the preparation, by the bytes to fill
  std::size_t node_bytes = 0;      ///< host memory that the point takes on a node
};

bool are_of_one_problem(const Entry& a, const Entry& b) {
  return a.point.problem.shape == b.point.problem.shape && a.point.problem.pass == b.point.problem.pass &&
         a.point.batch == b.point.batch;
}

std::string kind_of(const KernelPoint& p) {
  return fmt::format("{} {} {}", name(p.problem.operation()), name(p.problem.pass), name(p.problem.precision));
}

class KernelSweep final : public Experiment {
 public:
  KernelSweep(Session& s, const runtime::Communicator& c, const KernelOptions& o, const KernelListener& l)
      : session_(s), communicator_(c), options_(o), listener_(l), placement_(placement_of(s, c, o.threads)) {}

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    if (!on_host()) device_free_ = least_free();
    const auto points = plan_kernels(options_.factors);
    const auto refusals = refusals_of(points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      Entry& e = entries_.emplace_back(rows.point("kernels", to_factors(points[i], placement_), i), points[i]);
      if (!refusals[i].empty()) refuse(e.row, Status::unsupported, refusals[i]);
    }
    // The roofline takes seconds, so it is measured only if a point is.
    if (std::ranges::any_of(entries_, &Entry::is_due)) {
      rows.progress("roofline: the peaks of arithmetic and of memory");
      limits_ = std::make_unique<KernelLimits>(session_, communicator_, options_.threads, placement_.ranks_per_node);
      foresee_all();
      form_groups();
      report_limits();
      limits_done_ = runtime::host_clock();
    }
    return pointers_to(entries_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    if (!std::exchange(begun_, true)) rows.foresee({0}, "the roofline, which is measured before the first point");
    std::deque<Running> running;
    core::Seconds promised{0};
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].group == group && entries_[i].is_due()) prepare(i, rows, promised, running);
    constexpr double share = 0.1;  // a timed call's check may cost this share of the case's own check
    for (Running& r : running)
      r.benchmark.start(options_.rule, r.seconds, options_.time_budget.has_value(),
                        r.found.checks ? share * check_s() * reference_flops_per_s : 0, running.size());
    std::vector<Turn> turns;
    for (Running& r : running) turns.emplace_back([&r] { return r.benchmark.turn(); });
    take_turns(session_.run_seed() + group, turns);
    for (Running& r : running) finish(r);
  }

  void complete(SweepPoint& p) const override {
    const KernelPoint& point = static_cast<const Entry&>(p).point;
    const std::string& application = point.problem.application;
    p.row.metrics[core::Metric::application] = application.empty() ? core::Value() : core::Value(application);
    if (options_.against)
      fill_published(options_.against->name(), options_.against->find(point.problem, point.is_from_training_list),
                     p.row);
  }

 private:
  /// A point that takes turns with others.
  struct Running {
    Running(Entry& e, KernelBenchmark b, KernelResults f) : entry(e), benchmark(std::move(b)), found(std::move(f)) {}
    Entry& entry;
    KernelBenchmark benchmark;
    KernelResults found;
    double seconds = 0;  ///< time for its samples
  };

  /// Makes and checks the kernel, and adds it to `running`, the points that take turns. promised: the time that all of
  /// these have been given.
  void prepare(std::size_t index, SweepRows& rows, core::Seconds& promised, std::deque<Running>& running) {
    Entry& e = entries_[index];
    const TimeShare time = share(index, rows, promised);
    if (time.skip) {
      const std::string limit_fault = limits_->fault(e.point.problem.precision);
      if (!limit_fault.empty()) return refuse(e.row, Status::wrong, limit_fault);
      return refuse(e.row, Status::skipped,
                    fmt::format("the time budget has no room: a call takes about {}, with its check {}",
                                core::to_text(core::Seconds{call_slowness_.of(kind_of(e.point)) * e.call_s}),
                                core::to_text(core::Seconds{least_of(e)})));
    }
    rows.progress(fmt::format("{} {} {}", kernels::problem_text(e.point.problem.shape), name(e.point.problem.pass),
                              name(e.point.problem.precision)));
    const double begin = runtime::host_clock();
    const std::size_t sets = sets_of(e.point);
    Running& r = running.emplace_back(
        e, KernelBenchmark(session_, communicator_, e.point, options_.threads, sets, options_.seed),
        KernelResults{.point = e.point, .ranks = communicator_.size(), .host_of = [this](int rank) {
                        return session_.host_of(rank);
                      }});
    if (!make(r)) return running.pop_back();
    const double call = r.benchmark.probe(options_.check), setup = runtime::host_clock() - begin;
    learn(e, call, setup);
    r.seconds =
        std::max(0.0, communicator_.broadcast_value(options_.time_budget ? time.seconds - setup : time.seconds));
    promised.value += r.seconds;
  }

  /// Returns false if the kernel cannot be made or is wrong; the row then has the reason.
  bool make(Running& r) {
    Entry& e = r.entry;
    if (const auto why = r.benchmark.prepare(); !why.empty()) return refuse(e.row, Status::failed, why), false;
    r.found.bound = bound(e);
    r.found.on_host = on_host();
    if (e.point.cache == CacheState::cold && !is_cold(e.point)) r.found.cached_bytes = rotation_bytes(e.point);
    r.found.oversubscribed = on_host() && placement_.ranks_per_node * options_.threads > session_.cores_per_node();
    return !options_.check || check(r.benchmark, e, r.found);
  }

  void finish(Running& r) {
    Entry& e = r.entry;
    r.benchmark.finish(r.found);
    if (!fill_timed_checks(r.found, e.row)) return;
    if (const auto why = limits_->fault(e.point.problem.precision); !why.empty())
      return refuse(e.row, Status::wrong, why);
    if (communicator_.broadcast_value(beats_bound(r.found))) {
      limits_->measure_again(r.found.bound, e.point.problem.precision);
      r.found.bound = bound(e);
    }
    fill_kernel_times(r.found, e.row);
  }

  bool on_host() const { return session_.on_host(); }
  std::size_t sets_of(const KernelPoint& p) const {
    return operand_sets(p.cache, touched_bytes(p.problem, session_.device()), limits_->cache_bytes());
  }
  /// The bytes that calls touch before they come back to the same operands.
  std::size_t rotation_bytes(const KernelPoint& p) const {
    const double sets = static_cast<double>(sets_of(p));
    return kernels::whole_bytes(sets * static_cast<double>(touched_bytes(p.problem, session_.device())));
  }
  /// False for cold operands so small that even the largest number of sets fits into the caches. A device's caches are
  /// cleared before each cold call.
  bool is_cold(const KernelPoint& p) const {
    return p.cache == CacheState::cold && (!on_host() || rotation_bytes(p) > limits_->cache_bytes());
  }

  /// The refusal of each point, from the first rank that refuses it, since nodes may differ.
  std::vector<std::string> refusals_of(const std::vector<KernelPoint>& points) const {
    std::vector<std::string> out;
    for (const KernelPoint& p : points) out.push_back(kernels::kernel_case_refusal(p.problem, session_.device()));
    const std::string mine = fmt::format("{}", fmt::join(out, "\n"));
    if (runtime::same_on_all(communicator_, allreduce::hash_of(std::as_bytes(std::span(mine))))) return out;
    std::vector<double> first;  // minus the rank that refuses, so that the largest is the lowest rank's
    for (const auto& why : out) first.push_back(why.empty() ? -communicator_.size() : -communicator_.rank());
    communicator_.max(first);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const int rank = static_cast<int>(-first[i]);
      if (rank < communicator_.size()) out[i] = communicator_.broadcast_text(out[i], rank);
    }
    return out;
  }

  void foresee_all() {
    for (Entry& e : entries_) {
      if (e.is_due()) foresee(e);
      to_measure_ += e.is_due();
    }
  }

  /// Points of one problem (its precisions, caches and repeats) take turns, so that their times are of one state of the
  /// machine and can be compared. Where their memory does not fit together, and on a device, each is measured alone.
  void form_groups() {
    std::size_t group = 0;
    for (auto first = entries_.begin(); first != entries_.end();) {
      const auto last =
          std::find_if_not(first, entries_.end(), [&](const Entry& e) { return are_of_one_problem(*first, e); });
      std::size_t bytes = 0;
      for (auto e = first; e != last; ++e) bytes += e->is_due() ? e->node_bytes : 0;
      const bool fits = on_host() && bytes <= session_.free_memory_per_node();
      for (; first != last; ++first) {
        first->group = group;
        if (!fits || first + 1 == last) ++group;
      }
    }
  }

  /// Predicts the point's memory and time; refuses the point if memory is short.
  void foresee(Entry& e) {
    const KernelMemory memory = kernel_memory(e.point, limits_->cache_bytes(), session_.device());
    const std::size_t needs = kernels::whole_bytes(static_cast<double>(memory.host) * placement_.ranks_per_node);
    if (const std::size_t free = session_.free_memory_per_node(); needs > free) {
      return refuse(e.row, Status::skipped, short_of_memory(needs, free));
    }
    if (memory.device > device_free_) {
      return refuse(e.row, Status::skipped, short_of_device_memory(memory.device));
    }
    e.node_bytes = needs;
    e.call_s = bound(e).seconds;
    constexpr double filled_per_s = 4e8;
    const std::size_t rank_bytes = needs / static_cast<std::size_t>(placement_.ranks_per_node) + memory.device;
    e.setup_s = static_cast<double>(rank_bytes) / filled_per_s;
  }

  /// The free device memory for a rank [bytes], on the rank that has least. Ranks that share a device share its memory.
  std::size_t least_free() const {
    const double mine = static_cast<double>(session_.device().free_bytes()) / placement_.ranks_per_node;
    return mine > 0 ? static_cast<std::size_t>(-communicator_.max(-mine)) : SIZE_MAX;
  }
  std::string short_of_device_memory(std::size_t needs) const {
    return fmt::format("its operands take {} of the device's memory, of which a rank has {}",
                       core::to_text(core::Bytes{needs}), core::to_text(core::Bytes{device_free_}));
  }

  KernelBound bound(const Entry& e) {
    const auto& p = e.point.problem;
    const auto& level = limits_->level(is_cold(e.point), rotation_bytes(e.point));
    KernelBound b =
        kernel_bound(run_flops(p), on_host() ? bytes(p) : native_bytes(p), limits_->peak(p.precision), level);
    // DeepBench's count includes products with padding, which a library need not compute.
    const auto* conv = std::get_if<kernels::ConvShape>(&p.shape);
    const bool padded = conv && conv->pad_width + conv->pad_height > 0;
    b.certain = is_certain(b, {.on_host = on_host(),
                               .computes_all = !padded,
                               .is_upper_bound = limits_->is_upper_bound(p.precision),
                               .rotation_bytes = rotation_bytes(e.point),
                               .caches = limits_->cache_bytes()});
    return b;
  }

  void report_limits() {
    if (communicator_.rank() > 0 || !listener_.limits) return;
    std::set<Precision> used;
    for (const Entry& e : entries_) {
      if (e.is_due()) used.insert(e.point.problem.precision);
    }
    listener_.limits(*limits_, {used.begin(), used.end()});
  }

  /// The least time that the point takes: preparation, check and two calls [s]; 0 if it is not to be measured.
  double least_of(const Entry& e) const {
    if (!e.is_due()) return 0;
    const std::string kind = kind_of(e.point);
    constexpr double calls = 2;
    return setup_slowness_.of(kind) * (e.setup_s + check_s()) + calls * call_slowness_.of(kind) * e.call_s;
  }

  /// The time that the check of a point may take [s].
  double check_s() const {
    if (!options_.check) return 0;
    const auto each = equal_share(options_.time_budget, to_measure_, usual_kernel_budget);
    return std::clamp(0.2 * each.value, 0.001, usual_check_s);
  }

  /// The time for point `next`. promised: the time that other points of its group will take. Rank 0 decides, since
  /// clocks differ.
  TimeShare share(std::size_t next, const SweepRows& rows, core::Seconds promised) const {
    if (!options_.time_budget) return {.seconds = usual_kernel_budget.value};
    std::vector<double> least;
    for (std::size_t i = next; i < entries_.size(); ++i) {
      if (const double s = least_of(entries_[i]); s > 0) least.push_back(s);
    }
    // The points get at least half of the budget, even if the roofline has taken more than the other half.
    const double half = limits_done_ + options_.time_budget->all.value / 2 - runtime::host_clock();
    return communicator_.broadcast_value(share_out({std::max(rows.left().value, half) - promised.value}, least));
  }

  bool check(KernelBenchmark& benchmark, Entry& e, KernelResults& found) {
    const bool inject_error = options_.error_rank == communicator_.rank();
    const auto why = benchmark.check(check_s() * reference_flops_per_s, inject_error, found);
    if (!why.empty()) return refuse(e.row, Status::failed, why), false;
    fill_kernel_check(found, e.row);
    return e.row.status == Status::ok;
  }

  /// Improves predictions for the next points of this kind. setup: time of preparation, check and probe, whose calls
  /// are taken off.
  void learn(const Entry& e, double call, double setup) {
    if (e.call_s > 0) call_slowness_.learn(kind_of(e.point), call / e.call_s);
    const double foreseen = e.setup_s + check_s();
    const double setup_alone = setup - (options_.check ? 2 : 3) * call;
    if (foreseen > 0) setup_slowness_.learn(kind_of(e.point), std::max(0.0, setup_alone) / foreseen);
  }

  Session& session_;
  const runtime::Communicator& communicator_;
  const KernelOptions& options_;
  const KernelListener& listener_;
  KernelPlacement placement_;
  std::unique_ptr<KernelLimits> limits_;
  std::vector<Entry> entries_;
  Slowness call_slowness_{1.5}, setup_slowness_{1};
  std::size_t to_measure_ = 0;
  double limits_done_ = 0;  ///< when the roofline was done [s]
  bool begun_ = false;
  std::size_t device_free_ = SIZE_MAX;  ///< bytes for a rank on the device that has the least
};

}  // namespace

KernelPlacement placement_of(const Session& s, const runtime::Communicator& c, int threads) {
  return {.ranks = c.size(),
          .nodes = s.nodes(c.size()),
          .ranks_per_node = s.ranks_per_node(c.size()),
          .threads = threads,
          .ranks_as = c.ranks_as(),
          .device = s.on_host() ? "cpu" : std::string(s.device().name())};
}

std::size_t run_kernels(Session& s, const runtime::Communicator& c, const KernelOptions& o,
                        const FinishedRows& finished, const KernelListener& l) {
  KernelSweep sweep(s, c, o, l);
  return run_sweep(sweep, peers_of(s, c), finished, l.rows, o.time_budget);
}

}  // namespace gradmeter::bench
