// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <sstream>
#include <unordered_map>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/random.hpp"
#include "kernels/host/memory.hpp"
#include "model/data/sources.hpp"

namespace gradmeter::model {
namespace {

constexpr std::size_t successors = 4;
constexpr double bits_a_token = 0.5 * 1 + 0.25 * 2 + 2 * 0.125 * 3;
/// The successor that each of eight equally likely draws takes.
constexpr std::array<std::uint8_t, 8> choice{0, 0, 0, 0, 1, 1, 2, 3};

class Language final : public Dataset {
 public:
  Language(const core::ParsedName& full_name, const DrawnSamples& range)
      : name_(full_name.canonical()),
        vocabulary_(core::count_parameter(full_name, "vocabulary", {.least = successors, .most = 4096})),
        steps_(core::count_parameter(full_name, "steps", {.least = 1, .most = 4096})),
        range_(range) {
    following_.resize(vocabulary_ * vocabulary_ * successors);
    for (std::size_t pair = 0; pair < vocabulary_ * vocabulary_; ++pair) {
      constexpr std::uint64_t stream = 0x6c616e67;
      const core::Permutation shuffled(vocabulary_, core::Random(range.seed, stream).bits(pair));
      for (std::size_t k = 0; k < successors; ++k)
        following_[pair * successors + k] = static_cast<std::uint16_t>(shuffled(k));
    }
  }
  const std::string& name() const override { return name_; }
  std::size_t size() const override { return range_.samples; }
  std::size_t features() const override { return steps_; }
  std::size_t labels() const override { return steps_; }
  std::size_t classes() const override { return vocabulary_; }
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
      const std::size_t next_word =
          following_[(before * vocabulary_ + last) * successors + choice[random.below(first + t, choice.size())]];
      labels[t] = static_cast<std::int32_t>(next_word);
      before = last, last = next_word;
    }
  }

 private:
  std::string name_;
  std::size_t vocabulary_, steps_;
  DrawnSamples range_;
  std::vector<std::uint16_t> following_;  ///< the words that may follow: [word before the last][last word][successor]
};

}  // namespace

bool is_language(std::string_view source) { return source == "language" || source.starts_with("language:"); }

std::shared_ptr<const Dataset> make_language(std::string_view source, const DrawnSamples& range) {
  return std::make_shared<Language>(
      core::with_defaults("data", "language", "vocabulary=16,steps=20", core::parse_name(source)), range);
}

namespace {

using Words = std::vector<std::string>;
using Numbers = std::unordered_map<std::string, std::int32_t>;

Words read_words(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw core::UsageError(fmt::format("text '{}' cannot be read", path));
  Words words;
  for (std::string line; std::getline(file, line);) {
    std::istringstream line_words(line);
    for (std::string word; line_words >> word;) words.push_back(word);
    words.emplace_back("<eos>");
  }
  if (file.bad()) throw core::UsageError(fmt::format("text '{}': reading it failed", path));
  return words;
}

Numbers number_words(const Words& words, const std::string& path) {
  std::unordered_map<std::string, std::size_t> counts{{"<unk>", 0}};
  for (const auto& word : words) ++counts[word];
  constexpr std::size_t most = std::size_t{1} << 24;  // the whole numbers that fp32 can tell apart
  if (counts.size() > most)
    throw core::UsageError(
        fmt::format("text '{}' has {} different words; at most {} are told apart", path, counts.size(), most));
  std::vector<std::pair<std::string, std::size_t>> order(counts.begin(), counts.end());
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  Numbers numbers;
  for (std::size_t i = 0; i < order.size(); ++i) numbers.emplace(order[i].first, static_cast<std::int32_t>(i));
  return numbers;
}

std::vector<std::int32_t> numbered(const Words& words, const Numbers& numbers) {
  std::vector<std::int32_t> numbered_words;
  numbered_words.reserve(words.size());
  const std::int32_t unknown = numbers.at("<unk>");
  for (const auto& word : words) {
    const auto known = numbers.find(word);
    numbered_words.push_back(known == numbers.end() ? unknown : known->second);
  }
  return numbered_words;
}

/// Windows [first, first + count) of a text, which training and validation may share.
class TextWindows final : public Dataset {
 public:
  struct Range {
    std::size_t first, count;
  };
  TextWindows(std::string name, std::shared_ptr<const std::vector<std::int32_t>> text, std::size_t classes,
              std::size_t steps, Range range)
      : name_(std::move(name)), text_(std::move(text)), classes_(classes), steps_(steps), range_(range) {}
  const std::string& name() const override { return name_; }
  std::size_t size() const override { return range_.count; }
  std::size_t features() const override { return steps_; }
  std::size_t labels() const override { return steps_; }
  std::size_t classes() const override { return classes_; }
  void read(std::size_t i, std::span<float> inputs, std::span<std::int32_t> labels) const override {
    kernels::require_elements("text: inputs", inputs.size(), steps_);
    kernels::require_elements("text: labels", labels.size(), steps_);
    const std::size_t begin = (range_.first + i) * steps_;
    for (std::size_t t = 0; t < steps_; ++t) {
      inputs[t] = static_cast<float>((*text_)[begin + t]);
      labels[t] = (*text_)[begin + t + 1];
    }
  }

 private:
  std::string name_;
  std::shared_ptr<const std::vector<std::int32_t>> text_;
  std::size_t classes_, steps_;
  Range range_;
};

/// "ptb.valid.txt" for "ptb.train.txt"; empty: there is no such file.
std::string validation_path(const std::string& path) {
  std::filesystem::path p(path);
  std::string file = p.filename().string();
  const std::size_t at = file.rfind("train");
  if (at == std::string::npos) return {};
  p.replace_filename(file.replace(at, 5, "valid"));
  std::error_code ignored;
  return std::filesystem::is_regular_file(p, ignored) ? p.string() : std::string();
}

std::size_t window_count(const std::vector<std::int32_t>& text, std::size_t steps) {
  return text.empty() ? 0 : (text.size() - 1) / steps;
}

}  // namespace

DataSplit read_text(std::string_view source, std::size_t train_most, std::size_t validation_most) {
  const core::ParsedName parsed = core::parse_name(source);
  const core::ParsedName full_name = core::with_defaults("data", parsed.base, "steps=35", parsed);
  const std::size_t steps = core::count_parameter(full_name, "steps", {.least = 1, .most = 4096});
  const Words words = read_words(full_name.base);
  const Numbers numbers = number_words(words, full_name.base);
  const auto part = [&](const auto& text, std::size_t first, std::size_t count) {
    return std::make_shared<TextWindows>(full_name.canonical(), text, numbers.size(), steps,
                                         TextWindows::Range{.first = first, .count = count});
  };
  const auto text = std::make_shared<const std::vector<std::int32_t>>(numbered(words, numbers));
  const std::string validation_file = validation_path(full_name.base);
  const auto validation_text =
      validation_file.empty()
          ? text
          : std::make_shared<const std::vector<std::int32_t>>(numbered(read_words(validation_file), numbers));
  const std::size_t text_windows = window_count(*text, steps),
                    train_windows = validation_file.empty() ? text_windows - text_windows / 10 : text_windows;
  const std::size_t validation_begin = validation_file.empty() ? train_windows : 0,
                    validation_windows = window_count(*validation_text, steps) - validation_begin;
  if (train_windows == 0 || validation_windows == 0)
    throw core::UsageError(fmt::format(
        "text '{}' has {} words: too few for windows of {} to train on and to validate with; give fewer steps",
        full_name.base, words.size(), steps));
  return {.train = part(text, 0, std::min(train_windows, train_most)),
          .validation = part(validation_text, validation_begin, std::min(validation_windows, validation_most))};
}

}  // namespace gradmeter::model
