// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "dataparallel/mesh.hpp"

namespace gradmeter::dataparallel {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "no refusal";
}

TEST(MeshShape, TextsThatMeanTheSameAreWrittenInOneWay) {
  const std::map<std::string, std::string> texts{{"data", "data"},
                                                 {"data=1", "data"},
                                                 {"data=8", "data=8"},
                                                 {"tensor=2,data=4", "data=4,tensor=2"},
                                                 {"tensor=1,pipeline=2,schedule=1f1b", "pipeline=2"},
                                                 {"data,pipeline=3,schedule=gpipe", "pipeline=3,schedule=gpipe"}};
  for (const auto& [given, canonical] : texts) {
    EXPECT_EQ(parse_mesh(given).text(), canonical);
    EXPECT_EQ(parse_mesh(canonical).text(), canonical);
  }
}

TEST(MeshShape, WhatIsNoMeshIsRefused) {
  EXPECT_THAT(refusal([] { (void)parse_mesh(""); }), HasSubstr("no axis"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor"); }), HasSubstr("no axis with its ranks"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=0"); }), HasSubstr("an axis has 1 to"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2x"); }), HasSubstr("an axis has 1 to"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2,tensor=2"); }), HasSubstr("twice"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensors=2"); }), HasSubstr("did you mean"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2,"); }), HasSubstr("comma"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2,schedule=gpipe"); }), HasSubstr("no pipeline"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("pipeline=2,schedule=zb"); }), HasSubstr("1f1b, gpipe"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=4").complete(6); }), HasSubstr("multiple of 4"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("data=2,tensor=4").complete(4); }), HasSubstr("made of 8 ranks"));
}

TEST(MeshShape, TheDataAxisTakesWhatIsLeft) {
  EXPECT_EQ(parse_mesh("tensor=2,pipeline=2").complete(12).text(), "data=3,tensor=2,pipeline=2");
  EXPECT_EQ(parse_mesh("data").complete(5).text(), "data=5");
}

TEST(MeshShape, EveryRankHasOnePlaceAndTensorRanksAreNeighbours) {
  const MeshShape s = parse_mesh("data=2,tensor=3,pipeline=2").complete(12);
  std::set<std::tuple<int, int, int>> places;
  for (int r = 0; r < 12; ++r) {
    EXPECT_EQ(s.rank(s.place(r)), r);
    places.insert({s.place(r).data, s.place(r).stage, s.place(r).tensor});
  }
  EXPECT_EQ(places.size(), 12u);
  EXPECT_EQ(s.place(1), (MeshPlace{.data = 0, .stage = 0, .tensor = 1}));
  EXPECT_EQ(s.place(3), (MeshPlace{.data = 0, .stage = 1, .tensor = 0}));
  EXPECT_EQ(s.place(6), (MeshPlace{.data = 1, .stage = 0, .tensor = 0}));
}

TEST(Mesh, GroupsRunAlongTheAxes) {
  SimWorld(12, {}).run([](Fabric& f) {
    const Mesh mesh(f, parse_mesh("tensor=3,pipeline=2"));
    const MeshPlace p = mesh.place();
    EXPECT_EQ(f.size(mesh.data()), 2);
    EXPECT_EQ(f.rank(mesh.data()), p.data);
    EXPECT_EQ(f.size(mesh.tensor()), 3);
    EXPECT_EQ(f.rank(mesh.tensor()), p.tensor);
    EXPECT_EQ(f.size(mesh.pipeline()), 2);
    EXPECT_EQ(f.rank(mesh.pipeline()), p.stage);
    // The sum of all places along an axis: only its own members are in it.
    std::vector<float> v{static_cast<float>(f.rank())};
    f.wait(f.all_reduce(mesh.data(), std::span<float>(v), allreduce::Op::sum));
    EXPECT_EQ(v[0], static_cast<float>(2 * (f.rank() % 6) + 6));
  });
  EXPECT_EQ(Mesh::groups(parse_mesh("tensor=3,pipeline=2")), 3);
  EXPECT_EQ(Mesh::groups(parse_mesh("data")), 0);
}

}  // namespace
}  // namespace gradmeter::dataparallel
