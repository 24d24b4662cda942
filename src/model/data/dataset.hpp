// SPDX-License-Identifier: Apache-2.0
// The data that a model trains on: labelled images, or sentences in which each token is to be predicted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradmeter::model {

/// A set of samples, each of `features` numbers and `labels` labels in [0, classes).
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const std::string& name() const = 0;  ///< "digits:seed=1,samples=60000" or "idx:DIR"
  virtual std::size_t size() const = 0;
  virtual std::size_t features() const = 0;
  virtual std::size_t labels() const { return 1; }  ///< labels of a sample
  virtual std::size_t classes() const = 0;
  /// Reads sample i. Errors: std::invalid_argument when a length is not features() or labels().
  virtual void read(std::size_t i, std::span<float> inputs, std::span<std::int32_t> labels) const = 0;
  /// Draws sample i now, if it would otherwise be drawn when it is first read.
  virtual void prepare(std::size_t i) const { (void)i; }
  /// The least mean loss [nats] that a model can expect on samples that it was not trained on; the mean over a few
  /// samples may by chance be lower. 0: unknown.
  virtual double least_loss() const { return 0; }
};

/// Images as bytes [size × features]. Byte b is read as b/255, then centred ((b/255 - 0.1307) / 0.3081, the usual MNIST
/// normalisation).
class ImageDataset : public Dataset {
 public:
  virtual std::span<const std::uint8_t> image(std::size_t i) const = 0;
  virtual std::int32_t label(std::size_t i) const = 0;
  void read(std::size_t i, std::span<float> inputs, std::span<std::int32_t> labels) const final;
  void prepare(std::size_t i) const final { (void)label(i); }
};

struct DataSplit {
  std::shared_ptr<const Dataset> train, validation;
};

/// Copies the samples `indices` into a batch: inputs [indices.size() × features], labels [indices.size() × labels].
void gather(const Dataset&, std::span<const std::uint64_t> indices, std::span<float> inputs,
            std::span<std::int32_t> labels);

/// Selects the samples of a rank in a step. The global batch of step t has the same samples in the same order for any
/// number of ranks: it is cut into P equal contiguous parts for P ranks, and rank r takes part r. An epoch is one
/// seeded permutation of the samples; its last, incomplete global batch is dropped.
class Sampler {
 public:
  Sampler(std::size_t dataset_size, std::size_t batch_global, std::uint64_t seed);
  std::size_t steps_per_epoch() const { return steps_; }
  /// The indices of one part of the batch. indices.size() must divide batch_global; part is in [0, batch_global /
  /// indices.size()).
  void indices(std::size_t step, std::size_t part, std::span<std::uint64_t> indices) const;

 private:
  std::size_t size_, batch_, steps_;
  std::uint64_t seed_;
};

// The source of the samples: drawn by the program, or read from files.

struct DataOptions {
  /// Empty: the built-in digits. "language:…": the built-in language. A directory: MNIST's four files in it. Any other
  /// text: a text file, "FILE" or "FILE:steps=35".
  std::string source = {};
  std::size_t train_samples = 60'000;       ///< number of samples to draw, or the most to read from files
  std::size_t validation_samples = 10'000;  ///< as for `train_samples`
  std::uint64_t seed = 1;                   ///< seed of the built-in digits and language
};

/// True if the program draws the samples itself, so that there are as many as are asked for.
bool is_drawn(const DataOptions&);
/// True if images are read from files.
bool reads_images(const DataOptions&);

/// Both parts have equal features and classes and share no sample. Equal options give equal bytes on every rank.
/// Cost:   the built-in digits are drawn when they are read (see make_digits); files are read completely.
/// Errors: UsageError of one line, see make_digits, read_idx_directory, make_language, read_text.
DataSplit make_data(const DataOptions&);

}  // namespace gradmeter::model
