// How far a decoded gradient is from what was encoded.
#pragma once
#include <span>

namespace gradmeter::compression {

/// Σ x², in double. Cost: one pass.
double squared_norm(std::span<const float> x);
/// Σ (decoded - exact)², in double. Shape: both [n].
double squared_error(std::span<const float> decoded, std::span<const float> exact);

}  // namespace gradmeter::compression
