// Floating-point numbers below the smallest normal one (fp32: 1.2e-38), which many processors handle in microcode.
#pragma once

namespace gradmeter::runtime {

/// From now on the calling thread, and every thread that it starts, computes with zeros in their place: as operands and
/// as results. Call it before there are other threads. Of computations on x86-64 and AArch64; elsewhere it does
/// nothing.
///
/// Why: gradients that die out (units that are off, a softmax that is sure, training that diverges) leave averages that
/// shrink by a factor each step into this range and stay there. Measured on an AMD EPYC, an update of Adam or LAMB then
/// takes two to three times as long; on other processors far more. A step's time must not depend on that.
/// Source: Intel SDM volume 1, section 10.2.3 (flush-to-zero, denormals-are-zeros); TensorFlow does the same on the
/// threads that compute (tsl/platform/denormal.h).
void flush_subnormals();

}  // namespace gradmeter::runtime
