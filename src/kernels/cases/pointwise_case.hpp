// Updates of optimizers as kernel cases of a device that has loops for them.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "kernels/cases/kernel_case.hpp"
#include "kernels/pointwise.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::kernels {

/// What all cases update by.
struct PointwiseRules {
  static constexpr float step = 1e-3F;
  static constexpr MomentumParameters momentum{.step = step, .mu = 0.9F, .nesterov = false};
  /// Late enough for the averages to have settled, so that the rate hardly changes.
  static constexpr AdamParameters adam{.step = step, .update = 1000};
};

/// One update of arrays in the device's memory, as what they hold (bf16: as bytes), within work of its queue: those
/// that it writes first, w g; w v g; w m v g.
using PointwiseUpdate = void (*)(PointwiseKind, std::span<const runtime::Buffer> arrays);
/// fp32, by loops().
void update_by_loops(PointwiseKind, std::span<const runtime::Buffer> arrays);

/// Optimizers in one pass.
std::string device_pointwise_refusal(const Problem&);
/// implementation: what rows say.
std::unique_ptr<KernelCase> make_device_pointwise_case(const Problem&, const KernelCaseOptions&, PointwiseUpdate,
                                                       std::string implementation);

}  // namespace gradmeter::kernels
