// How far a kernel's answer is from the reference's.
#pragma once
#include <span>

namespace gradmeter::kernels {

/// ‖value − reference‖ / ‖reference‖, Frobenius norms in float64: one wrong element shows, a small one among large ones
/// is not exaggerated. 0 for equal buffers, NaN or infinity where the value is not finite.
/// Shape:  value [n], reference [n].
/// Errors: std::invalid_argument when they differ in length.
double relative_error(std::span<const float> value, std::span<const float> reference);

}  // namespace gradmeter::kernels
