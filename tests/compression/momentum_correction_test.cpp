// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/dgc.hpp"

#include "compression/support.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

MomentumCorrection dgc(std::string_view name) { return MomentumCorrection(find_codec(name)->parsed); }

TEST(MomentumCorrection, FollowsItsDefinition) {
  const MomentumCorrection c = dgc("dgc:density=0.1,momentum=0.5");
  std::vector<float> u(10), v(10), g(10);
  Bytes wire(c.encoding().wire_bytes(10));
  g[3] = 8, g[4] = 6;
  c.encode(g, 1, u, v, wire.data());  // 3 is sent
  EXPECT_EQ(decoded(c.encoding(), wire, 10)[3], 8);
  EXPECT_EQ(u[3] + v[3], 0);
  EXPECT_EQ(u[4], 6);
  EXPECT_EQ(v[4], 6);
  g[3] = g[4] = 0;
  c.encode(g, 1, u, v, wire.data());  // u = 3, v = 6 + 3
  EXPECT_EQ(decoded(c.encoding(), wire, 10)[4], 9);
  EXPECT_EQ(u[4] + v[4], 0);
}

TEST(MomentumCorrection, WhatGathersIsSentOrKept) {
  const MomentumCorrection c = dgc("dgc:density=0.02");
  constexpr std::size_t n = 2000;
  std::vector<float> u(n), v(n);
  std::vector<double> gathered(n), velocity(n), sent(n);
  Bytes wire(c.encoding().wire_bytes(n));
  for (std::uint64_t t = 0; t < 200; ++t) {
    const auto g = gaussians(n, 0.01F, t);
    c.encode(g, 1, u, v, wire.data());
    const auto out = decoded(c.encoding(), wire, n);
    for (std::size_t i = 0; i < n; ++i) {
      velocity[i] = 0.9 * velocity[i] + double{g[i]};
      gathered[i] += velocity[i];
      sent[i] += double{out[i]};
      if (out[i] != 0) velocity[i] = 0;
    }
  }
  double off = 0, all = 0;
  for (std::size_t i = 0; i < n; ++i) {
    off += std::pow(gathered[i] - sent[i] - double{v[i]}, 2);
    all += gathered[i] * gathered[i];
  }
  EXPECT_LT(std::sqrt(off / all), 1e-5);
  EXPECT_GT(length(v), 0.01 * std::sqrt(all));
}

TEST(MomentumCorrection, WithDensityOneItIsTheGradient) {
  const MomentumCorrection c = dgc("dgc:density=1");
  const auto g = gaussians(100);
  std::vector<float> u(100), v(100);
  Bytes wire(c.encoding().wire_bytes(100));
  for (int t = 0; t < 3; ++t) {
    c.encode(g, 4, u, v, wire.data());
    EXPECT_EQ(decoded(c.encoding(), wire, 100), g);  // momentum is masked wherever something was sent
  }
}

TEST(MomentumCorrection, ClipsToItsShareOfTheThreshold) {
  const MomentumCorrection c = dgc("dgc:clip=2,density=1");
  EXPECT_EQ(c.clip_factor(4, 1), 0.5F);
  EXPECT_EQ(c.clip_factor(4, 16), 0.125F);
  EXPECT_EQ(c.clip_factor(0.5, 16), 1.0F);
  EXPECT_EQ(c.clip_factor(0, 16), 1.0F);
  EXPECT_EQ(dgc("dgc").clip_factor(1e9, 16), 1.0F);
  auto g = gaussians(1000, 1);
  std::vector<float> u(g.size()), v(g.size());
  Bytes wire(c.encoding().wire_bytes(g.size()));
  c.encode(g, 4, u, v, wire.data());
  EXPECT_NEAR(length(decoded(c.encoding(), wire, g.size())), 1, 1e-6);
  EXPECT_NEAR(l2_of_gradient(g), length(g), 1e-12 * length(g));
}

TEST(MomentumCorrection, ClippingTakesTheNormOfAllTensorsTogether) {
  auto g = gaussians(1000, 1);
  const auto before = g;
  const double norm = length(g);
  clip_gradient(g, 2, 4);
  EXPECT_NEAR(length(g), 1, 1e-6);
  for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(g[i], double{before[i]} / norm, 1e-6) << "one factor for all";
  const auto clipped = g;
  clip_gradient(g, 3, 4);
  EXPECT_EQ(g, clipped) << "short enough";
  clip_gradient(g, 0, 4);
  EXPECT_EQ(g, clipped) << "0: none";
}

TEST(MomentumCorrection, WhatIsGivenClippedGradientsClipsNoMore) {
  EXPECT_EQ(clip_of(find_codec("dgc:clip=2.5")), 2.5);
  EXPECT_EQ(clip_of(find_codec("terngrad")), 0) << "clips something else";
  EXPECT_EQ(clip_of(nullptr), 0);
  EXPECT_EQ(without_clip(find_codec("dgc:clip=2.5,density=0.1"))->name, find_codec("dgc:density=0.1")->name);
  EXPECT_EQ(without_clip(nullptr), nullptr);
}

TEST(WarmUp, QuartersTheDensityUntilItIsTheCodecs) {
  const auto densities = [](std::string_view name) {
    std::vector<std::string> out;
    for (const auto& c : warm_up_stages(*find_codec(name))) out.push_back(c->parsed.parameters.at("density"));
    return out;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(densities("dgc:density=0.001"), (Texts{"0.25", "0.0625", "0.015625", "0.00390625", "0.001"}));
  EXPECT_EQ(densities("dgc"), (Texts{"0.25", "0.0625", "0.015625", "0.01"}));
  EXPECT_EQ(densities("dgc:density=0.25"), Texts{"0.25"});
}

TEST(WarmUp, PhasesAreTheStagesOfTheirSteps) {
  for (const std::uint64_t warm_up : {1, 3, 4, 10, 400, 1873}) {
    const auto codec = with_warm_up(find_codec("dgc:density=0.001"), warm_up);
    EXPECT_EQ(warm_up_steps(codec->parsed), warm_up);
    const auto stages = warm_up_stages(*codec);
    for (const std::uint64_t first : {0, 2, 7, 5000}) {
      std::uint64_t at = first;
      for (const auto& phase : warm_up_phases(codec, first, 2000)) {
        for (std::uint64_t i = 0; i < phase.steps; ++i, ++at) {
          ASSERT_EQ(phase.codec->name, stages[warm_up_stage(warm_up, stages.size(), at)]->name) << at;
        }
      }
      EXPECT_EQ(at, first + 2000);
    }
  }
  const auto codec = find_codec("dgc:density=0.001,warmup=400");
  EXPECT_EQ(warm_up_stage(400, 5, 99), 0u);
  EXPECT_EQ(warm_up_stage(400, 5, 100), 1u);
  EXPECT_EQ(warm_up_stage(400, 5, 399), 3u);
  EXPECT_EQ(warm_up_stage(400, 5, 400), 4u);
}

TEST(WarmUp, IsAutomaticUntilSomebodyKnowsTheSteps) {
  EXPECT_EQ(warm_up_steps(find_codec("dgc")->parsed), 0u);
  EXPECT_EQ(with_warm_up(find_codec("dgc"), 40)->label, "dgc:warmup=40");
  EXPECT_EQ(with_warm_up(find_codec("dgc:warmup=7"), 40)->label, "dgc:warmup=7") << "said already";
  EXPECT_EQ(with_warm_up(find_codec("topk"), 40)->label, "topk");
  EXPECT_EQ(with_warm_up(nullptr, 40), nullptr);
  EXPECT_EQ(warm_up_phases(nullptr, 0, 3).size(), 1u);
  EXPECT_THROW(find_codec("dgc:warmup=soon"), core::UsageError);
  EXPECT_THROW(find_codec("dgc:warmup=-1"), core::UsageError);
}

TEST(MomentumCorrection, ABadGradientIsSeenOnceAndForgotten) {
  const MomentumCorrection c = dgc("dgc:clip=1");
  auto g = gaussians(1000);
  std::vector<float> u(g.size()), v(g.size());
  Bytes wire(c.encoding().wire_bytes(g.size()));
  g[10] = std::numeric_limits<float>::infinity();
  c.encode(g, 4, u, v, wire.data());
  for (const float x : decoded(c.encoding(), wire, g.size())) ASSERT_TRUE(std::isnan(x));
  EXPECT_EQ(u, std::vector<float>(g.size()));
  EXPECT_EQ(v, u);
}

TEST(MomentumCorrection, RefusesBadValues) {
  for (const auto* bad : {"dgc:density=0", "dgc:density=2", "dgc:momentum=1", "dgc:momentum=-0.1", "dgc:momentum=nan",
                          "dgc:clip=-1", "dgc:clip=inf", "dgc:clip=1.0", "dgc:ef=off"}) {
    EXPECT_THROW(find_codec(bad), core::UsageError) << bad;
  }
  EXPECT_NO_THROW(find_codec("dgc:momentum=0,clip=2.5"));
}

}  // namespace
}  // namespace gradmeter::compression
