// SPDX-License-Identifier: Apache-2.0
#include "model/data/dataset.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <filesystem>
#include <string_view>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/random.hpp"
#include "kernels/host/memory.hpp"
#include "model/data/sources.hpp"

namespace gradmeter::model {
namespace {

constexpr std::array<float, 256> kCentred = [] {
  std::array<float, 256> table{};
  for (std::size_t byte = 0; byte < table.size(); ++byte)
    table[byte] = static_cast<float>((static_cast<double>(byte) / 255 - 0.1307) / 0.3081);
  return table;
}();

}  // namespace

void ImageDataset::read(std::size_t i, std::span<float> inputs, std::span<std::int32_t> labels) const {
  kernels::require_elements("image: inputs", inputs.size(), features());
  kernels::require_elements("image: labels", labels.size(), 1);
  std::ranges::transform(image(i), inputs.begin(), [](std::uint8_t byte) { return kCentred[byte]; });
  labels[0] = label(i);
}

void gather(const Dataset& data, std::span<const std::uint64_t> indices, std::span<float> inputs,
            std::span<std::int32_t> labels) {
  const std::size_t features = data.features(), labels_each = data.labels();
  assert(inputs.size() == indices.size() * features && labels.size() == indices.size() * labels_each);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    assert(indices[i] < data.size());
    data.read(indices[i], inputs.subspan(i * features, features), labels.subspan(i * labels_each, labels_each));
  }
}

Sampler::Sampler(std::size_t dataset_size, std::size_t batch_global, std::uint64_t seed)
    : size_(dataset_size), batch_(batch_global), steps_(0), seed_(seed) {
  if (batch_ == 0) throw core::UsageError("a batch of 0 samples trains nothing: give at least 1");
  if (batch_ > size_)
    throw core::UsageError(
        fmt::format("a batch of {} samples over all ranks is more than the {} samples of the data set: "
                    "take a smaller batch, fewer ranks or more samples",
                    batch_, size_));
  steps_ = size_ / batch_;
}

void Sampler::indices(std::size_t step, std::size_t part, std::span<std::uint64_t> indices) const {
  assert(!indices.empty() && batch_ % indices.size() == 0 && part < batch_ / indices.size());
  const std::uint64_t epoch = step / steps_;
  const core::Permutation shuffled(size_, core::Random(seed_, epoch).bits(0));
  const std::size_t first = step % steps_ * batch_ + part * indices.size();
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = shuffled(first + i);
}

namespace {

// Index of the first validation sample. It is past any training set, so that the validation samples are the same
// whatever the size of the training set.
constexpr std::uint64_t kValidationOffset = std::uint64_t{1} << 40;

void refuse_no_samples(std::size_t samples, std::string_view part) {
  if (samples == 0) throw core::UsageError(fmt::format("0 {} samples asked for: at least 1 is needed", part));
}

bool is_text(const DataOptions& options) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(core::parse_name(options.source).base, ignored);
}

}  // namespace

bool is_drawn(const DataOptions& options) { return options.source.empty() || is_language(options.source); }

bool reads_images(const DataOptions& options) { return !is_drawn(options) && !is_text(options); }

DataSplit make_data(const DataOptions& options) {
  refuse_no_samples(options.train_samples, "training");
  refuse_no_samples(options.validation_samples, "validation");
  if (is_language(options.source))
    return {.train = make_language(options.source, {.samples = options.train_samples, .seed = options.seed}),
            .validation = make_language(
                options.source,
                {.samples = options.validation_samples, .seed = options.seed, .offset = kValidationOffset})};
  if (reads_images(options))
    return read_idx_directory(options.source, options.train_samples, options.validation_samples);
  if (!options.source.empty()) return read_text(options.source, options.train_samples, options.validation_samples);
  return {.train = make_digits({.samples = options.train_samples, .seed = options.seed}),
          .validation =
              make_digits({.samples = options.validation_samples, .seed = options.seed, .offset = kValidationOffset})};
}

}  // namespace gradmeter::model
