// SPDX-License-Identifier: Apache-2.0
// Kernel cases of optimizer updates, for a device that has loops for them.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "kernels/cases/kernel_case.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::kernels {

/// The step size of the timed updates.
inline constexpr float case_step = 1e-3F;
inline constexpr MomentumParameters case_momentum{.step = case_step, .mu = 0.9F, .nesterov = false};
/// The timed update is number 1000, at which Adam's rate hardly changes from one update to the next.
inline constexpr AdamParameters case_adam{.step = case_step, .update = 1000};

/// Makes one update of arrays in the device's memory; called within work of the device's queue. Arrays of fp32 are
/// buffers of f32, those of bf16 are buffers of bytes (i8). The arrays that are written come first: sgd w, g; momentum
/// w, v, g; adam w, m, v, g.
using PointwiseUpdate = void (*)(PointwiseKind, std::span<const runtime::Buffer> arrays);
/// Makes the update in fp32 by kernels::loops().
void update_fp32_on_device(PointwiseKind, std::span<const runtime::Buffer> arrays);

/// Refuses all problems but fused updates of optimizers.
std::string device_pointwise_refusal(const Problem&);
/// implementation: what KernelCase::implementation returns.
std::unique_ptr<KernelCase> make_device_pointwise_case(const Problem&, const KernelCaseOptions&, PointwiseUpdate,
                                                       std::string implementation);

}  // namespace gradmeter::kernels
