// The digits' shapes before any random distortion: strokes through a few knots in the unit box.
#pragma once
#include <cstddef>
#include <span>

namespace gradmeter::model {

/// A point that the pen passes through, in the unit box, y downwards. At a corner the pen turns without rounding.
struct Knot {
  double x, y;
  bool corner = false;
};

using Stroke = std::span<const Knot>;   ///< one pull of the pen: at least two knots
using Glyph = std::span<const Stroke>;  ///< one way of writing a digit

inline constexpr std::size_t kDigits = 10;
inline constexpr std::size_t kMaxKnots = 16;  ///< in a stroke

/// The ways of writing a digit, each as likely as the others. digit in [0, 10).
std::span<const Glyph> glyphs(std::size_t digit);

}  // namespace gradmeter::model
