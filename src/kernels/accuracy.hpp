// How far a kernel's answer is from the reference's.
#pragma once
#include <span>

namespace gradmeter::kernels {

/// ‖value − reference‖ / ‖reference‖, Frobenius norms in float64: shows one wrong element, and does not exaggerate a
/// small one among large ones. 0 for equal buffers, NaN or infinity where the value is not finite.
/// Shape:  value [n], reference [n].
/// Errors: std::invalid_argument when they differ in length.
double relative_error(std::span<const float> value, std::span<const float> reference);

}  // namespace gradmeter::kernels
