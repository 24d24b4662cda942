// SPDX-License-Identifier: Apache-2.0
// Optimizers for large batches, which scale each tensor's step by norms of the tensor's weights and gradient, and the
// sums over ranks that these norms need if a tensor is split over ranks.
#pragma once
#include <memory>
#include <span>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/forecast.hpp"
#include "dataparallel/optimizers/optimizer.hpp"

namespace gradmeter::dataparallel {

/// Gradient descent. For each tensor: trust = eta·‖w‖/(‖g‖ + decay·‖w‖), or 1 where ‖w‖ or ‖g‖ is zero; v = mu·v +
/// step·trust·(g + decay·w); w −= v. Biases are treated like all other tensors. Shape: a range consists of whole
/// tensors of the scope; if the scope has `part_sums`, its tensors may be parts of the model's tensors. Cost: 28 bytes
/// an element. State: 4 bytes an element. Errors: std::logic_error for a range that cuts a tensor of the scope. Source:
/// You, Gitman & Ginsburg, "Large batch training of convolutional networks", arXiv:1708.03888, algorithm 1.
std::unique_ptr<Optimizer> make_lars(const core::ParsedName&, const OptimizerScope&);

/// m and v as in adam; r = m̂/(√v̂ + epsilon) + decay·w; for each tensor w −= step·(‖w‖/‖r‖)·r, where the ratio is 1 if
/// one of the norms is zero (the paper's φ is the identity). Biases are treated like all other tensors.
/// Shape and errors: as `make_lars`. Cost: 40 bytes an element. State: 8 bytes an element (r is computed twice instead
/// of kept).
/// Source: You et al., "Large batch optimization for deep learning", ICLR 2020, algorithm 2.
std::unique_ptr<Optimizer> make_lamb(const core::ParsedName&, const OptimizerScope&);

/// Sums in float64 over a group of ranks that hold parts of the same tensors. An all-gather of floats brings the values
/// of each rank to all (each float64 takes the room of two floats), and every rank adds them in rank order. An
/// all-reduce in fp32 would lose half of the digits, and a vendor's all-reduce might not give all ranks equal bits.
/// Cost: one all-gather of 2·values floats from each rank. Errors: std::logic_error for more values than `most`.
class GroupSums final : public SumsOverRanks {
 public:
  /// most: the largest number of values in one sum. Takes memory from the fabric, which must outlive this object.
  GroupSums(Fabric&, Group, std::size_t most);
  void sum(std::span<double> values) override;

  static std::size_t memory_bytes(int ranks, std::size_t most);
  /// The length of the all-gather's buffer for so many values from each rank [floats].
  static std::size_t gathered_floats(int ranks, std::size_t values) {
    return 2 * values * static_cast<std::size_t>(ranks);
  }
  /// The bytes that all ranks of the input send together for one sum.
  static Forecast predict(const ForecastInput&, std::size_t values);

 private:
  Fabric& fabric_;
  Group group_;
  Buffer words_;  ///< the all-gather's buffer, rank by rank
};

/// The number of values that an optimizer with norms sums over ranks for each tensor.
inline constexpr std::size_t sums_per_tensor = 2;

}  // namespace gradmeter::dataparallel
