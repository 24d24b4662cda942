#include "dataparallel/strategies/block_period.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::dataparallel {
namespace {

class FixedPeriod final : public BlockPeriod {
 public:
  FixedPeriod(std::uint64_t every, std::uint64_t start) : every_(every), start_(start) {}
  std::size_t longest() const override { return every_; }
  bool ends_with(std::uint64_t step) const override { return ended(step) != ended(step - 1); }
  Forecast predict(const ForecastInput& s, const Forecast& exchange) const override {
    const std::uint64_t before = s.first_step - 1;
    return exchange.times(ended(before + s.steps) - ended(before));
  }

 private:
  /// How many blocks have ended after step n.
  std::uint64_t ended(std::uint64_t n) const { return std::min(n, start_) + (n > start_ ? (n - start_) / every_ : 0); }
  std::uint64_t every_, start_;
};

constexpr std::size_t exchanged = 2;  ///< floats, when the period may change

class FollowingPeriod final : public BlockPeriod {
 public:
  explicit FollowingPeriod(LossPeriod rule) : rule_(rule), period_(rule.every), end_(rule.every) {}

  std::size_t longest() const override { return rule_.every; }
  std::size_t memory_bytes() const override { return (exchanged + 1) * sizeof(float) + memory_page_bytes; }
  std::size_t replica_floats() const override { return 1; }
  void begin(Worker& w) override { losses_ = w.fabric().memory(exchanged + 1); }

  void take_loss(Worker& w, const model::PendingOutcome& outcome, std::uint64_t step) override {
    const Buffer last = losses_.part(exchanged, 1);
    w.queue().submit("loss", {}, [last, place = outcome.place()] {
      last.values<float>()[0] = static_cast<float>(place->mean_loss());
    });
    w.tell_replica(last);
    w.queue().submit("loss", {}, [step, losses = losses_] {
      const auto l = losses.values<float>();
      if (step == 1) l[0] = l[exchanged];
      l[1] += l[exchanged];
    });
  }

  bool ends_with(std::uint64_t step) const override { return step == end_; }

  void end_block(Worker& w, std::uint64_t step) override {
    if (step - changed_ >= rule_.interval) change(w, step);
    end_ = step + period_;
  }

  /// Until the period may have changed for the first time, exactly; then at most: blocks of one step.
  Forecast predict(const ForecastInput& s, const Forecast& exchange) const override {
    const std::uint64_t known = (rule_.interval + rule_.every - 1) / rule_.every * rule_.every;
    const auto blocks = [&](std::uint64_t n) { return std::min(n, known) / rule_.every + (n > known ? n - known : 0); };
    const auto changes = [&](std::uint64_t n) { return n < known ? 0 : 1 + n - known; };
    const std::uint64_t before = s.first_step - 1, last = before + s.steps;
    Forecast f = exchange.times(blocks(last) - blocks(before));
    f +=
        forecast_collective(s, allreduce::CollectiveKind::all_reduce, exchanged).times(changes(last) - changes(before));
    if (s.ranks < 2 || last <= known) return f;
    const Forecast least = exchange.times(s.steps / rule_.every);
    f.least = least.least, f.least_of_one = least.least_of_one, f.least_between_nodes = least.least_between_nodes;
    f.most = f.bounds();
    f.known = false;
    return f;
  }

 private:
  void change(Worker& w, std::uint64_t step) {
    const Buffer means = losses_.part(0, exchanged);
    if (w.ranks() > 1) w.fabric().wait(w.fabric().all_reduce(w.axis(), means, allreduce::Op::average));
    w.queue().at_once([&] {
      const auto l = means.values<float>();
      period_ = rule_.next(period_, double{l[0]}, double{l[1]} / static_cast<double>(step - changed_));
      l[1] = 0;
    });
    changed_ = step;
  }

  LossPeriod rule_;
  std::uint64_t period_, end_;
  std::uint64_t changed_ = 0;           ///< the step after which the period was last chosen
  Buffer losses_ = runtime::no_floats;  ///< of step 1; the sum since the period was chosen; of the last step
};

}  // namespace

std::uint64_t LossPeriod::next(std::uint64_t now, double first_loss, double loss) const {
  const double wanted = std::ceil(std::sqrt(loss / first_loss) * static_cast<double>(every));
  const double smaller = wanted < static_cast<double>(now) ? wanted : gamma * static_cast<double>(now);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(smaller));
}

std::unique_ptr<BlockPeriod> make_fixed_period(std::uint64_t every, std::uint64_t start) {
  return std::make_unique<FixedPeriod>(every, start);
}
std::unique_ptr<BlockPeriod> make_loss_period(LossPeriod rule) { return std::make_unique<FollowingPeriod>(rule); }

}  // namespace gradmeter::dataparallel
