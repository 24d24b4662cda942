#include "model/data.hpp"

#include <string_view>

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/digits.hpp"
#include "model/idx.hpp"

namespace gradmeter::model {

namespace {

// Far past any training set, so that a larger one never reaches into the validation samples and they stay the same
// whatever its size.
constexpr std::uint64_t kValidationOffset = std::uint64_t{1} << 40;

void refuse_none(std::size_t samples, std::string_view part) {
  if (samples == 0) throw core::UsageError(fmt::format("0 {} samples asked for: at least 1 is needed", part));
}

}  // namespace

DataSplit make_data(const DataOptions& options) {
  refuse_none(options.train_samples, "training");
  refuse_none(options.validation_samples, "validation");
  if (!options.directory.empty())
    return read_idx_directory(options.directory, options.train_samples, options.validation_samples);
  return {.train = make_digits({.samples = options.train_samples, .seed = options.seed}),
          .validation =
              make_digits({.samples = options.validation_samples, .seed = options.seed, .offset = kValidationOffset})};
}

}  // namespace gradmeter::model
