// When workers that train apart average: after a number of steps that is fixed, or one that follows the loss.
#pragma once
#include <cstdint>
#include <memory>

#include "dataparallel/forecast.hpp"
#include "dataparallel/worker.hpp"

namespace gradmeter::dataparallel {

/// Steps are counted from 1.
class BlockPeriod {
 public:
  virtual ~BlockPeriod() = default;
  virtual std::size_t longest() const = 0;  ///< of all blocks [steps]
  /// What `begin` takes from the fabric at most [bytes].
  virtual std::size_t memory_bytes() const { return 0; }
  virtual std::size_t replica_floats() const { return 0; }  ///< as in ReplicaWork
  virtual void begin(Worker&) {}
  /// After each pass. All ranks of all replicas call it.
  virtual void take_loss(Worker&, const model::PendingOutcome&, std::uint64_t step) { (void)step; }
  virtual bool ends_with(std::uint64_t step) const = 0;
  /// After the exchange that ends a block, which has waited for all work before it.
  virtual void end_block(Worker&, std::uint64_t step) { (void)step; }
  /// exchange: at the end of one block.
  virtual Forecast predict(const ForecastInput&, const Forecast& exchange) const = 0;
};

/// Each of the first `start` steps is a block of its own, the others have `every`.
std::unique_ptr<BlockPeriod> make_fixed_period(std::uint64_t every, std::uint64_t start = 0);

/// AdaComm's rule, see make_adacomm.
struct LossPeriod {
  std::uint64_t every = 1, interval = 1;
  double gamma = 0.5;
  /// The steps of the next blocks after blocks of `now`. Losses that are no numbers count as ones that did not fall.
  std::uint64_t next(std::uint64_t now, double first_loss, double loss) const;
};
std::unique_ptr<BlockPeriod> make_loss_period(LossPeriod);

}  // namespace gradmeter::dataparallel
