// SPDX-License-Identifier: Apache-2.0
#include "bench/links/links.hpp"

#include <algorithm>
#include <cmath>

#include "bench/links/messages.hpp"
#include "bench/links/tournament.hpp"
#include "core/format.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;

constexpr double least_interval_s = 0.25, most_intervals = 600, most_rows = 20'000;
constexpr std::size_t windows_a_turn = 2;

/// One rank's figures of an interval, as plain values, so that they can be gathered.
struct SoakRecord {
  core::Summary windows = {};
  double elapsed_s = 0;  ///< the middle of the interval, since the begin of the soak
  double wrong = 0;
};

class Soak {
 public:
  Soak(Session& s, const SoakOptions& o, const RowListener& l)
      : session_(s),
        communicator_(s.world()),
        options_(o),
        listener_(l),
        messages_(s, communicator_, o.factors.transport, o.factors.sizes.front() * o.factors.outstanding,
                  o.factors.injection),
        interval_s_(soak_interval(o.duration, communicator_.size()).value) {}

  std::size_t run() {
    if (session_.is_root() && listener_.planned) {
      const double intervals = std::ceil(options_.duration.value / interval_s_);
      listener_.planned(static_cast<std::size_t>(intervals) * static_cast<std::size_t>(communicator_.size()), 0);
    }
    pass();  // pays for connections and page faults
    times_.clear();
    begin_ = runtime::host_clock();
    double from = 0, now = 0;
    while (now < options_.duration.value) {
      pass();
      now = communicator_.broadcast_value(runtime::host_clock() - begin_);
      if (now - from < interval_s_) continue;
      end_interval(from, now);
      from = now;
    }
    // The last interval may be shorter than the others. It counts too: a wrong message in it is a wrong message.
    if (now > from) end_interval(from, now);
    return communicator_.broadcast_value(wrong_rows_);
  }

 private:
  void pass() {
    for (int round = 0; round < tournament_rounds(communicator_.size()); ++round) {
      session_.stop_between_points(communicator_);
      const int peer = tournament_partner(communicator_.size(), round, communicator_.rank());
      if (peer >= 0) turn(peer);
    }
  }

  void turn(int peer) {
    messages_.set_soak_time(begin_ > 0 ? runtime::host_clock() - begin_ : 0);
    const bool both = options_.factors.patterns.front() == LinkPattern::both_ways;
    Window w{.size_bytes = options_.factors.sizes.front(), .outstanding = options_.factors.outstanding};
    for (const bool lower_sends : {true, false}) {
      const bool sends = both || lower_sends == (communicator_.rank() < peer);
      w.to = sends ? peer : -1;
      w.from = both || !sends ? peer : -1;
      for (std::size_t i = 0; i < windows_a_turn; ++i) {
        const bool check_all = i + 1 == windows_a_turn;
        times_.push_back(messages_.exchange(w, check_all));
      }
      if (both) break;
    }
    wrong_ += static_cast<double>(messages_.take_wrong(peer));
  }

  void end_interval(double from, double to) {
    const SoakRecord mine{.windows = core::summarise(times_), .elapsed_s = (from + to) / 2, .wrong = wrong_};
    const auto records = communicator_.gather_value(mine);
    for (std::size_t r = 0; r < records.size(); ++r) emit(static_cast<int>(r), records[r]);
    if (session_.is_root() && listener_.progress) listener_.progress(fmt::format("{:.0f} s", to));
    ++interval_;
    times_.clear();
    wrong_ = 0;
  }

  void emit(int rank, const SoakRecord& record) {
    LinkPoint point{.pattern = options_.factors.patterns.front(),
                    .size_bytes = options_.factors.sizes.front(),
                    .pairs = communicator_.size() / 2};
    core::Point row;
    row.experiment = "soak";
    row.factors = to_factors(options_.factors, point, session_.map_for(communicator_.size()));
    row.factors[Factor::from_rank] = std::int64_t{rank};
    row.factors[Factor::interval] = interval_;
    auto& m = row.metrics;
    m[Metric::from_host] = session_.host_of(rank);
    m[Metric::elapsed_s] = record.elapsed_s;
    m[Metric::wrong] = static_cast<std::int64_t>(record.wrong);
    if (record.wrong > 0) {
      ++wrong_rows_;
      refuse(row, core::Status::wrong, fmt::format("{:.0f} messages were not what was sent", record.wrong));
    } else {
      const bool both = point.pattern == LinkPattern::both_ways;
      const double bytes = static_cast<double>(point.size_bytes * options_.factors.outstanding) * (both ? 2 : 1);
      m[Metric::time_s] = record.windows;
      m[Metric::link_bytes_per_s] = bytes / record.windows.median;
    }
    listener_.measured(row);
  }

  Session& session_;
  const runtime::Communicator& communicator_;
  const SoakOptions& options_;
  const RowListener& listener_;
  LinkMessages messages_;
  double interval_s_, begin_ = 0, wrong_ = 0;
  std::int64_t interval_ = 0;
  std::size_t wrong_rows_ = 0;
  std::vector<double> times_;  ///< the times of this rank's windows in the interval [s]
};

}  // namespace

core::Seconds soak_interval(core::Seconds duration, int ranks) {
  const double by_rows = duration.value * ranks / most_rows;
  return core::Seconds{std::max({least_interval_s, duration.value / most_intervals, by_rows})};
}

std::size_t run_soak(Session& s, const SoakOptions& o, const RowListener& l) { return Soak(s, o, l).run(); }

}  // namespace gradmeter::bench
