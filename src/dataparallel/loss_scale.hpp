// Loss scaling: the loss' gradient is multiplied before the backward pass, so that products in formats of a short range
// do not lose small gradients, and each tensor's gradient is divided again, in fp32, once it is final.
// Source: Micikevicius et al., "Mixed precision training", ICLR 2018; the scale that adapts is PyTorch's GradScaler.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataparallel/optimizer.hpp"

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

/// The scale of a run, on one rank. All but `state` belongs to work on the rank's queue, in the order of the steps.
class LossScaler {
 public:
  explicit LossScaler(const LossScaling& s) : scaling_(s), scale_(s.start) {}
  bool adapts() const { return scaling_.adapts(); }
  /// What a pass multiplies the loss' gradient by, when it runs.
  const float* place() const { return &scale_; }
  /// Multiplies by the inverse: exact where the scale is a power of two.
  void unscale(std::span<float> gradients) const;
  /// Submits: notes whether gradients that are to be applied are all finite.
  void submit_check(runtime::Queue&, runtime::ConstBuffer gradients);
  void note_not_finite() { skips_ = true; }
  /// Are the gradients of this step useless?
  bool skips() const { return skips_; }
  /// After the step's updates. Skipped: the scale is halved. Else, after `grow` such steps in a row, it doubles, while
  /// it remains finite.
  void submit_end_of_step(runtime::Queue&);

  struct State {
    float scale = 1;
    std::uint64_t skipped = 0;  ///< steps
  };
  /// After the queue has done all work.
  State state() const { return {.scale = scale_, .skipped = skipped_}; }

 private:
  void check(std::span<const float> gradients);
  void end_step();

  LossScaling scaling_;
  float scale_;
  std::atomic<bool> skips_ = false;  ///< threads that check write it
  std::uint64_t good_ = 0, skipped_ = 0;
};

/// `inside`, which does not see the steps that the scaler skips: neither their gradients nor their numbers. null:
/// inside.
std::unique_ptr<Optimizer> make_skipping(std::unique_ptr<Optimizer> inside, const LossScaler*);

}  // namespace gradmeter::dataparallel
