// SPDX-License-Identifier: Apache-2.0
// The digits that the program draws: their shapes, which are strokes through a few knots in the unit box, and the hand
// that distorts them at random.
//
// Compiled without contraction of a*b+c (see CMakeLists.txt): every operation rounds once, so that the images are equal
// to the bit on all machines. No libm here besides sqrt, which IEEE 754 rounds correctly.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "model/data/sources.hpp"

namespace gradmeter::model {
namespace {

/// A point that the pen passes through, in the unit box, y downwards. At a corner the pen turns without rounding.
struct Knot {
  double x, y;
  bool corner = false;
};

using Stroke = std::span<const Knot>;   ///< one pull of the pen: at least two knots
using Glyph = std::span<const Stroke>;  ///< one way of writing a digit

constexpr std::size_t kDigits = 10;
constexpr std::size_t kMaxKnots = 16;  ///< most knots of a stroke
constexpr bool kCorner = true;

// 0: round; narrow, the end passing over the start.
constexpr Knot kZeroRound[] = {{.56, .05}, {.25, .17}, {.15, .57}, {.42, .95}, {.77, .81}, {.84, .37}, {.54, .04}};
constexpr Knot kZeroNarrow[] = {{.66, .12}, {.38, .10}, {.21, .52}, {.38, .93}, {.67, .85}, {.78, .42}, {.57, .05}};
constexpr Stroke kZeroA[] = {kZeroRound}, kZeroB[] = {kZeroNarrow};
constexpr Glyph kZero[] = {kZeroA, kZeroB};

// 1: a bar; with an upstroke.
constexpr Knot kOneBar[] = {{.53, .04}, {.51, .35}, {.50, .66}, {.48, .96}};
constexpr Knot kOneFlag[] = {{.34, .25}, {.55, .05, kCorner}, {.53, .37}, {.51, .68}, {.49, .96}};
constexpr Stroke kOneA[] = {kOneBar}, kOneB[] = {kOneFlag};
constexpr Glyph kOne[] = {kOneA, kOneB};

// 2: flat foot; looped foot.
constexpr Knot kTwoFlat[] = {{.20, .24}, {.38, .06},          {.66, .08}, {.76, .29}, {.62, .53},
                             {.39, .75}, {.18, .93, kCorner}, {.51, .91}, {.84, .92}};
constexpr Knot kTwoLoop[] = {{.18, .22}, {.42, .04}, {.71, .14}, {.74, .38}, {.55, .64}, {.31, .88},
                             {.16, .90}, {.22, .76}, {.43, .81}, {.62, .92}, {.86, .85}};
constexpr Stroke kTwoA[] = {kTwoFlat}, kTwoB[] = {kTwoLoop};
constexpr Glyph kTwo[] = {kTwoA, kTwoB};

// 3: two bows; a flat top.
constexpr Knot kThreeBows[] = {{.22, .14}, {.48, .04}, {.74, .16}, {.70, .36}, {.43, .47, kCorner},
                               {.72, .55}, {.82, .75}, {.59, .94}, {.20, .87}};
constexpr Knot kThreeFlat[] = {{.22, .08}, {.48, .07}, {.76, .07, kCorner}, {.46, .42, kCorner},
                               {.74, .51}, {.81, .75}, {.56, .95},          {.20, .87}};
constexpr Stroke kThreeA[] = {kThreeBows}, kThreeB[] = {kThreeFlat};
constexpr Glyph kThree[] = {kThreeA, kThreeB};

// 4: closed, slanting; open.
constexpr Knot kFourArm[] = {{.60, .05}, {.37, .36}, {.14, .63, kCorner}, {.51, .62}, {.88, .60}};
constexpr Knot kFourStem[] = {{.66, .30}, {.64, .63}, {.62, .97}};
constexpr Knot kFourCup[] = {{.24, .08}, {.20, .31}, {.22, .52, kCorner}, {.49, .53}, {.76, .47}};
constexpr Knot kFourPost[] = {{.76, .06}, {.73, .51}, {.68, .96}};
constexpr Stroke kFourA[] = {kFourArm, kFourStem}, kFourB[] = {kFourCup, kFourPost};
constexpr Glyph kFour[] = {kFourA, kFourB};

// 5: cornered; drawn like an S.
constexpr Knot kFiveCorner[] = {{.77, .08}, {.52, .08}, {.28, .10, kCorner}, {.25, .27}, {.23, .45, kCorner},
                                {.52, .39}, {.77, .55}, {.76, .80},          {.49, .96}, {.18, .87}};
constexpr Knot kFiveS[] = {{.79, .07}, {.51, .07}, {.31, .15}, {.28, .35}, {.52, .44},
                           {.76, .58}, {.75, .82}, {.49, .95}, {.19, .88}};
constexpr Stroke kFiveA[] = {kFiveCorner}, kFiveB[] = {kFiveS};
constexpr Glyph kFive[] = {kFiveA, kFiveB};

// 6: bent; upright.
constexpr Knot kSixBent[] = {{.68, .06}, {.41, .23}, {.23, .53}, {.23, .81}, {.47, .96},
                             {.74, .83}, {.73, .62}, {.51, .52}, {.27, .66}};
constexpr Knot kSixUpright[] = {{.40, .04}, {.28, .34}, {.22, .68}, {.35, .92}, {.60, .94},
                                {.76, .76}, {.66, .57}, {.43, .58}, {.25, .74}};
constexpr Stroke kSixA[] = {kSixBent}, kSixB[] = {kSixUpright};
constexpr Glyph kSix[] = {kSixA, kSixB};

// 7: plain; crossed.
constexpr Knot kSevenHook[] = {{.16, .10}, {.49, .10}, {.83, .08, kCorner}, {.64, .38}, {.50, .68}, {.42, .96}};
constexpr Knot kSevenBar[] = {{.33, .52}, {.54, .50}, {.75, .49}};
constexpr Stroke kSevenA[] = {kSevenHook}, kSevenB[] = {kSevenHook, kSevenBar};
constexpr Glyph kSeven[] = {kSevenA, kSevenB};

// 8: an S closed by the way back; from the waist.
constexpr Knot kEightS[] = {{.71, .17}, {.50, .04}, {.29, .16}, {.33, .36}, {.54, .48}, {.76, .67},
                            {.66, .91}, {.41, .95}, {.24, .76}, {.43, .53}, {.65, .36}, {.71, .17}};
constexpr Knot kEightWaist[] = {{.50, .47}, {.72, .27}, {.52, .05}, {.28, .25}, {.50, .47},
                                {.75, .70}, {.51, .95}, {.25, .71}, {.49, .48}};
constexpr Stroke kEightA[] = {kEightS}, kEightB[] = {kEightWaist};
constexpr Glyph kEight[] = {kEightA, kEightB};

// 9: straight tail; hooked tail.
constexpr Knot kNineStraight[] = {{.73, .28}, {.54, .07},          {.29, .18}, {.27, .42}, {.50, .52},
                                  {.70, .37}, {.73, .24, kCorner}, {.69, .60}, {.62, .96}};
constexpr Knot kNineHook[] = {{.72, .29},          {.54, .06}, {.29, .20}, {.31, .45}, {.56, .48},
                              {.74, .25, kCorner}, {.76, .62}, {.57, .92}, {.28, .90}};
constexpr Stroke kNineA[] = {kNineStraight}, kNineB[] = {kNineHook};
constexpr Glyph kNine[] = {kNineA, kNineB};

constexpr std::array<std::span<const Glyph>, kDigits> kGlyphs{kZero, kOne, kTwo,   kThree, kFour,
                                                              kFive, kSix, kSeven, kEight, kNine};

constexpr bool every_stroke_fits() {
  for (auto digit : kGlyphs)
    for (auto glyph : digit)
      for (auto stroke : glyph)
        if (stroke.size() < 2 || stroke.size() > kMaxKnots) return false;
  return true;
}
static_assert(every_stroke_fits());

/// The ways of writing a digit, each as likely as the others. digit in [0, 10).
std::span<const Glyph> glyphs(std::size_t digit) {
  assert(digit < kDigits);
  return kGlyphs[digit];
}

// The irregularity of the handwriting, chosen so that a small perceptron does about as well as on MNIST: 784-256-10
// with SGD reaches 97.6 % from 20,000 samples and 98.5 % from 60,000.
constexpr double kJitter = 0.06;             // standard deviation of a knot's place, in the unit box
constexpr double kWarp = 0.06;               // standard deviation of each bending of the sheet, in the unit box
constexpr double kRotation = 0.10;           // standard deviation [rad]
constexpr double kSlant = 0.15;              // standard deviation of the shear
constexpr double kPixelNoise = 0.08;         // standard deviation, of full ink, on inked pixels
constexpr double kWandering = 1.0;           // largest shift of the centre [pixels]
constexpr double kWidth = 16, kHeight = 20;  // size of the unit box [pixels], as MNIST fits its digits into 20 × 20
constexpr int kPiecesPerArc = 6;             // straight pieces between two knots

constexpr std::size_t kMostKept = std::size_t{1} << 16;  // samples: 53 MB

// Makes the random streams of digits differ from others of the same seed.
constexpr std::uint64_t kDomain = 0x6469'6769'7473'0000;  // "digits"

/// The draws of one sample, in order.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t index) : random_(seed ^ kDomain, index) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_.below(next_++, n)); }
  double uniform(double low, double high) { return low + (high - low) * random_.uniform(next_++); }
  /// Nearly Gaussian, mean 0, variance 1, |x| < 3.47: four 16-bit uniforms from one draw, summed exactly.
  double bell() {
    const std::uint64_t bits = random_.bits(next_++);
    const auto sum =
        static_cast<std::int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48)) -
        2 * 0xFFFF;
    constexpr double kSqrt3 = 1.7320508075688772;
    return sum * (kSqrt3 / 65536);
  }

 private:
  core::Random random_;
  std::uint64_t next_ = 0;
};

struct Point {
  double x, y;
};

/// The handwriting of one sample: the unit box bent, sheared, scaled, turned and moved on the sheet.
class Hand {
 public:
  explicit Hand(Draws& draws) {
    for (double& bend : bends_) bend = kWarp * draws.bell();
    // The first terms of sine and cosine: libm's last bits differ from machine to machine.
    const double angle = kRotation * draws.bell(), square = angle * angle;
    sine_ = angle - square * angle / 6;
    cosine_ = 1 - square / 2 + square * square / 24;
    slant_ = kSlant * draws.bell();
    width_ = kWidth * draws.uniform(0.80, 1.10);
    height_ = kHeight * draws.uniform(0.85, 1.08);
    constexpr double kMiddle = (kDigitSide - 1) / 2.0;
    centre_.x = kMiddle + draws.uniform(-kWandering, kWandering);
    centre_.y = kMiddle + draws.uniform(-kWandering, kWandering);
    radius = draws.uniform(0.65, 1.50);
    ink = draws.uniform(0.80, 1.00);
  }

  /// Maps the unit box to pixels.
  Point place(Point p) const {
    const double u = 2 * p.x - 1, v = 2 * p.y - 1;  // [-1, 1] in the box, so that each term of the warp is at most 1
    const double third = 1.0 / 3, uu = u * u, vv = v * v, uv = u * v;
    const auto& b = bends_;
    const double warp_x = b[0] * uv + b[1] * (vv - third) + b[2] * (uu - third) + b[3] * (u * vv) + b[4] * (v * vv);
    const double warp_y = b[5] * uv + b[6] * (uu - third) + b[7] * (vv - third) + b[8] * (v * uu) + b[9] * (u * uu);
    const double y = height_ * (v / 2 + warp_y);
    const double x = width_ * (u / 2 + warp_x - slant_ * (v / 2 + warp_y));
    return {centre_.x + cosine_ * x - sine_ * y, centre_.y + sine_ * x + cosine_ * y};
  }

  double radius;  ///< half the pen's width [pixels]
  double ink;     ///< (0, 1]

 private:
  std::array<double, 10> bends_;
  double sine_, cosine_, slant_, width_, height_;
  Point centre_;
};

/// For each pixel, the squared distance to the nearest line drawn so far; exact wherever the distance is below `reach`.
class Sheet {
 public:
  explicit Sheet(double reach) : reach_(reach) { nearest_.fill(kFar); }

  void line(Point a, Point b) {
    const double dx = b.x - a.x, dy = b.y - a.y;
    const double squared_length = dx * dx + dy * dy + 1e-12;  // never 0
    const int left = pixel(std::min(a.x, b.x) - reach_), right = pixel(std::max(a.x, b.x) + reach_);
    const int top = pixel(std::min(a.y, b.y) - reach_), bottom = pixel(std::max(a.y, b.y) + reach_);
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const double px = x - a.x, py = y - a.y;
        const double along = std::clamp((px * dx + py * dy) / squared_length, 0.0, 1.0);
        const double off_x = px - along * dx, off_y = py - along * dy;
        double& nearest = nearest_[static_cast<std::size_t>(y) * kDigitSide + static_cast<std::size_t>(x)];
        nearest = std::min(nearest, off_x * off_x + off_y * off_y);
      }
    }
  }

  /// Makes the image: ink where the pen passed, with a soft edge one pixel wide, and grain on the ink.
  void develop(const Hand& hand, Draws& draws, std::span<std::uint8_t, kDigitPixels> image) const {
    for (std::size_t i = 0; i < kDigitPixels; ++i) {
      image[i] = 0;
      if (nearest_[i] >= reach_ * reach_) continue;
      const double cover = std::min(reach_ - std::sqrt(nearest_[i]), 1.0);
      const double grey = hand.ink * cover + kPixelNoise * draws.bell();
      image[i] = static_cast<std::uint8_t>(std::clamp(grey * 255 + 0.5, 0.0, 255.0));
    }
  }

 private:
  static constexpr double kFar = 1e9;
  static int pixel(double at) { return static_cast<int>(std::clamp(at, 0.0, kDigitSide - 1.0)); }

  double reach_;
  std::array<double, kDigitPixels> nearest_;
};

/// The curve between knots `b` and `c`, at t in [0, 1]; `a` and `d` are the knots before and after. The slope at a knot
/// is half the difference between the knot after it and the knot before it.
double catmull_rom(double a, double b, double c, double d, double t) {
  const double slope_b = (c - a) / 2, slope_c = (d - b) / 2, rise = c - b;
  return b + t * (slope_b + t * ((3 * rise - 2 * slope_b - slope_c) + t * (slope_b + slope_c - 2 * rise)));
}

/// Draws a stroke on the sheet, with jittered knots.
void write(Stroke stroke, const Hand& hand, Draws& draws, Sheet& sheet) {
  std::array<Knot, kMaxKnots> knots;
  const std::size_t count = stroke.size();
  for (std::size_t k = 0; k < count; ++k) {
    const double dx = kJitter * draws.bell(), dy = kJitter * draws.bell();
    knots[k] = {stroke[k].x + dx, stroke[k].y + dy, stroke[k].corner};
  }
  Point pen = hand.place({knots[0].x, knots[0].y});
  for (std::size_t k = 0; k + 1 < count; ++k) {
    const Knot &b = knots[k], &c = knots[k + 1];
    const Knot& a = k == 0 || b.corner ? b : knots[k - 1];
    const Knot& d = k + 2 == count || c.corner ? c : knots[k + 2];
    for (int piece = 1; piece <= kPiecesPerArc; ++piece) {
      const double t = static_cast<double>(piece) / kPiecesPerArc;
      const Point next = hand.place({catmull_rom(a.x, b.x, c.x, d.x, t), catmull_rom(a.y, b.y, c.y, d.y, t)});
      sheet.line(pen, next);
      pen = next;
    }
  }
}

class Digits final : public ImageDataset {
 public:
  explicit Digits(const DrawnSamples& spec)
      : spec_(spec), name_(fmt::format("digits:seed={},samples={}", spec.seed, spec.samples)) {
    if (spec.offset != 0) name_ += fmt::format(",offset={}", spec.offset);
  }

  const std::string& name() const override { return name_; }
  std::size_t size() const override { return spec_.samples; }
  std::size_t features() const override { return kDigitPixels; }
  std::size_t classes() const override { return kDigits; }
  std::span<const std::uint8_t> image(std::size_t i) const override { return sample(i).pixels; }
  std::int32_t label(std::size_t i) const override { return sample(i).label; }

 private:
  struct Sample {
    std::array<std::uint8_t, kDigitPixels> pixels;
    std::uint8_t label;
  };

  const Sample& sample(std::size_t i) const {
    const std::lock_guard lock(mutex_);
    if (const auto it = kept_.find(i); it != kept_.end()) return it->second;
    if (kept_.size() >= kMostKept) kept_.clear();
    Sample& s = kept_[i];  // a sample's address stays the same when others are added
    s.label = static_cast<std::uint8_t>(draw_digit(spec_.seed, spec_.offset + i, s.pixels));
    return s;
  }

  DrawnSamples spec_;
  std::string name_;
  mutable std::mutex mutex_;  // ranks may be threads
  mutable std::unordered_map<std::size_t, Sample> kept_;
};

}  // namespace

std::int32_t draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t, kDigitPixels> image) {
  Draws draws(seed, index);
  const std::size_t digit = draws.below(kDigits);
  const auto ways = glyphs(digit);
  const Glyph glyph = ways[draws.below(ways.size())];
  const Hand hand(draws);
  Sheet sheet(hand.radius + 0.5);
  for (Stroke stroke : glyph) write(stroke, hand, draws, sheet);
  sheet.develop(hand, draws, image);
  return static_cast<std::int32_t>(digit);
}

std::shared_ptr<const ImageDataset> make_digits(const DrawnSamples& spec) {
  if (spec.samples == 0) throw core::UsageError("0 samples asked for: a data set needs at least 1");
  constexpr std::size_t kMost = std::size_t{1} << 39;  // so that sets with far apart offsets share no sample
  if (spec.samples > kMost)
    throw core::UsageError(fmt::format("{} samples asked for: at most {} are possible", spec.samples, kMost));
  return std::make_shared<Digits>(spec);
}

}  // namespace gradmeter::model
