// SPDX-License-Identifier: Apache-2.0
// Loss scaling: the gradient of the loss is multiplied by a scale before the backward pass, so that small gradients do
// not vanish in formats with a narrow range. Each tensor's gradient is divided by the scale, in fp32, once it is final.
// Source: Micikevicius et al., "Mixed precision training", ICLR 2018; a scale that adapts follows PyTorch's GradScaler.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/pointwise/updates.hpp"
#include "runtime/device.hpp"

namespace gradmeter::dataparallel {

struct LossScaling {
  float start = 1;
  /// The scale doubles after so many steps in a row that were not skipped. A skipped step halves it. 0: it is fixed.
  std::uint64_t growth_interval = 0;
  bool used() const { return start != 1 || growth_interval > 0; }
  bool adapts() const { return growth_interval > 0; }
  std::string text() const;  ///< canonical: "none", "1024", "dynamic:grow=2000,start=65536"
};
/// Reads "none", a number, or "dynamic" with parameters. Errors: UsageError that says what is allowed.
LossScaling parse_loss_scaling(std::string_view);

/// The loss scale of a run on one rank, in the memory of the device that computes. In a step, work on the rank's queue
/// reads the scale, changes it and skips updates, so the host need not wait for its value.
class LossScaler {
 public:
  explicit LossScaler(const LossScaling&, runtime::Device& = runtime::host_device());
  bool adapts() const { return scaling_.adapts(); }
  /// One float: the factor by which a pass multiplies the gradient of the loss. It is read when the pass runs.
  runtime::ConstBuffer scale() const { return scale_.buffer; }
  /// The kernels::LossScaleCounts, which say whether updates are skipped; empty if the scale never changes.
  runtime::ConstBuffer counts() const;

  /// Submits the division by the scale, which is exact if the scale is a power of two.
  void submit_unscale(runtime::Queue&, runtime::Buffer gradients) const;
  /// Submits a check whether all these gradients are finite, which notes the result in the counts.
  void submit_check(runtime::Queue&, runtime::ConstBuffer gradients) const;
  /// Submits kernels::end_step. Call it after the step's updates.
  void submit_end_of_step(runtime::Queue&) const;

  /// True if this step's gradients are not finite. This function, `note_not_finite` and `state` wait for the queue;
  /// call them only to agree with other ranks, or to report to people.
  bool skips_step(runtime::Queue&) const;
  /// Causes the updates of this step to be skipped, because some rank has found gradients that are not finite.
  void note_not_finite(runtime::Queue&) const;
  struct State {
    float scale = 1;
    std::uint64_t skipped = 0;  ///< number of steps skipped so far
  };
  State state(runtime::Queue&) const;

 private:
  kernels::LossScaleCounts read_counts(runtime::Queue&) const;

  LossScaling scaling_;
  runtime::OwnedBuffer scale_, counts_;
};

}  // namespace gradmeter::dataparallel
