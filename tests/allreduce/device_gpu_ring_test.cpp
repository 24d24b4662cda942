// SPDX-License-Identifier: Apache-2.0
// Collectives round the ring of GPUs that read their neighbour's memory: with the bits of the schedule `ring` on the
// host, on ranks as threads. Over processes: tests/cli/device_test.py.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/gpu_and_host.hpp"

namespace gradmeter::allreduce {
namespace {

using test::GpuRank;

constexpr std::size_t longest_ring_buffer = std::size_t{256} << 10;

struct RingCourse {
  CollectiveKind kind;
  int ranks;
};

/// What the host moves the same data by, in one slice.
std::string hosts(CollectiveKind kind) {
  if (kind == CollectiveKind::broadcast) return "binomial-tree";
  return kind == CollectiveKind::send_receive ? "neighbour" : "ring";
}

class GpuRing : public ::testing::TestWithParam<RingCourse> {
 protected:
  void SetUp() override {
    if (GetParam().ranks > test::most_gpu_ranks()) GTEST_SKIP() << "fewer GPUs than ranks";
  }
  /// One binding after another: calls use slots and numbers of barriers in turn.
  static void expect_right(const std::vector<test::TypeAndOp>& types, const std::vector<std::size_t>& counts) {
    const auto [kind, ranks] = GetParam();
    const std::uint32_t root = kind == CollectiveKind::broadcast ? static_cast<std::uint32_t>(ranks) - 1 : 0;
    test::run_gpu_ranks(ranks, [&](const GpuRank& r) {
      for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
        test::GpuAndHost pair(r, {.on_gpus = "gpu-ring",
                                  .on_host = hosts(kind),
                                  .kind = kind,
                                  .placement = placement,
                                  .root = root,
                                  .max_bytes = longest_ring_buffer,
                                  .message_bytes = longest_ring_buffer});
        for (const auto& type : types)
          for (const std::size_t n : counts)
            EXPECT_EQ(pair.fault(test::random_case(kind, static_cast<std::size_t>(ranks), placement, root, type, n)),
                      "");
      }
    });
  }
};

// Fewer elements than ranks, blocks that begin within 16 bytes, and slices for several blocks of threads.
TEST_P(GpuRing, HasTheBitsOfTheHost) {
  const auto p = static_cast<std::size_t>(GetParam().ranks);
  test::each_device_seed([&] {
    expect_right({{core::Element::f32, reduces(GetParam().kind) ? Op::average : Op::sum}},
                 {0, 1, p + 1, 7 * p, 12'289});
  });
}

TEST_P(GpuRing, HasEveryType) {
  std::vector<test::TypeAndOp> types{{core::Element::bf16, Op::sum}, {core::Element::f64, Op::sum}};
  if (reduces(GetParam().kind)) {
    using core::Element;
    types = {{Element::f64, Op::max}, {Element::f16, Op::average}, {Element::bf16, Op::sum}, {Element::i8, Op::product},
             {Element::i64, Op::min}, {Element::e4m3, Op::sum},    {Element::i32, Op::sum},  {Element::e5m2, Op::max}};
  }
  test::each_device_seed([&] { expect_right(types, {129}); });
}

std::vector<RingCourse> ring_courses() {
  std::vector<RingCourse> out;
  using enum CollectiveKind;
  for (const CollectiveKind kind : {all_reduce, reduce_scatter, all_gather, broadcast, send_receive})
    for (const int ranks : {1, 2, 3, 4}) out.push_back({kind, ranks});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Kinds, GpuRing, ::testing::ValuesIn(ring_courses()), [](const auto& p) {
  return test::test_name(fmt::format("{}_p{}", name(p.param.kind), p.param.ranks));
});

TEST(GpuRingNames, RefuseAllToAllAndOtherNodes) {
  const auto ring = find_algorithm("gpu-ring");
  EXPECT_NE(ring->refusal({4, 4}, CollectiveKind::all_to_all), "");
  EXPECT_EQ(ring->refusal({4, 2}), "gpu-ring needs all ranks on one node");
  EXPECT_NE(ring->refusal({65, 65}), "");
  EXPECT_EQ(ring->refusal({4, 4}), "");
}

}  // namespace
}  // namespace gradmeter::allreduce
