// SPDX-License-Identifier: Apache-2.0
// Our schedules on GPUs' memory over an MPI that takes it, against the host's over the same MPI: equal bits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mpi/ranks.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/mpi/session.hpp"
#include "support/cuda_aware_mpi.hpp"
#include "support/gpu_and_host.hpp"

namespace gradmeter::allreduce {
namespace {

struct Course {
  const char* schedule;
  CollectiveKind kind;
};

std::vector<std::string> faults_of(const test::GpuRank& r, const Course& course, Placement placement) {
  const auto p = static_cast<std::uint32_t>(r.world.size());
  if (!find_algorithm(course.schedule)->refusal({p, p}, course.kind).empty()) return {};
  test::GpuAndHost pair(r, {.on_gpus = course.schedule,
                            .on_host = course.schedule,
                            .kind = course.kind,
                            .placement = placement,
                            .max_bytes = std::size_t{128} << 10,
                            .message_bytes = 512,
                            .transport = runtime::TransportKind::cuda_mpi});
  std::vector<std::string> faults;
  const std::size_t whole = course.kind == CollectiveKind::all_to_all ? p : 1;
  for (const std::size_t n : {std::size_t{0}, whole, 2011 * whole}) {
    const auto op = reduces(course.kind) ? Op::average : Op::sum;
    const auto fault = pair.fault(test::random_case(course.kind, p, placement, 0, {core::Element::f32, op}, n));
    if (!fault.empty()) faults.push_back(fault);
  }
  return faults;
}

TEST(CudaMpi, SchedulesHaveTheBitsOfTheHost) {
  using enum CollectiveKind;
  const auto world = runtime::MpiSession::world();
  const auto before = test::device_messages();
  test::each_device_seed([&] {
    runtime::CudaDevice device(0);
    const auto queue = device.make_queue();
    const test::GpuRank r{world, device, *queue};
    for (const Course& course :
         {Course{"ring", all_reduce}, Course{"direct", all_reduce}, Course{"recursive-doubling", all_reduce},
          Course{"double-tree", all_reduce}, Course{"ring", reduce_scatter}, Course{"direct", broadcast},
          Course{"pairwise", all_to_all}, Course{"neighbour", send_receive}}) {
      for (const auto placement : {Placement::in_place, Placement::out_of_place})
        EXPECT_EQ(faults_of(r, course, placement), std::vector<std::string>{}) << course.schedule;
    }
  });
  const auto after = test::device_messages();
  EXPECT_EQ(after.sent > before.sent, world.size() > 1);
  EXPECT_EQ(after.received > before.received, world.size() > 1);
}

TEST(CudaMpi, IsWhatTheLibrarySaysOfItself) {
  EXPECT_EQ(runtime::cuda_aware_mpi(), runtime::CudaAwareMpi::yes);
  EXPECT_EQ(runtime::transport_refusal(runtime::TransportKind::cuda_mpi, runtime::RanksAs::processes, "cuda"), "");
  EXPECT_NE(runtime::transport_refusal(runtime::TransportKind::cuda_mpi, runtime::RanksAs::processes, "cpu"), "");
  EXPECT_NE(runtime::transport_refusal(runtime::TransportKind::cuda_mpi, runtime::RanksAs::threads, "cuda"), "");
}

}  // namespace
}  // namespace gradmeter::allreduce
