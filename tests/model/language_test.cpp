// SPDX-License-Identifier: Apache-2.0
#include "model/data/sources.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "core/error.hpp"
#include "model/data/dataset.hpp"

namespace gradmeter::model {
namespace {

struct Sentence {
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
};
Sentence sentence(const Dataset& d, std::size_t i) {
  Sentence s{std::vector<float>(d.features()), std::vector<std::int32_t>(d.labels())};
  d.read(i, s.inputs, s.labels);
  return s;
}

/// Entropy of the next word given what `context` says of a place [bits].
template <class Context>
double entropy(const Dataset& d, const Context& context) {
  std::map<std::size_t, std::map<std::int32_t, double>> counts;
  double all = 0, sum = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    const Sentence s = sentence(d, i);
    for (std::size_t t = 0; t < s.labels.size(); ++t) counts[context(s, t)][s.labels[t]] += 1, ++all;
  }
  for (const auto& [_, next] : counts) {
    double total = 0;
    for (const auto& [word, n] : next) total += n;
    for (const auto& [word, n] : next) sum -= n * std::log2(n / total);
  }
  return sum / all;
}

TEST(Language, AWordHasTheStatedEntropyGivenTheTwoBeforeItAndMoreGivenOne) {
  const auto d = make_language("language:vocabulary=8,steps=25", {.samples = 8000, .seed = 3});
  const auto last = [](const Sentence& s, std::size_t t) { return static_cast<std::size_t>(s.inputs[t]); };
  const auto two = [&](const Sentence& s, std::size_t t) { return (t > 0 ? last(s, t - 1) : 0) * 8 + last(s, t); };
  EXPECT_NEAR(entropy(*d, two), 1.75, 0.005);
  EXPECT_GT(entropy(*d, last), 2.0);
  EXPECT_NEAR(d->least_loss(), 1.75 * std::numbers::ln2, 1e-12);
}

TEST(Language, InputsAreTheWordsBeforeTheLabels) {
  const auto d = make_language("language", {.samples = 50});
  EXPECT_EQ(d->name(), "language:steps=20,vocabulary=16");
  for (std::size_t i = 0; i < d->size(); ++i) {
    const Sentence s = sentence(*d, i);
    EXPECT_EQ(s.inputs[0], 0);
    for (std::size_t t = 1; t < s.inputs.size(); ++t) EXPECT_EQ(s.inputs[t], static_cast<float>(s.labels[t - 1]));
  }
}

TEST(Language, ASentenceDependsOnSeedAndPlaceAlone) {
  const auto whole = make_language("language", {.samples = 30}),
             tail = make_language("language", {.samples = 10, .offset = 20});
  std::set<std::vector<std::int32_t>> seen;
  for (std::size_t i = 0; i < 30; ++i) seen.insert(sentence(*whole, i).labels);
  EXPECT_EQ(seen.size(), 30U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(sentence(*tail, i).labels, sentence(*whole, 20 + i).labels);
  const auto other = make_language("language", {.samples = 30, .seed = 2});
  EXPECT_NE(sentence(*other, 0).labels, sentence(*whole, 0).labels);
}

TEST(Language, ItsPartsAreOfOneLanguageAndShareNoSentence) {
  const DataSplit split = make_data({.source = "language", .train_samples = 500, .validation_samples = 300});
  EXPECT_EQ(split.train->labels(), 20U);
  std::set<std::vector<std::int32_t>> seen;
  for (std::size_t i = 0; i < 500; ++i) seen.insert(sentence(*split.train, i).labels);
  std::size_t shared = 0;
  for (std::size_t i = 0; i < 300; ++i) shared += seen.contains(sentence(*split.validation, i).labels);
  EXPECT_EQ(shared, 0U);
}

TEST(Language, BadParametersAreRefused) {
  for (const char* bad : {"language:words=3", "language:vocabulary=3", "language:steps=0", "language:vocabulary=9999"})
    EXPECT_THROW((void)make_language(bad, {.samples = 1}), core::UsageError) << bad;
  Sentence s{std::vector<float>(19), std::vector<std::int32_t>(20)};
  EXPECT_THROW(make_language("language", {.samples = 1})->read(0, s.inputs, s.labels), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::model
