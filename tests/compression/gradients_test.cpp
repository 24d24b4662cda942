// SPDX-License-Identifier: Apache-2.0
#include "compression/test_gradients.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::compression {
namespace {

std::vector<float> drawn(std::string_view name, std::size_t n, std::uint64_t seed = 1, std::uint64_t stream = 0) {
  std::vector<float> out(n);
  GradientSource(name).draw(seed, stream, out);
  return out;
}

struct SampleMoments {
  double mean = 0, variance = 0, kurtosis = 0, zeros = 0;
};
SampleMoments moments(const std::vector<float>& x) {
  SampleMoments m;
  const auto n = static_cast<double>(x.size());
  for (const double v : x) {
    m.mean += v / n;
    m.variance += v * v / n;
    m.kurtosis += v * v * v * v / n;
    m.zeros += v == 0 ? 1 / n : 0;
  }
  m.kurtosis /= m.variance * m.variance;
  return m;
}

TEST(GradientSource, HasTheMomentsOfItsDistribution) {
  if (test::sanitized) GTEST_SKIP() << "a million draws are for the numbers: what draws them runs in the other cases";
  const auto gauss = moments(drawn("gaussian", 1 << 20));
  EXPECT_NEAR(gauss.mean, 0, 0.005);
  EXPECT_NEAR(gauss.variance, 1, 0.03);
  EXPECT_NEAR(gauss.kurtosis, 2.9, 0.1);  // 3 - 6/(5·12): twelve uniforms
  const auto laplace = moments(drawn("laplace", 1 << 20));
  EXPECT_NEAR(laplace.mean, 0, 0.01);
  EXPECT_NEAR(laplace.variance, 2, 0.1);
  EXPECT_NEAR(laplace.kurtosis, 6, 0.6);
  const auto sparse = moments(drawn("sparse:density=0.1", 1 << 20));
  EXPECT_NEAR(sparse.zeros, 0.9, 0.005);
  EXPECT_NEAR(sparse.variance, 0.1, 0.01);
}

TEST(GradientSource, IsAFunctionOfSeedStreamAndPlace) {
  const auto a = drawn("laplace", 1000);
  EXPECT_EQ(a, drawn("laplace", 1000));
  EXPECT_NE(a, drawn("laplace", 1000, 2));
  EXPECT_NE(a, drawn("laplace", 1000, 1, 1));
  const auto longer = drawn("laplace", 2000);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), longer.begin()));
}

TEST(GradientSource, HasStreamsWithoutCorrelation) {
  const auto a = drawn("gaussian", 1 << 18, 1, 0), b = drawn("gaussian", 1 << 18, 1, 1);
  double product = 0;
  for (std::size_t i = 0; i < a.size(); ++i) product += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  EXPECT_NEAR(product / static_cast<double>(a.size()), 0, 0.01);
}

TEST(GradientSource, WritesItsParametersOut) {
  EXPECT_EQ(GradientSource("sparse").name(), "sparse:density=0.05");
  EXPECT_EQ(GradientSource("gaussian").name(), "gaussian");
}

TEST(GradientSource, RefusesWhatItDoesNotKnow) {
  for (const auto* bad : {"normal", "sparse:density=0", "sparse:density=2", "sparse:density=x", "sparse:rate=0.1",
                          "gaussian:1", "laplace:b=2", "file:/there/is/no/such/file", ""}) {
    EXPECT_THROW(GradientSource{bad}, core::UsageError) << bad;
  }
}

class RecordedGradientFile : public testing::Test {
 protected:
  RecordedGradientFile()
      : path_(std::filesystem::temp_directory_path() / ("gradmeter-gradient-" + std::to_string(::getpid()))) {}
  ~RecordedGradientFile() override { std::filesystem::remove(path_); }

  static RecordedGradient sample() {
    RecordedGradient g{"mlp:3-2-1", 7, {{"w", {2, 3}, 0, 6}, {"b", {2}, 6, 2}}, {}};
    for (int i = 0; i < 8; ++i) g.values.push_back(static_cast<float>(i) / 3 - 1);
    return g;
  }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::filesystem::path path_;
};

std::string refusal(const std::string& bytes) {
  try {
    parse_gradient(bytes, "g.bin");
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "";
}

TEST_F(RecordedGradientFile, ReadsBackWhatWasWritten) {
  const auto g = sample();
  write_gradient(path_, g, g.values, false);
  const auto back = read_gradient(path_);
  EXPECT_EQ(back.model, g.model);
  EXPECT_EQ(back.step, 7u);
  ASSERT_EQ(back.tensors.size(), 2u);
  EXPECT_EQ(back.tensors[0].shape, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(back.tensors[1].name, "b");
  EXPECT_EQ(back.values, g.values);
  std::vector<float> drawn(20);
  GradientSource("file:" + path_.string()).draw(1, 0, drawn);
  EXPECT_EQ(drawn[3], g.values[3]);
  EXPECT_EQ(drawn[19], g.values[3]) << "it is repeated";
}

TEST_F(RecordedGradientFile, IsNotReplacedUnasked) {
  const auto g = sample();
  write_gradient(path_, g, g.values, false);
  EXPECT_THROW(write_gradient(path_, g, g.values, false), core::UsageError);
  EXPECT_NO_THROW(write_gradient(path_, g, g.values, true));
  EXPECT_THROW(write_gradient("/no/such/place/g", g, g.values, true), core::UsageError);
}

TEST_F(RecordedGradientFile, IsRefusedWhereverItBreaksOff) {
  const auto g = sample();
  write_gradient(path_, g, g.values, false);
  const std::string whole = bytes();
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::string why = refusal(whole.substr(0, n));
    EXPECT_TRUE(why.starts_with("g.bin: ")) << n << ": " << why;
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  }
  EXPECT_NE(refusal(whole + "x").find("holds 33 bytes"), std::string::npos);
}

TEST_F(RecordedGradientFile, IsNoInputForCodecsWhereAValueIsNotFinite) {
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    auto g = sample();
    const auto& last = g.tensors.back();
    g.values[last.offset] = bad;
    write_gradient(path_, g, g.values, true);
    try {
      const GradientSource refused("file:" + path_.string());
      ADD_FAILURE() << bad;
    } catch (const core::UsageError& e) {
      const std::string why = e.what();
      EXPECT_NE(why.find(fmt::format("element {} (in {}) is not finite", last.offset, last.name)), why.npos) << why;
      EXPECT_EQ(why.find('\n'), why.npos);
    }
  }
}

TEST_F(RecordedGradientFile, IsTakenOrRefusedWhateverIsInIt) {
  const auto g = sample();
  write_gradient(path_, g, g.values, false);
  const std::string whole = bytes();
  const std::size_t head = whole.size() - 32;
  const core::Random random(5, 0);
  std::size_t refused = 0;
  constexpr std::size_t rounds = 20000;
  for (std::size_t i = 0; i < rounds; ++i) {
    std::string text = whole;
    const std::size_t place = random.below(4 * i, head);
    constexpr std::string_view tokens = "0123456789{}[],:\"-e.\n\0";
    for (std::size_t k = 0; k <= random.below(4 * i + 1, 3); ++k) {
      text[(place + 7 * k) % head] = tokens[random.below(4 * i + 2 + k, tokens.size())];
    }
    if (random.below(4 * i + 3, 4) == 0) text.erase(place, 5);
    refused += refusal(text).empty() ? 0 : 1;  // any other exception ends the test
  }
  EXPECT_GT(refused, rounds / 3);
  EXPECT_LT(refused, rounds);
}

TEST_F(RecordedGradientFile, SaysWhatIsWrongWithItsHead) {
  const auto file = [](const std::string& head) { return "GMGRAD1\n" + head + "\n" + std::string(8, '\0'); };
  const std::string tensor = R"({"model":"m","step":0,"elements":2,"tensors":[{"name":"a","shape":)";
  EXPECT_NE(refusal(file("[]")).find("not an object"), std::string::npos);
  EXPECT_NE(refusal(file(R"({"model":"m","step":-1,"tensors":[]})")).find("'step'"), std::string::npos);
  EXPECT_NE(refusal(file(R"({"model":"m","step":1,"tensors":[]})")).find("'elements'"), std::string::npos);
  EXPECT_NE(refusal(file(R"({"model":"m","step":1,"elements":2,"tensors":[{"name":"a"}]})")).find("'offset'"),
            std::string::npos);
  EXPECT_NE(refusal(file(R"({"model":"m","step":0,"elements":0,"tensors":[]})")).find("no values"), std::string::npos);
  EXPECT_EQ(refusal(file(R"({"model":"m","step":0,"elements":2,"tensors":[]})")), "");
  EXPECT_NE(refusal(file(tensor + R"([3],"offset":0,"count":2}]})")).find("shape and count"), std::string::npos);
  EXPECT_EQ(refusal(file(tensor + R"([1],"offset":1,"count":1}]})")), "") << "a gap is padding";
  const std::string second = R"([2],"offset":0,"count":2},{"name":"b","shape":[1],"offset":1,"count":1}]})";
  EXPECT_NE(refusal(file(tensor + second)).find("follow"), std::string::npos);
  EXPECT_NE(refusal(file(tensor + R"([2],"offset":1,"count":2}]})")).find("beyond"), std::string::npos);
  EXPECT_NE(refusal(file(tensor + R"([4294967296,4294967296],"offset":0,"count":0}]})")).find("more elements"),
            std::string::npos);
  EXPECT_NE(refusal(file(R"({"model":"m","step":0,"elements":3,"tensors":[]})")).find("its head says 12"),
            std::string::npos);
}

}  // namespace
}  // namespace gradmeter::compression
