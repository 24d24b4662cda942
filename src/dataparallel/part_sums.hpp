// Sums in float64 over a group of ranks that hold parts of the same tensors.
#pragma once
#include <span>

#include "dataparallel/fabric.hpp"
#include "dataparallel/forecast.hpp"
#include "dataparallel/optimizer.hpp"

namespace gradmeter::dataparallel {

/// An all-gather carries each rank's numbers as their bits, two fp32 words each, and every rank adds them in rank
/// order. An all-reduce in fp32 would lose half of their digits, and a vendor's also the equal bits.
/// Cost: one all-gather of 2·values floats from each rank. Errors: std::logic_error for more values than it was made
/// for.
class GroupSums final : public PartSums {
 public:
  /// most: values of a call. Takes memory from the fabric. The fabric must outlive it.
  GroupSums(Fabric&, Group, std::size_t most);
  void sum(std::span<double> values) override;

  static std::size_t memory_bytes(int ranks, std::size_t most);
  /// Floats of the all-gather for so many values.
  static std::size_t gathered_floats(int ranks, std::size_t values) {
    return 2 * values * static_cast<std::size_t>(ranks);
  }
  /// For all ranks of the input together.
  static Forecast predict(const ForecastInput&, std::size_t values);

 private:
  Fabric& fabric_;
  Group group_;
  Buffer words_;  ///< of all ranks, rank by rank
};

/// How many values an optimizer with norms shares for each tensor that is a part.
inline constexpr std::size_t sums_a_tensor = 2;

}  // namespace gradmeter::dataparallel
