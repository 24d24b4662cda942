// Loss scaling: the loss' gradient is multiplied before the backward pass, so that products in formats of a short range
// do not lose small gradients, and each tensor's gradient is divided again, in fp32, once it is final.
// Source: Micikevicius et al., "Mixed precision training", ICLR 2018; the scale that adapts is PyTorch's GradScaler.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/update_number.hpp"
#include "runtime/device.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::dataparallel {

struct LossScaling {
  float start = 1;
  std::uint64_t grow = 0;  ///< steps with usable gradients after which the scale doubles; 0: it stays as it is
  bool used() const { return start != 1 || grow > 0; }
  bool adapts() const { return grow > 0; }
  std::string text() const;  ///< canonical: "none", "1024", "dynamic:grow=2000,start=65536"
};
/// "none", a number, or "dynamic" with parameters. Errors: UsageError that says what there is.
LossScaling parse_loss_scaling(std::string_view);

/// The scale of a run, on one rank, in the memory of the device that computes. It is looked at, changed and obeyed by
/// work on the rank's queue, in the order of the steps, so that no step waits for it.
class LossScaler {
 public:
  explicit LossScaler(const LossScaling&, runtime::Device& = runtime::host_device());
  bool adapts() const { return scaling_.adapts(); }
  /// What a pass multiplies the loss' gradient by, when it runs: [1].
  runtime::ConstBuffer scale() const { return scale_.buffer; }
  /// kernels::LossScaleCounts, by which updates are skipped; empty where the scale stays.
  runtime::ConstBuffer counts() const;

  /// Submits: multiplies by the inverse, which is exact where the scale is a power of two.
  void submit_unscale(runtime::Queue&, runtime::Buffer gradients) const;
  /// Submits: notes whether gradients that are to be applied are all finite.
  void submit_check(runtime::Queue&, runtime::ConstBuffer gradients) const;
  /// After the step's updates, kernels::end_step.
  void submit_end_of_step(runtime::Queue&) const;

  /// Are the gradients of this step useless? These three wait for the queue, and are for whoever must tell other ranks
  /// or a reader.
  bool skips(runtime::Queue&) const;
  void note_not_finite(runtime::Queue&) const;
  struct State {
    float scale = 1;
    std::uint64_t skipped = 0;  ///< steps
  };
  State state(runtime::Queue&) const;

 private:
  kernels::LossScaleCounts read_counts(runtime::Queue&) const;

  LossScaling scaling_;
  runtime::OwnedBuffer scale_, counts_;
};

}  // namespace gradmeter::dataparallel
