#include "bench/collectives/limit.hpp"

#include <cmath>

namespace gradmeter::bench {
namespace {

LeastTraffic traffic_of(const CollectivePoint& p, const runtime::Communicator& c, bool is_root) {
  return least_traffic(p.collective->collective_kind, p.count, static_cast<std::size_t>(c.size()), p.in_place, is_root);
}

}  // namespace

LimitBenchmark::LimitBenchmark(Session& s, CollectiveStage& stage, runtime::SharedClock& clock,
                               const CollectivePoint& p, const RoundOptions& o)
    : stage_(stage),
      point_(p),
      most_(traffic_of(p, stage.world(), false)),
      work_(stage.slowed(std::make_unique<LeastWork>(traffic_of(p, stage.world(), stage.world().rank() == p.root),
                                                     static_cast<std::size_t>(stage.world().size())))),
      call_(call_of(p, stage.buffers(p))),
      task_(make_call_task(
          {stage.world(), clock, p.cadence, p.reduction},
          CollectiveCaller(s.activity(), runtime::spin_policy_for(1, 1), *work_, "limit", call_, p.calls))),
      rounds_(s, stage.world(), o, blocks_of(*task_, p.calls)) {}

void LimitBenchmark::warm_up() { rounds_.warm_up(); }

bool LimitBenchmark::round() {
  call_ = call_of(point_, stage_.buffers(point_, turns_.count() % CollectiveStage::first_pages));
  const auto stop = rounds_.round();
  turns_.note(rounds_.blocks().count());
  own_times_.add(task_->take_own_times());
  own_turns_.note(own_times_.count());
  return stop != core::Stop::none;
}

void LimitBenchmark::finish(const MachineState& state) {
  by_rank_ = own_times_by_rank(stage_.world(), own_turns_.undisturbed(own_times_, state));
  if (rounds_.blocks().count() == 0 || most_.kind == Traffic::none) return;
  const auto time = core::summarise(turns_.undisturbed(rounds_.blocks(), state));
  limit_ = {.seconds = time.median,
            .low = std::isfinite(time.ci95_low) ? time.ci95_low : 0,
            .name = std::string(name(most_.kind)),
            .link = {}};
}

}  // namespace gradmeter::bench
