// SPDX-License-Identifier: Apache-2.0
#include "analysis/links.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "analysis/findings.hpp"
#include "core/format.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using testing::HasSubstr;

constexpr double window_bytes = 2e6, usual_rate = 1e9, usual_latency = 20e-6;

struct Measured {
  double bytes_per_s = usual_rate, latency_s = usual_latency;
};
using Cluster = std::function<Measured(int from, int to)>;

/// A value with samples around it that differ by a hundredth.
core::Summary around(double value, std::mt19937& draw) {
  std::normal_distribution<double> noise(1, 0.01);
  std::vector<double> samples;
  for (int i = 0; i < 16; ++i) samples.push_back(value * noise(draw));
  return core::summarise(samples);
}

/// Rows of every link, ranks_per_host ranks on each host.
std::vector<core::Point> rows(int ranks, const Cluster& cluster, int ranks_per_host = 1) {
  std::mt19937 draw(7);
  std::vector<core::Point> out;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const Measured m = cluster(from, to);
      core::Point p;
      p.experiment = "links";
      p.factors[Factor::pattern] = std::string("one-way");
      p.factors[Factor::from_rank] = std::int64_t{from};
      p.factors[Factor::to_rank] = std::int64_t{to};
      p.metrics[Metric::from_host] = fmt::format("host{}", from / ranks_per_host);
      p.metrics[Metric::to_host] = fmt::format("host{}", to / ranks_per_host);
      const auto window = around(window_bytes / m.bytes_per_s, draw);
      p.metrics[Metric::time_s] = window;
      p.metrics[Metric::link_bytes_per_s] = window_bytes / window.median;
      p.metrics[Metric::latency_s] = around(m.latency_s, draw);
      out.push_back(p);
    }
  }
  return out;
}

std::vector<std::string> texts(const std::vector<LinkFinding>& found) {
  std::vector<std::string> out;
  for (const auto& f : found) out.push_back(f.text);
  return out;
}

TEST(LinkFindings, AnEvenClusterHasNone) {
  EXPECT_THAT(texts(link_findings(rows(8, [](int, int) { return Measured{}; }))), testing::IsEmpty());
}

TEST(LinkFindings, ASlowLinkIsNamedOnceForBothWays) {
  const auto found = link_findings(rows(8, [](int from, int to) {
    const bool slow = (from == 2 && to == 5) || (from == 5 && to == 2);
    return Measured{.bytes_per_s = slow ? usual_rate / 2 : usual_rate};
  }));
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(texts(found));
  EXPECT_FALSE(found[0].is_host() || found[0].asymmetric);
  EXPECT_EQ(std::pair(found[0].from, found[0].to), std::pair(2, 5));
  EXPECT_TRUE(found[0].both_ways);
  EXPECT_NEAR(found[0].ratio, 2, 0.1);
  EXPECT_GT(found[0].deviations, 20);
  EXPECT_THAT(found[0].text, HasSubstr("host2 (rank 2) <> host5 (rank 5)"));
}

TEST(LinkFindings, ALinkThatIsSlowOneWaySaysSo) {
  const auto found = link_findings(rows(
      8, [](int from, int to) { return Measured{.bytes_per_s = from == 2 && to == 5 ? usual_rate / 2 : usual_rate}; }));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].text, testing::AllOf(HasSubstr("host2 (rank 2) > host5 (rank 5)"), HasSubstr("the other way")));
}

class SlowHost : public testing::TestWithParam<int> {};

TEST_P(SlowHost, IsNamedInPlaceOfItsLinks) {
  const auto found = link_findings(rows(GetParam(), [](int from, int to) {
    return Measured{.bytes_per_s = from == 1 || to == 1 ? usual_rate / 2 : usual_rate};
  }));
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(texts(found));
  EXPECT_TRUE(found[0].is_host());
  EXPECT_EQ(found[0].name, "host1");
  EXPECT_THAT(found[0].text, HasSubstr("sends and receives"));
}
INSTANTIATE_TEST_SUITE_P(Hosts, SlowHost, testing::Values(4, 5, 8, 32));

TEST(LinkFindings, AHostThatSendsSlowlyIsNoAsymmetryOfEachOfItsLinks) {
  const auto found = link_findings(
      rows(8, [](int from, int) { return Measured{.bytes_per_s = from == 6 ? usual_rate / 2 : usual_rate}; }));
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(texts(found));
  EXPECT_THAT(found[0].text, HasSubstr("host6: sends at"));
}

TEST(LinkFindings, ALinkThatIsSlowerThanItsSlowHostIsNamedBesideIt) {
  const auto found = link_findings(rows(8, [](int from, int to) {
    const bool worst = from == 1 && to == 4;
    return Measured{.bytes_per_s = worst ? usual_rate / 8 : from == 1 || to == 1 ? usual_rate / 2 : usual_rate};
  }));
  ASSERT_EQ(found.size(), 2U) << testing::PrintToString(texts(found));
  EXPECT_THAT(found[0].name, HasSubstr("host1 (rank 1) > host4 (rank 4)"));  // by 4, and the host by 2
  EXPECT_EQ(found[1].name, "host1");
}

TEST(LinkFindings, TwoLateHostsExplainTheLatencyBetweenThem) {
  const auto found = link_findings(rows(8, [](int from, int to) {
    const double late = (from == 3 || to == 3 ? 2e-3 : 0) + (from == 5 || to == 5 ? 1e-3 : 0);
    return Measured{.latency_s = usual_latency + late};
  }));
  ASSERT_EQ(found.size(), 2U) << testing::PrintToString(texts(found));
  EXPECT_TRUE(found[0].is_latency && found[1].is_latency);
  EXPECT_EQ(found[0].name, "host3");
  EXPECT_EQ(found[1].name, "host5");
}

TEST(LinkFindings, AnAsymmetryWithinTheBoundOfSlowLinksIsNamed) {
  std::mt19937 draw(3);
  std::uniform_real_distribution<double> spread(0.9, 1.1);  // links differ, their two ways do not
  std::vector<double> of_pair(64);
  for (double& v : of_pair) v = usual_rate * spread(draw);
  const auto found = link_findings(rows(8, [&](int from, int to) {
    const double rate = of_pair[static_cast<std::size_t>(std::min(from, to) * 8 + std::max(from, to))];
    return Measured{.bytes_per_s = from == 7 && to == 0 ? 0.8 * rate : rate};
  }));
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(texts(found));
  EXPECT_TRUE(found[0].asymmetric);
  EXPECT_EQ(std::pair(found[0].from, found[0].to), std::pair(7, 0));
}

TEST(LinkFindings, LinksWithinANodeAreNotHeldAgainstThoseBetweenNodes) {
  const auto found = link_findings(rows(
      16,
      [](int from, int to) {
        if (from / 4 == to / 4) return Measured{.bytes_per_s = 20 * usual_rate, .latency_s = 1e-6};
        return Measured{};
      },
      4));
  EXPECT_THAT(texts(found), testing::IsEmpty());
}

TEST(LinkFindings, ALinkWhoseIntervalReachesTheUsualTimeIsNotNamed) {
  auto all = rows(8, [](int, int) { return Measured{}; });
  auto unsure = all[3].metrics[Metric::time_s].get<core::Summary>();
  unsure.ci95_low = 0.9 * unsure.median;
  unsure.ci95_high = unsure.median *= 2;
  all[3].metrics[Metric::time_s] = unsure;
  EXPECT_THAT(texts(link_findings(all)), testing::IsEmpty());
}

// All rows from one host failed: "no samples to summarise" ended the run.
TEST(LinkFindings, AHostWithoutRowsOneWayIsJudgedByTheOther) {
  const auto without = [](Factor end) {
    auto all = rows(5, [](int from, int to) {
      return Measured{.bytes_per_s = from == 3 || to == 3 ? usual_rate / 2 : usual_rate};
    });
    std::erase_if(all, [end](const core::Point& p) { return p.factors[end].get<std::int64_t>() == 3; });
    return all;
  };
  const auto receives = link_findings(without(Factor::from_rank)), sends = link_findings(without(Factor::to_rank));
  ASSERT_EQ(receives.size(), 1U) << testing::PrintToString(texts(receives));
  EXPECT_THAT(receives[0].text, HasSubstr("host3: receives at"));
  ASSERT_EQ(sends.size(), 1U) << testing::PrintToString(texts(sends));
  EXPECT_THAT(sends[0].text, HasSubstr("host3: sends at"));
  EXPECT_EQ(links_below(without(Factor::from_rank), 0.8).size(), 4U);
}

TEST(LinkFindings, ALinkWithoutAnIntervalIsNotNamed) {
  auto all = rows(
      8, [](int from, int to) { return Measured{.bytes_per_s = from == 2 && to == 5 ? usual_rate / 2 : usual_rate}; });
  for (auto& p : all) {
    auto time = p.metrics[Metric::time_s].get<core::Summary>();
    time.ci95_low = time.ci95_high = std::nan("");
    p.metrics[Metric::time_s] = time;
  }
  EXPECT_THAT(texts(link_findings(all)), testing::IsEmpty());
  EXPECT_THAT(links_below(all, 0.8), testing::ElementsAre(HasSubstr("56 links have no interval")))
      << "a bar that is not shown to be held is not held";
}

TEST(LinksBelow, NamesTheLinksUnderTheShareAndNoOthers) {
  const auto all = rows(4, [](int from, int to) {
    return Measured{.bytes_per_s = from == 0 && to == 3 ? 0.7 * usual_rate : usual_rate};
  });
  EXPECT_THAT(links_below(all, 0.8),
              testing::ElementsAre(HasSubstr("host0 (rank 0) > host3 (rank 3): bandwidth 0.70")));
  EXPECT_THAT(links_below(all, 0.6), testing::IsEmpty());
  // One of four hosts has half of all links; what is usual is the other hosts' all the same.
  const auto half = rows(4, [](int from, int to) {
    return Measured{.bytes_per_s = from == 2 || to == 2 ? 0.3 * usual_rate : usual_rate};
  });
  EXPECT_EQ(links_below(half, 0.5).size(), 6U);
}

// As findings, which name the ends, and crowded cores once for all links.
TEST(LinkFindings, AreFindingsOfTheFile) {
  const auto found = [](const Cluster& cluster, bool crowded = false) {
    core::Run run{.info = {}, .points = rows(6, cluster)};
    for (auto& p : run.points) p.metrics[Metric::oversubscribed] = crowded;
    return findings({&run, 1});
  };
  const auto link = found([](int from, int to) {
    return Measured{.bytes_per_s = from + to == 5 && from * to == 4 ? usual_rate / 2 : usual_rate};
  });
  ASSERT_EQ(link.front().kind, FindingKind::slow_link);
  EXPECT_EQ(link.front().figures.at("from_rank").value + link.front().figures.at("to_rank").value, 5);
  EXPECT_NEAR(link.front().severity, 0.5, 0.05);

  const auto host = found(
      [](int from, int to) { return Measured{.latency_s = from == 3 || to == 3 ? 3 * usual_latency : usual_latency}; });
  ASSERT_EQ(host.front().kind, FindingKind::slow_host);
  EXPECT_EQ(host.front().figures.at("from_rank").value, 3);

  // On a busy machine a host was 1.8 times as late as the others, and its broken link 66 times.
  const auto both = found([](int from, int to) {
    const bool broken = from + to == 5 && from * to == 6;
    return Measured{.latency_s = (broken ? 66 : from == 3 || to == 3 ? 1.8 : 1) * usual_latency};
  });
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].kind, FindingKind::slow_link);
  EXPECT_EQ(both[1].kind, FindingKind::slow_host);

  const auto usual = [](int, int) { return Measured{}; };
  EXPECT_EQ(found(usual).front().kind, FindingKind::nothing_wrong);
  const auto crowded = found(usual, true);
  EXPECT_THAT(crowded.front().sentence, HasSubstr("more busy threads than cores in 30 of 30 rows over all links"));
  EXPECT_EQ(std::ranges::count(crowded, FindingKind::shared_cores, &Finding::kind), 1);
}

}  // namespace
}  // namespace gradmeter::analysis
