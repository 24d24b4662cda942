// SPDX-License-Identifier: Apache-2.0
#include "core/machine.hpp"

#include <gtest/gtest.h>

namespace gradmeter::core {
namespace {

/// Two ranks a node; 1 B/s, 8 s until a message from another node arrives.
Machine two_a_node() {
  Machine m;
  m.ranks_per_node = 2;
  m.between_nodes.latency_s = 8;
  return m;
}

TEST(LinksInUse, ARankSendsOneMessageAtATime) {
  const Machine m = two_a_node();
  LinksInUse links(m, std::vector<double>(4, 1.0));
  EXPECT_EQ(links.send(0, 1, 5, 0).begin, 1);
  EXPECT_EQ(links.send(0, 2, 5, 0).begin, 6);
  EXPECT_EQ(links.send(1, 3, 5, 3).begin, 3) << "another rank has its own way out";
}

TEST(LinksInUse, WithoutPortsAndTrunkRanksOfANodeShareNothing) {
  const Machine m = two_a_node();
  LinksInUse links(m, std::vector<double>(4, 0.0));
  EXPECT_EQ(links.send(0, 2, 5, 100).begin, 100);
  EXPECT_EQ(links.send(1, 2, 5, 7).begin, 7) << "it was asked for later, but is ready earlier";
}

TEST(LinksInUse, APortTakesOneMessageAfterTheOtherBothWays) {
  Machine m = two_a_node();
  m.node_port.bytes_per_s = 0.5;
  LinksInUse out(m, std::vector<double>(6, 0.0)), in(m, std::vector<double>(6, 0.0));
  EXPECT_EQ(out.send(0, 2, 5, 0).occupied_s, 10) << "half the link's speed";
  EXPECT_EQ(out.send(1, 4, 5, 0).begin, 10);
  in.send(0, 4, 5, 0);
  EXPECT_EQ(in.send(2, 5, 5, 0).begin, 10);
}

TEST(LinksInUse, TheTrunkIsShared) {
  Machine m = two_a_node();
  m.trunk = Link{.latency_s = 2, .bandwidth = {{.bytes_per_s = 0.25}}};
  LinksInUse links(m, std::vector<double>(8, 0.0));
  EXPECT_EQ(links.send(0, 2, 5, 0).latency_s, 10);
  EXPECT_EQ(links.send(4, 6, 5, 0).begin, 20);
}

}  // namespace
}  // namespace gradmeter::core
