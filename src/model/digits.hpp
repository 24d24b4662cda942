// Digits drawn by the program: unlimited labelled images that train like MNIST, with no file and no network.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "model/dataset.hpp"

namespace gradmeter::model {

inline constexpr std::size_t kDigitSide = 28;                         ///< pixels
inline constexpr std::size_t kDigitPixels = kDigitSide * kDigitSide;  ///< bytes of an image

/// Draws sample `index` of the sequence named by `seed` and returns its label in [0, 10).
/// Shape:  image [784], row-major, 0 for paper; about 120 pixels are inked.
/// Cost:   about 11 us on a 3 GHz core; a pure function of (seed, index), so any thread or rank draws any sample.
///         The bytes are equal on every machine: only + - * / and sqrt are used, each rounded by itself.
/// Source: Catmull & Rom, "A class of local interpolating splines", 1974, for the curves.
std::int32_t draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t, kDigitPixels> image);

/// Samples offset … offset + samples - 1 of the sequence: sets with disjoint ranges share no sample.
struct DigitsSpec {
  std::size_t samples = 60'000;
  std::uint64_t seed = 1;
  std::uint64_t offset = 0;
};

/// Name:   "digits:seed=1,samples=60000", and ",offset=N" where the offset is not 0.
/// Cost:   none until a sample is read: then the time of draw_digit and 0.8 KB for each, whatever the size of the set.
///         The first 65,536 are kept; then all are dropped, and spans of them become invalid.
/// Errors: UsageError when no samples are asked for, or more than there can be.
std::shared_ptr<const ImageDataset> make_digits(const DigitsSpec&);

}  // namespace gradmeter::model
