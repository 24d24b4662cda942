// SPDX-License-Identifier: Apache-2.0
// The data sets: digits and sentences that the program draws, images in MNIST's format, texts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/data/dataset.hpp"

namespace gradmeter::model {

// Digits drawn by the program: any number of labelled images that train like MNIST, without files or downloads.

inline constexpr std::size_t kDigitSide = 28;                         ///< pixels
inline constexpr std::size_t kDigitPixels = kDigitSide * kDigitSide;  ///< bytes of an image

/// Draws sample `index` of the sequence that `seed` names, and returns its label in [0, 10).
/// Shape:  image [784], row-major; 0 is the background, and about 120 pixels are above 0.
/// Cost:   about 11 us on a 3 GHz core; a pure function of (seed, index), so any thread or rank draws any sample.
///         The bytes are equal on every machine: only + - * / and sqrt are used, each rounded by itself.
/// Source: Catmull & Rom, "A class of local interpolating splines", 1974, for the curves.
std::int32_t draw_digit(std::uint64_t seed, std::uint64_t index, std::span<std::uint8_t, kDigitPixels> image);

/// Samples offset … offset + samples - 1 of the sequence that the seed names. Sets with the same seed and disjoint
/// ranges share no sample.
struct DrawnSamples {
  std::size_t samples = 0;
  std::uint64_t seed = 1;
  std::uint64_t offset = 0;
};

/// Name:   "digits:seed=1,samples=60000", and ",offset=N" where the offset is not 0.
/// Cost:   none until a sample is read; then the time of draw_digit and 0.8 KB for each sample, whatever the size of
///         the set. Up to 65,536 drawn samples are kept. After that, all of them are dropped, and spans of them become
///         invalid.
/// Errors: UsageError when no samples are asked for, or more than there can be.
std::shared_ptr<const ImageDataset> make_digits(const DrawnSamples&);

// IDX, the format of MNIST and similar sets: two zero bytes, the element type (0x08: bytes), the number of dimensions,
// each dimension as a big-endian 32-bit number, then the elements. Plain and gzip files are both read.

/// pixels [count × rows × columns], row-major; none of these three is 0.
struct IdxImages {
  std::size_t count = 0, rows = 0, columns = 0;
  std::vector<std::uint8_t> pixels;
};

/// Errors: UsageError of one line that names the file, when it is missing, not of this kind, cut short, too long,
///         damaged, or announces more than 2 GiB. Memory never exceeds twice what the file really holds.
/// Source: Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits", file formats.
IdxImages read_idx_images(const std::string& path);
/// Reads labels 0 … 9. Errors: as for `read_idx_images`, and for a label above 9.
std::vector<std::uint8_t> read_idx_labels(const std::string& path);

/// Reads the four files under their usual names (train-images-idx3-ubyte, …; also with a dot for the last hyphen, also
/// .gz) and keeps at most the first `train_most` and `validation_most` samples.
/// Name:   "idx:DIRECTORY" for both parts.
/// Errors: UsageError as for one file, for a missing file, for different numbers of images and labels, for parts with
///         different image sizes.
DataSplit read_idx_directory(const std::string& directory, std::size_t train_most, std::size_t validation_most);

// A language that the program draws. Its entropy is known, so a model's loss can be compared with a lower bound.

/// "language" or "language:vocabulary=16,steps=20".
bool is_language(std::string_view source);

/// Sentences of `steps` tokens over `vocabulary` words, all drawn; the seed determines the language and its sentences.
/// The labels of a sentence are its tokens. The input for each label is the token before it, and word 0 for the first.
/// Each pair of words is followed by one of four words, chosen for the pair by the seed; their probabilities are 1/2,
/// 1/4, 1/8, 1/8. Before the first token, both words of the pair are word 0. So the entropy of a label, given all words
/// before it, is 1.75 bits (1.2130 nats), and only the last two of these words matter. Sentence i is a function of
/// (seed, i) alone, the same on every machine.
/// Cost:   8·vocabulary² bytes; one draw a token, each time that the sentence is read.
/// Errors: UsageError for a parameter that the language does not have.
std::shared_ptr<const Dataset> make_language(std::string_view source, const DrawnSamples&);

/// Reads a text as sentences of words, in the Penn Treebank's format: "FILE" or "FILE:steps=35". White space separates
/// words, and the end of a line is the word <eos>. Samples are windows of `steps` words, one after another. Each word
/// is predicted from those before it in the window, and from the last word before the window. Words that only the
/// validation text has are <unk>. The validation text is the file whose name has `valid` in place of FILE's last
/// `train` (ptb.train.txt, ptb.valid.txt); without such a file, it is the last tenth of the windows. At most the first
/// `train_most` and `validation_most` windows are kept. Words are numbered by falling frequency, then by spelling.
/// Cost: 4 bytes a word; while the text is read, also its words as strings. Errors: UsageError of one line for a file
/// that cannot be read, has no window, or has over 2^24 different words.
/// Source: Marcus et al. 1993; Mikolov et al. 2010, for the split and <unk>.
DataSplit read_text(std::string_view source, std::size_t train_most, std::size_t validation_most);

}  // namespace gradmeter::model
