// Sums in float64 over a group of ranks that hold parts of the same tensors.
#pragma once
#include <span>

#include "dataparallel/fabric.hpp"
#include "dataparallel/forecast.hpp"
#include "dataparallel/optimizer.hpp"

namespace gradmeter::dataparallel {

/// Each rank's numbers travel as the bits they are, two fp32 words each, in an all-gather, and every rank adds them in
/// rank order: an all-reduce in fp32 would lose half of their digits, and with vendors' also the equal bits.
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
  /// Of the scene's ranks together.
  static Forecast predict(const ForecastInput&, std::size_t values);

 private:
  Fabric& fabric_;
  Group group_;
  std::span<float> words_;  ///< of all ranks, rank by rank
};

/// How many values a rule with norms shares of tensors that are parts: of a range of a model, or all of it.
inline constexpr std::size_t sums_a_tensor = 2;

}  // namespace gradmeter::dataparallel
