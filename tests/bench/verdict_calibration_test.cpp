// SPDX-License-Identifier: Apache-2.0
// Verdicts on simulated points whose causes are known: one that is given at 90 % must be right nine times of ten.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/scale/causes.hpp"

namespace gradmeter::bench {
namespace {

constexpr double base_s = 10e-3;
constexpr std::size_t ranks_of_point = 4, slow_rank = 2;
constexpr std::array words{"memory", "straggle", "interference", "wait", "wire", "other"};

/// A point with its baseline and control: true parts, noise of blocks and of single ranks, and shares of each time by
/// which the machine's state lengthened it throughout.
class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed) {
    if (uniform(0, 1) > 0.2) {
      for (double& part : truth_) part = uniform(0, 1) < 0.6 ? base_s * std::exp(uniform(-4, 0)) : 0;
    }
    blocks_ = 6 + random_() % 30;
    noise_ = 0.1 * uniform(0, 1) * uniform(0, 1);
    rank_noise_ = 0.02 * uniform(0, 1);
    if (random_() % 2 == 0) {
      disturbance_ = {.base = uniform(0, 0.3), .control = uniform(0, 0.3), .point = uniform(0, 0.3)};
    }
    measure();
  }

  /// The verdict of one who believes the machine was `disturbed`.
  Verdict verdict(const Disturbance& disturbed) const {
    const auto step = [](const Measurement& m) {
      std::vector<double> steps;
      for (const auto& b : m.blocks) steps.push_back(b.step);
      return core::median(steps);
    };
    const auto compared = pair_blocks(base_, control_, point_);
    const double point = step(point_);
    return judge(compared, find_causes(compared, point, step(base_), step(control_)), point, false, disturbed).value();
  }
  const Disturbance& disturbance() const { return disturbance_; }
  bool is_right(const Verdict& v) const {
    double lost = 0;
    for (const double part : truth_) lost += part;
    if (lost < v.noise_s) return v.bound_by == "compute";
    return v.bound_by == words.at(static_cast<std::size_t>(std::ranges::max_element(truth_) - truth_.begin()));
  }

 private:
  double uniform(double low, double high) { return std::uniform_real_distribution(low, high)(random_); }
  /// The true time, lengthened by the machine throughout and by the noise of this block.
  double noisy(double time, double machine, double noise) {
    return time / (1 - machine) * (1 + std::normal_distribution(0.0, noise)(random_));
  }

  void measure() {
    const auto [contention, straggle, interference, wait, wire, other] = truth_;
    const auto machine = [this](double most) { return uniform(0, most); };
    const double of_base = machine(disturbance_.base), of_wait = machine(disturbance_.point),
                 of_wire = machine(disturbance_.point), of_rest = machine(disturbance_.point);
    std::array<double, ranks_of_point> of_control{}, of_point{};
    const double others_control = machine(disturbance_.control), others_point = machine(disturbance_.point);
    for (std::size_t r = 0; r < ranks_of_point; ++r) {
      of_control[r] = r == slow_rank ? machine(disturbance_.control) : others_control;
      of_point[r] = r == slow_rank ? machine(disturbance_.point) : others_point;
    }
    constexpr double rest = 0.05 * base_s;
    for (std::size_t i = 0; i < blocks_; ++i) {
      const double alone = noisy(base_s, of_base, noise_);
      base_.blocks.push_back({.round = i, .step = alone + rest, .parts = {.compute = alone}, .compute = {alone}});
      StepBlock control{.round = i}, point{.round = i};
      const double all_control = 1 + std::normal_distribution(0.0, noise_)(random_),
                   all_point = 1 + std::normal_distribution(0.0, noise_)(random_);
      for (std::size_t r = 0; r < ranks_of_point; ++r) {
        const double own = base_s + contention + (r == slow_rank ? straggle : 0);
        control.compute.push_back(all_control * noisy(own, of_control[r], rank_noise_));
        point.compute.push_back(all_point * noisy(own + interference, of_point[r], rank_noise_));
      }
      for (StepBlock* b : {&control, &point}) {
        b->longest_rank = static_cast<int>(std::ranges::max_element(b->compute) - b->compute.begin());
        b->parts.compute = b->compute[static_cast<std::size_t>(b->longest_rank)];
        b->step = b->parts.compute + rest;
      }
      point.parts.wait = noisy(wait, of_wait, noise_);
      point.parts.exposed = point.parts.wait + noisy(wire, of_wire, noise_);
      point.step += point.parts.exposed + noisy(other, of_rest, noise_);
      control_.blocks.push_back(control);
      point_.blocks.push_back(point);
    }
  }

  std::mt19937 random_;
  std::array<double, cause_count> truth_{};
  std::size_t blocks_ = 0;
  double noise_ = 0, rank_noise_ = 0;  ///< standard deviations as shares: of all ranks' times together, of one rank's
  Disturbance disturbance_;
  Measurement base_, control_, point_;
};

struct VerdictCounts {
  int sure = 0, sure_right = 0, decided = 0, decided_right = 0, all = 0;
  void count(const Verdict& v, bool right) {
    ++all;
    if (v.bound_by == "undecided") return;
    ++decided, decided_right += right;
    if (v.probability >= 0.9) ++sure, sure_right += right;
  }
  double sure_share() const { return static_cast<double>(sure_right) / sure; }
  double decided_share() const { return static_cast<double>(decided_right) / decided; }
};

TEST(VerdictCalibration, VerdictsAt90PercentAreRightNineTimesOfTen) {
  VerdictCounts informed, quiet, deaf;
  constexpr unsigned points = 500;
  for (unsigned seed = 1; seed <= points; ++seed) {
    const Simulation s(seed);
    const Verdict v = s.verdict(s.disturbance());
    informed.count(v, s.is_right(v));
    if (s.disturbance().point == 0) {
      quiet.count(v, s.is_right(v));
    } else {
      const Verdict of_deaf = s.verdict({});
      deaf.count(of_deaf, s.is_right(of_deaf));
    }
  }
  EXPECT_GE(informed.sure_share(), 0.9);
  EXPECT_GE(informed.decided_share(), 0.8);
  EXPECT_GE(quiet.decided, 0.9 * quiet.all) << "who never decides is never wrong";
  EXPECT_LT(deaf.sure_share(), 0.9) << "the control: one who does not hear of the machine's state is too sure";
}

}  // namespace
}  // namespace gradmeter::bench
