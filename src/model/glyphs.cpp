#include "model/glyphs.hpp"

#include <array>
#include <cassert>

namespace gradmeter::model {

namespace {

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

}  // namespace

std::span<const Glyph> glyphs(std::size_t digit) {
  assert(digit < kDigits);
  return kGlyphs[digit];
}

}  // namespace gradmeter::model
