#include "model/language.hpp"

#include <array>
#include <numbers>

#include "core/name.hpp"
#include "core/random.hpp"
#include "kernels/problems/shape.hpp"

namespace gradmeter::model {
namespace {

constexpr std::size_t successors = 4;
constexpr double bits_a_token = 0.5 * 1 + 0.25 * 2 + 2 * 0.125 * 3;
/// Which successor each of eight equally likely draws takes.
constexpr std::array<std::uint8_t, 8> choice{0, 0, 0, 0, 1, 1, 2, 3};

class Language final : public Dataset {
 public:
  Language(const core::ParsedName& n, const LanguageRange& r)
      : name_(n.canonical()),
        words_(core::count_parameter(n, "vocabulary", {.least = successors, .most = 4096})),
        steps_(core::count_parameter(n, "steps", {.least = 1, .most = 4096})),
        range_(r) {
    next_.resize(words_ * words_ * successors);
    for (std::size_t pair = 0; pair < words_ * words_; ++pair) {
      constexpr std::uint64_t stream = 0x6c616e67;
      const core::Permutation shuffled(words_, core::Random(r.seed, stream).bits(pair));
      for (std::size_t k = 0; k < successors; ++k)
        next_[pair * successors + k] = static_cast<std::uint16_t>(shuffled(k));
    }
  }
  const std::string& name() const override { return name_; }
  std::size_t size() const override { return range_.samples; }
  std::size_t features() const override { return steps_; }
  std::size_t labels() const override { return steps_; }
  std::size_t classes() const override { return words_; }
  double least_loss() const override { return bits_a_token * std::numbers::ln2; }
  void read(std::size_t i, std::span<float> inputs, std::span<std::int32_t> labels) const override {
    kernels::require_elements("language: inputs", inputs.size(), steps_);
    kernels::require_elements("language: labels", labels.size(), steps_);
    constexpr std::uint64_t stream = 0x73656e74;
    const core::Random random(range_.seed, stream);
    const std::uint64_t first = (range_.offset + i) * steps_;
    std::size_t before = 0, last = 0;
    for (std::size_t t = 0; t < steps_; ++t) {
      inputs[t] = static_cast<float>(last);
      const std::size_t following =
          next_[(before * words_ + last) * successors + choice[random.below(first + t, choice.size())]];
      labels[t] = static_cast<std::int32_t>(following);
      before = last, last = following;
    }
  }

 private:
  std::string name_;
  std::size_t words_, steps_;
  LanguageRange range_;
  std::vector<std::uint16_t> next_;  ///< [word before the last][last word][successor]
};

}  // namespace

bool is_language(std::string_view source) { return source == "language" || source.starts_with("language:"); }

std::shared_ptr<const Dataset> make_language(std::string_view source, const LanguageRange& range) {
  return std::make_shared<Language>(
      core::with_defaults("data", "language", "vocabulary=16,steps=20", core::parse_name(source)), range);
}

}  // namespace gradmeter::model
