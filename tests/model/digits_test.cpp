// SPDX-License-Identifier: Apache-2.0
#include "model/data/sources.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "model/data/dataset.hpp"

namespace gradmeter::model {
namespace {

using Image = std::array<std::uint8_t, kDigitPixels>;

/// FNV-1a over images and labels.
std::uint64_t fingerprint(const ImageDataset& data) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (std::size_t i = 0; i < data.size(); ++i) {
    for (std::uint8_t byte : data.image(i)) add(byte);
    add(static_cast<std::uint64_t>(data.label(i)));
  }
  return hash;
}

std::string_view text(std::span<const std::uint8_t> image) {
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

TEST(Digits, TheFirstThousandAreEqualOnEveryMachine) {
  // A change of this number changes every accuracy ever recorded with these digits.
  EXPECT_EQ(fingerprint(*make_digits({.samples = 1000})), 0xdf6acaa5fcf7516eu);
}

TEST(Digits, OneDrawnAloneEqualsTheOneDrawnInSequence) {
  const auto data = make_digits({.samples = 1001, .seed = 7});
  Image alone;
  EXPECT_EQ(draw_digit(7, 1000, alone), data->label(1000));
  EXPECT_EQ(text(alone), text(data->image(1000)));
}

TEST(Digits, AnOffsetStartsLaterInTheSameSequence) {
  const auto whole = make_digits({.samples = 30}), tail = make_digits({.samples = 10, .offset = 20});
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(tail->label(i), whole->label(20 + i));
    EXPECT_EQ(text(tail->image(i)), text(whole->image(20 + i)));
  }
}

TEST(Digits, ASampleIsTheSameWhateverWasAskedForBefore) {
  const auto forward = make_digits({.samples = 101}), backward = make_digits({.samples = 101});
  for (std::size_t i = 101; i-- > 0;) (void)backward->image(i);
  EXPECT_EQ(fingerprint(*backward), fingerprint(*forward));
}

TEST(Digits, ALargeSetCostsNothingUntilItIsAskedFor) {
  const auto data = make_digits({.samples = std::size_t{1} << 38});
  Image alone;
  EXPECT_EQ(draw_digit(1, (std::size_t{1} << 38) - 1, alone), data->label((std::size_t{1} << 38) - 1));
}

TEST(Digits, AnotherSeedDrawsOtherSamples) {
  EXPECT_NE(fingerprint(*make_digits({.samples = 20, .seed = 1})),
            fingerprint(*make_digits({.samples = 20, .seed = 2})));
}

TEST(Digits, EachClassHasATenthWithinFiveSigma) {
  constexpr double kSamples = 10'000;
  const auto data = make_digits({.samples = static_cast<std::size_t>(kSamples)});
  std::array<double, 10> counts{};
  for (std::size_t i = 0; i < data->size(); ++i) counts.at(static_cast<std::size_t>(data->label(i))) += 1;
  for (double count : counts) EXPECT_NEAR(count, kSamples / 10, 5 * std::sqrt(kSamples * 0.1 * 0.9));
}

TEST(Digits, AboutASixthOfThePixelsIsInked) {
  const auto data = make_digits({.samples = 2000});
  std::array<double, 10> inked{}, drawn{};
  for (std::size_t i = 0; i < data->size(); ++i) {
    const auto label = static_cast<std::size_t>(data->label(i));
    drawn[label] += 1;
    for (std::uint8_t byte : data->image(i)) inked[label] += byte != 0;
  }
  double sum = 0;
  for (std::size_t digit = 0; digit < 10; ++digit) {
    const double mean = inked[digit] / drawn[digit];
    EXPECT_GT(mean, 50) << digit;
    EXPECT_LT(mean, 180) << digit;
    sum += mean / 10;
  }
  EXPECT_NEAR(sum, 120, 12);
}

TEST(Digits, InkKeepsOffTheBorder) {
  // A digit that ran off the sheet would be cut: the outer row may be touched only now and then.
  const auto data = make_digits({.samples = 1000});
  std::size_t touching = 0;
  for (std::size_t i = 0; i < data->size(); ++i) {
    const auto image = data->image(i);
    bool touches = false;
    for (std::size_t k = 0; k < kDigitSide; ++k)
      touches |= image[k] || image[kDigitPixels - 1 - k] || image[k * kDigitSide] || image[k * kDigitSide + 27];
    touching += touches;
  }
  EXPECT_LT(touching, 100u);
}

const ImageDataset& images(const std::shared_ptr<const Dataset>& data) {
  return dynamic_cast<const ImageDataset&>(*data);
}

/// Mean images of one set, nearest of them for each image of the other.
double nearest_mean_accuracy(const ImageDataset& train, const ImageDataset& validation) {
  std::vector<std::array<double, kDigitPixels>> means(10);
  std::array<double, 10> counts{};
  for (std::size_t i = 0; i < train.size(); ++i) counts[static_cast<std::size_t>(train.label(i))] += 1;
  for (std::size_t i = 0; i < train.size(); ++i) {
    const auto label = static_cast<std::size_t>(train.label(i));
    for (std::size_t p = 0; p < kDigitPixels; ++p) means[label][p] += train.image(i)[p] / counts[label];
  }
  double right = 0;
  for (std::size_t i = 0; i < validation.size(); ++i) {
    std::size_t best = 0;
    double best_distance = 1e300;
    for (std::size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (std::size_t p = 0; p < kDigitPixels; ++p) {
        const double d = validation.image(i)[p] - means[c][p];
        distance += d * d;
      }
      if (distance < best_distance) best = c, best_distance = distance;
    }
    right += static_cast<std::int32_t>(best) == validation.label(i);
  }
  return right / static_cast<double>(validation.size());
}

TEST(Digits, ClassesAreApartButNotTrivially) {
  const DataSplit split = make_data({.train_samples = 3000, .validation_samples = 1000});
  const double accuracy = nearest_mean_accuracy(images(split.train), images(split.validation));
  EXPECT_GT(accuracy, 0.65);
  EXPECT_LT(accuracy, 0.95);  // MNIST: 0.82
}

TEST(Digits, NamesSayHowToDrawThemAgain) {
  EXPECT_EQ(make_digits({.samples = 3, .seed = 5})->name(), "digits:seed=5,samples=3");
  EXPECT_EQ(make_digits({.samples = 3, .seed = 5, .offset = 9})->name(), "digits:seed=5,samples=3,offset=9");
}

TEST(Digits, NoSamplesOrFarTooManyAreRefused) {
  EXPECT_THROW(make_digits({.samples = 0}), core::UsageError);
  EXPECT_THROW(make_digits({.samples = std::size_t{1} << 40}), core::UsageError);
}

TEST(Data, ValidationSharesNoImageWithTraining) {
  const DataSplit split = make_data({.train_samples = 1000, .validation_samples = 1000});
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < 1000; ++i) seen.insert(text(images(split.train).image(i)));
  EXPECT_EQ(seen.size(), 1000u);
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_FALSE(seen.contains(text(images(split.validation).image(i)))) << i;
}

TEST(Data, ValidationIsTheSameWhateverTheTrainingSize) {
  const DataSplit small = make_data({.train_samples = 1, .validation_samples = 10});
  const DataSplit large = make_data({.train_samples = 500, .validation_samples = 10});
  EXPECT_EQ(fingerprint(images(small.validation)), fingerprint(images(large.validation)));
}

TEST(Data, PartsHaveTheSizesAskedForAndFitEachOther) {
  const DataSplit split = make_data({.train_samples = 12, .validation_samples = 5});
  EXPECT_EQ(split.train->size(), 12u);
  EXPECT_EQ(split.validation->size(), 5u);
  for (const auto& part : {split.train, split.validation}) {
    EXPECT_EQ(part->features(), 784u);
    EXPECT_EQ(part->classes(), 10u);
  }
}

TEST(Data, APartWithoutSamplesIsRefused) {
  EXPECT_THROW(make_data({.train_samples = 0}), core::UsageError);
  EXPECT_THROW(make_data({.train_samples = 1, .validation_samples = 0}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::model
