#include "model/data.hpp"

#include <filesystem>
#include <string_view>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "model/digits.hpp"
#include "model/idx.hpp"
#include "model/language.hpp"
#include "model/text.hpp"

namespace gradmeter::model {

namespace {

// Far past any training set, so that a larger one never reaches into the validation samples and they stay the same
// whatever its size.
constexpr std::uint64_t kValidationOffset = std::uint64_t{1} << 40;

void refuse_none(std::size_t samples, std::string_view part) {
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
  refuse_none(options.train_samples, "training");
  refuse_none(options.validation_samples, "validation");
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
