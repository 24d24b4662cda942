// SPDX-License-Identifier: Apache-2.0
// Settings of the calling thread: short time slices from the scheduler, and zeros in place of subnormal numbers.
#pragma once

namespace gradmeter::runtime {

/// For a thread that mostly sleeps and must run soon after it wakes. Asks the scheduler for short time slices, so that
/// the thread runs before a computation that occupies the core (Linux 6.12 and later; earlier kernels ignore this), and
/// for sleeps that end on time. This needs no privilege, and the thread gets no larger share of the core than before.
void request_short_time_slices();

/// From now on the calling thread, and every thread that it starts, computes with zeros in place of numbers below the
/// smallest normal one (fp32: 1.2e-38), both as operands and as results, since many processors handle such numbers
/// slowly, in microcode. Call it before there are other threads. It works on x86-64 and AArch64; elsewhere it does
/// nothing.
///
/// When gradients vanish (inactive units, a saturated softmax, diverging training), an optimizer's moving averages
/// shrink by a constant factor each step, reach this range and stay there. Measured on an AMD EPYC, an update of Adam
/// or LAMB then takes two to three times as long; on other processors far more. A step's time must not depend on that.
/// Source: Intel SDM volume 1, section 10.2.3 (flush-to-zero, denormals-are-zeros); TensorFlow does the same on the
/// threads that compute (tsl/platform/denormal.h).
void flush_subnormals();

}  // namespace gradmeter::runtime
