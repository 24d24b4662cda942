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

/// The step size of all cases.
inline constexpr float case_step = 1e-3F;
inline constexpr MomentumParameters case_momentum{.step = case_step, .mu = 0.9F, .nesterov = false};
/// The timed update comes so late that the averages have settled, and the rate hardly changes.
inline constexpr AdamParameters case_adam{.step = case_step, .update = 1000};

/// Makes one update of arrays in the device's memory, within work of its queue. Arrays have the element type of the
/// update (bf16 is stored as bytes). They are listed with the written ones first: sgd w, g; momentum w, v, g; adam w,
/// m, v, g.
using PointwiseUpdate = void (*)(PointwiseKind, std::span<const runtime::Buffer> arrays);
/// Updates in fp32 by loops().
void update_by_loops(PointwiseKind, std::span<const runtime::Buffer> arrays);

/// Refuses all problems but fused updates of optimizers.
std::string device_pointwise_refusal(const Problem&);
/// implementation: the text that result rows state as the implementation.
std::unique_ptr<KernelCase> make_device_pointwise_case(const Problem&, const KernelCaseOptions&, PointwiseUpdate,
                                                       std::string implementation);

}  // namespace gradmeter::kernels
