// SPDX-License-Identifier: Apache-2.0
// Codecs between workers and servers: every row of the registry, chunk by chunk and in training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/server/protocol.hpp"
#include "support/served.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::each;
using test::sanitized;
using test::Seen;
using test::serve;
using test::Served;
using test::uneven;

/// Every codec there is, with parameters that suit short chunks.
std::vector<std::string> every_codec() {
  std::vector<std::string> out;
  for (const auto& row : compression::codecs()) {
    std::string name = fmt::format("{}:min=1", row.name);
    if (row.parameters.find("bucket") != std::string_view::npos) name += ",bucket=64";
    if (row.parameters.find("density") != std::string_view::npos) name += ",density=0.25";
    if (row.parameters.find("rank") != std::string_view::npos) name += ",rank=2";
    out.push_back(name);
  }
  return out;
}

Coding changes_of(const std::string& codec) { return Coding::of_changes(compression::find_codec(codec), 3); }
Coding weights_of(const std::string& codec) { return Coding::of_weights(compression::find_codec(codec)); }

double squared(std::span<const float> x) {
  return std::accumulate(x.begin(), x.end(), 0.0, [](double sum, float v) { return sum + double(v) * double(v); });
}

/// How far from the mean of the workers' resting targets, as a share of how far it was at the start.
double distance(const Served& s, std::span<const float> weights) {
  const int workers = s.ranks - s.servers;
  double now = 0, begin = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    double target = 0;
    for (int r = 0; r < workers; ++r) {  // of two samples
      target += double(test::target_of(r, 0, i) + test::target_of(r, 0, i + weights.size())) / (2 * workers);
    }
    const double off = double(weights[i]) - target, start = 1 + 0.01 * double(i % 50) - target;
    now += off * off;
    begin += start * start;
  }
  return now / begin;
}

Served resting(const std::string& strategy, int servers, const std::string& codec, int steps = 60) {
  return {.strategy = strategy,
          .ranks = 3 + servers,
          .servers = servers,
          .steps = each(steps),
          .codec = codec,
          .elements = 1000,
          .targets = Served::Targets::resting};
}

void expect_forecast(const Served& s, const std::vector<Seen>& seen) {
  std::uint64_t bytes = 0, calls = 0;
  for (const Seen& one : seen) bytes += one.totals.bytes_sent, calls += one.totals.calls;
  const Forecast f = forecast(s);
  const auto codec = compression::find_codec(s.codec);
  if (codec->codec && codec->codec->variable()) {
    EXPECT_TRUE(!f.exact && f.upper_bound) << s.codec;
    EXPECT_LE(bytes, f.bytes) << s.codec;
    EXPECT_GT(bytes, f.bytes / 4) << s.codec;
  } else {
    EXPECT_TRUE(f.exact) << s.codec;
    EXPECT_EQ(bytes, f.bytes) << s.strategy << " " << s.codec << " " << s.servers;
  }
  if (s.servers > 0) {
    EXPECT_EQ(calls, f.messages) << s.codec;
  }
  Served dense = s;
  dense.codec = "none";
  EXPECT_LT(bytes, 8 * forecast(dense).bytes / 10) << s.codec << ": it did get shorter";
}

TEST(CodedMessages, EveryCodecTrainsAndItsBytesAreTheForecast) {
  for (const auto* strategy : {"ps-sync", "ps-async"}) {
    for (const int servers : {0, 1, 2}) {
      for (const auto& codec : every_codec()) {
        const Served s = resting(strategy, servers, codec, sanitized ? 5 : 60);
        const auto seen = serve(s);
        expect_forecast(s, seen);
        if (sanitized) continue;
        EXPECT_LT(distance(s, seen[0].weights), 0.1) << strategy << " " << codec << " " << servers;
      }
    }
  }
}

TEST(CodedMessages, ElasticAveragingTakesEveryCodecButOneWithMomentum) {
  for (auto codec : every_codec()) {
    if (codec.starts_with("dgc")) {
      EXPECT_THROW(serve(resting("easgd:every=2", 1, codec, 1)), core::UsageError);
      codec += ",momentum=0";
    }
    const Served s = resting("easgd:every=2", 1, codec, sanitized ? 4 : 60);
    const auto seen = serve(s);
    expect_forecast(s, seen);
    for (const float w : seen[0].weights) ASSERT_TRUE(std::isfinite(w)) << codec;
  }
}

TEST(CodedMessages, MomentumIsAppliedOnce) {
  const auto refuses = [](const char* optimizer, const char* codec) {
    Served s = resting("ps-sync", 1, codec, 1);
    s.optimizer = optimizer;
    try {
      serve(s);
      return false;
    } catch (const core::UsageError&) {
      return true;
    }
  };
  for (const auto* optimizer : {"momentum", "nesterov:mu=0.5", "adam"}) EXPECT_TRUE(refuses(optimizer, "dgc:min=1"));
  EXPECT_FALSE(refuses("sgd", "dgc:min=1"));
  EXPECT_FALSE(refuses("momentum", "dgc:min=1,momentum=0"));
  EXPECT_FALSE(refuses("momentum", "topk:min=1"));
}

TEST(CodedMessages, WithFeedbackTrainingEndsWhereItDoesWithoutACodec) {
  const double dense = distance(resting("ps-sync", 1, "none"), serve(resting("ps-sync", 1, "none"))[0].weights);
  EXPECT_LT(dense, 1e-4);
  for (const auto* codec : {"topk:min=1,density=0.25", "onebit:min=1,bucket=64"}) {
    const auto with = resting("ps-sync", 1, codec), without = resting("ps-sync", 1, fmt::format("{},ef=off", codec));
    const double near = distance(with, serve(with)[0].weights), far = distance(without, serve(without)[0].weights);
    EXPECT_LT(near, 0.03) << codec;
    EXPECT_GT(far, 2 * near) << codec << ": the control";
  }
}

TEST(CodedMessages, WhatAChunkLosesComesWithLaterOnes) {
  constexpr std::size_t n = 640;
  constexpr std::uint64_t rounds = 200;
  std::vector<float> x(n), got(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(0.37f * static_cast<float>(i)) + 0.2f;
  const auto missing = [&](const std::string& codec) {
    const Coding coding = changes_of(codec);
    EXPECT_TRUE(coding.encodes(n)) << codec;
    auto encoder = coding.encoder(n);
    std::vector<std::byte> wire(coding.wire_bytes(n));
    std::vector<float> lost(n, 0.0f);
    for (std::uint64_t k = 0; k < rounds; ++k) {
      const auto draw = draw_of_change(7, 1, k, 64);
      coding.decode(std::span(wire).first(encoder(x, wire.data(), draw)), got, draw);
      for (std::size_t i = 0; i < n; ++i) lost[i] += (x[i] - got[i]) / float(rounds);
    }
    return squared(lost) / squared(x);
  };
  EXPECT_LT(missing("dgc:min=1,density=0.25,momentum=0"), 0.01);
  for (const auto* codec : {"topk:min=1,density=0.25", "onebit:min=1,bucket=64", "randomk:min=1,density=0.25",
                            "powersgd:min=1,rank=1", "natural8:min=1,bucket=64"}) {
    EXPECT_LT(missing(fmt::format("{},ef=on", codec)), 0.01) << codec;
  }
  for (const auto* codec : {"topk:min=1,density=0.25", "onebit:min=1,bucket=64"}) {
    EXPECT_GT(missing(fmt::format("{},ef=off", codec)), 0.05) << codec << ": the control";
  }
  // Without feedback it loses nothing in the mean: a draw's error is n/k − 1 = 3 times the square of x.
  EXPECT_NEAR(missing("randomk:min=1,density=0.25,ef=off"), 3.0 / rounds, 1.0 / rounds);
}

TEST(CodedMessages, AChunkThatIsSentWholeKeepsItsBits) {
  constexpr std::size_t n = 640;
  std::vector<float> x(n), got(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = i % 4 == 0 ? 0.0f : std::sin(0.37f * static_cast<float>(i));
  const auto sent = [&](const std::string& codec, std::uint64_t clock_of_reader) {
    const Coding coding = changes_of(codec);
    EXPECT_TRUE(coding.encodes(n)) << codec;
    std::vector<std::byte> wire(coding.wire_bytes(n));
    const std::size_t bytes = coding.encoder(n)(x, wire.data(), draw_of_change(7, 1, 3, 64));
    coding.decode(std::span(wire).first(bytes), got, draw_of_change(7, 2, clock_of_reader, 64));
    return got;
  };
  EXPECT_EQ(sent("topk:min=1,density=0.75", 3), x) << "all that are not 0";
  EXPECT_EQ(sent("dgc:min=1,density=0.75", 3), x) << "the first has no momentum yet";
  EXPECT_NE(sent("topk:min=1,density=0.5", 3), x) << "the control";
  const auto right = sent("randomk:min=1,density=0.5", 3), wrong = sent("randomk:min=1,density=0.5", 4);
  for (std::size_t i = 0; i < n; ++i) ASSERT_TRUE(right[i] == 0 || right[i] == x[i]) << i;
  EXPECT_NE(wrong, right) << "the control: another clock's places";
  bool misplaced = false;
  for (std::size_t i = 0; i < n; ++i) misplaced |= wrong[i] != 0 && wrong[i] != x[i];
  EXPECT_TRUE(misplaced);
}

TEST(CodedMessages, AServerPutsValuesWhereTheWorkerTookThem) {
  Served s{.strategy = "ps-sync", .ranks = 3, .servers = 2, .steps = each(1), .elements = 1000};
  const auto dense = serve(s);
  s.codec = "randomk:min=1,density=0.25";
  const auto drawn = serve(s);
  std::size_t moved = 0;
  for (std::size_t i = 0; i < s.elements; ++i) {
    const float begin = 1 + 0.01f * static_cast<float>(i % 50), now = drawn[0].weights[i];
    if (now == begin) continue;
    ++moved;
    ASSERT_EQ(now, dense[0].weights[i]) << i << ": one worker's, so as far as without a codec";
  }
  EXPECT_NEAR(double(moved), 250, 10);
}

TEST(CodedMessages, ACodecThatWouldMakeMessagesLongerChangesNothing) {
  Served s{.strategy = "ps-sync", .ranks = 4, .servers = 1, .elements = 1000};
  const auto dense = serve(s);
  for (const auto* codec : {"topk:min=1,density=1", "randomk:min=1,density=1", "powersgd:min=1,rank=40"}) {
    s.codec = codec;
    const auto coded = serve(s);
    EXPECT_EQ(coded[0].weights, dense[0].weights) << codec;
    EXPECT_EQ(coded[0].totals.bytes_sent, dense[0].totals.bytes_sent) << codec;
  }
  s.codec = "topk:min=1,density=0.9";
  EXPECT_NE(serve(s)[0].weights, dense[0].weights) << "the control";
}

TEST(CodedMessages, ChunksOfALongShardAreEncodedOneByOne) {
  // 2.7 MiB: three chunks.
  for (const auto* codec : {"topk", "dgc", "randomk", "powersgd", "qsgd-elias", "terngrad"}) {
    if (sanitized && std::string(codec) != "randomk") continue;
    Served s{.strategy = "ps-sync", .ranks = 3, .servers = 1, .steps = each(2), .codec = codec, .elements = 700'000};
    const auto seen = serve(s);
    expect_forecast(s, seen);
    EXPECT_EQ(seen[0].weights, seen[1].weights) << codec;
  }
  const Sharding cut(700'000, 1, changes_of("topk").grain());
  ASSERT_EQ(cut.chunks(0), 3u);
  EXPECT_EQ(changes_of("topk").wire_bytes(262'144), 2 * 4 * 2624u) << "ceil(0.01 n) places and values, padded";
  EXPECT_EQ(changes_of("randomk").wire_bytes(262'144), 4 * 2622u);
  EXPECT_EQ(changes_of("powersgd").wire_bytes(262'144), 4 * 4 * (512 + 512u)) << "rank 4, 512 x 512";
}

TEST(CodedMessages, WeightsTravelDenseWhereAChangeMayLoseMoreThanThereIs) {
  for (const auto* codec : {"bf16", "fp16", "qsgd8", "qsgd4", "natural8", "fp8-e4m3", "lns4", "qsgd-elias:bucket=128",
                            "topk", "topk:ef=off", "powersgd", "randomk", "onebit", "onebit:ef=off", "bf16:ef=on"}) {
    EXPECT_TRUE(weights_of(codec).encodes(4096)) << codec;
  }
  for (const auto* codec : {"dgc", "qsgd1", "qsgd2", "qsgd-elias", "terngrad", "randomk:ef=off"}) {
    EXPECT_FALSE(weights_of(codec).encodes(4096)) << codec;
    EXPECT_TRUE(changes_of(codec).encodes(4096)) << codec;
    EXPECT_NE(Coding::why_dense_weights(*compression::find_codec(codec)), "") << codec;
  }
}

/// |a - b|^2 / |b|^2.
double relative(std::span<const float> a, std::span<const float> b) {
  std::vector<float> off(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) off[i] = a[i] - b[i];
  return squared(off) / squared(b);
}

TEST(CodedMessages, WhatAnAnswerLosesComesWithTheNextWhateverTheAdmission) {
  for (const auto* strategy : {"ps-sync", "ps-ssp", "ps-async", "ps-async:fetch=2,push=3"}) {
    Served s = resting(strategy, 1, "none", sanitized ? 10 : 120);
    s.machine = uneven(3);
    s.judge = true;
    const auto plain = serve(s);
    for (const auto* codec : {"natural8:bucket=64,min=1", "lns4:bucket=64,min=1", "qsgd4:bucket=64,min=1",
                              "onebit:bucket=64,min=1", "topk:density=0.25,min=1", "bf16:min=1"}) {
      s.codec = codec;
      const auto seen = serve(s);
      if (sanitized) continue;
      // The control: what encoding the weights themselves would lose.
      const Coding coding = weights_of(codec);
      const auto& weights = seen[0].evaluation_weights.back();
      std::vector<std::byte> wire(coding.wire_bytes(weights.size()));
      std::vector<float> got(weights.size());
      coding.encoder(weights.size())(weights, wire.data(), draw_of_weights(7, 0, 1, 0));
      coding.decode(wire, got, draw_of_weights(7, 0, 1, 0));
      for (std::size_t r = 0; r < 3; ++r) {
        const double stale =
            relative(plain[r].weights, plain[r].evaluation_weights.back());  // changes that it has not read yet
        EXPECT_LT(relative(seen[r].weights, weights), 5 * stale + 0.05 * relative(got, weights))
            << strategy << " " << codec;
      }
    }
  }
}

TEST(CodedMessages, WorkersThatReadTheSameVersionsHoldTheSameBits) {
  for (const auto* codec : {"natural8:bucket=64,min=1", "topk:density=0.25,min=1", "powersgd:rank=2,min=1"}) {
    Served s = resting("ps-sync", 2, codec, 12);
    s.machine = uneven(3);
    const auto seen = serve(s);
    EXPECT_EQ(seen[1].weights, seen[0].weights) << codec;
    EXPECT_EQ(seen[2].weights, seen[0].weights) << codec;
    s.strategy = "ps-async";
    EXPECT_NE(serve(s)[2].weights, seen[0].weights) << "the control";
  }
}

/// Mean loss of the last steps on the digits.
double digits_loss(const std::string& codec, std::uint64_t tail = 16) {
  const test::StrategyRun run{.strategy = "ps-sync", .codec = codec, .steps = 80, .batch_per_rank = 16};
  double loss = 0, samples = 0;
  for (const auto& end : test::run_workers(3, run)) {
    for (std::size_t i = end.outcomes.size() - tail; i < end.outcomes.size(); ++i) {
      loss += end.outcomes[i].loss_sum;
      samples += static_cast<double>(end.outcomes[i].labels);
    }
  }
  return loss / samples;
}

TEST(CodedMessages, TheDigitsAreLearntAsWellAsWithoutACodec) {
  if (sanitized) return;
  const double none = digits_loss("none");
  for (const auto* codec : {"natural8", "lns4", "qsgd8"}) EXPECT_LT(digits_loss(codec), 1.05 * none) << codec;
  EXPECT_GT(digits_loss("topk:density=0.002,ef=off"), 1.2 * none) << "the control";
}

TEST(CodedMessages, BucketsLongerThanAChunkEndWithIt) {
  EXPECT_EQ(changes_of("qsgd8:bucket=1048576").grain(), 1u);
  EXPECT_EQ(changes_of("qsgd8:bucket=4096").grain(), 4096u) << "the control";
  EXPECT_EQ(changes_of("topk").grain(), 1u);
}

TEST(CodedMessages, AForecastIsExactWhereNothingOfVariableLengthIsEncoded) {
  Served s{.strategy = "ps-sync", .ranks = 4, .servers = 1, .codec = "qsgd-elias:min=1", .elements = 1000};
  EXPECT_FALSE(forecast(s).exact);
  s.codec = "qsgd-elias:min=2000";
  EXPECT_TRUE(forecast(s).exact);
  EXPECT_FALSE(forecast(s).upper_bound);
}

TEST(CodedMessages, AMessageThatCannotBeAChunkIsRefused) {
  const Coding exact = changes_of("topk:min=1"), variable = changes_of("qsgd-elias:min=1");
  std::vector<float> out(640);
  const std::vector<std::byte> longer(640 * 4 + 16);
  EXPECT_THROW(exact.decode(std::span(longer).first(exact.wire_bytes(640) - 1), out, {}), std::logic_error);
  EXPECT_THROW(variable.decode(longer, out, {}), std::logic_error);
}

/// One step of two workers by SGD with step size 1, whose bits do not depend on the order of a sum of two.
test::StrategyEnd one_step(const char* strategy, std::string codec, std::size_t bucket_bytes) {
  return test::run_workers(2, {.strategy = strategy,
                               .optimizer = "sgd",
                               .codec = std::move(codec),
                               .steps = 1,
                               .step_size = 1,
                               .bucket_bytes = bucket_bytes})
      .front();
}

TEST(LocalClipping, TakesTheNormOfAllTensorsWhateverBucketsAndChunksTheyTravelIn) {
  const std::string dense = "dgc:momentum=0,min=10000000", clipped = dense + ",clip=0.5";  // too short to be encoded
  const auto whole = one_step("sync", clipped, 0);
  EXPECT_EQ(one_step("sync", clipped, 1024).hashes, whole.hashes) << "many buckets";
  EXPECT_EQ(one_step("ps-sync", clipped, 0).hashes, whole.hashes) << "servers";
  EXPECT_NE(one_step("sync", dense, 0).hashes, whole.hashes) << "the control";
  EXPECT_EQ(one_step("ps-sync", dense, 0).hashes, one_step("sync", dense, 1024).hashes);
}

TEST(LocalClipping, LeavesEachWorkerItsShareOfTheThreshold) {
  const auto moved = [](const char* clip) {
    const std::string codec = std::string("dgc:momentum=0,min=10000000,clip=") + clip;
    const auto weights = one_step("sync", codec, 0).weights;
    // Of a step so small that nothing moves: the weights that all begin with.
    const auto begin = test::run_workers(2, {.optimizer = "sgd", .steps = 1, .step_size = 0}).front().weights;
    double square = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) square += std::pow(double{weights[i]} - double{begin[i]}, 2);
    return std::sqrt(square);
  };
  // The mean of two gradients of norm clip/sqrt(2) each.
  EXPECT_LE(moved("0.01"), 0.0072);
  EXPECT_GT(moved("0.01"), 0.004);
  EXPECT_NEAR(moved("0.02") / moved("0.01"), 2, 0.01);
}

}  // namespace
}  // namespace gradmeter::dataparallel
