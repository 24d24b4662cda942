// SPDX-License-Identifier: Apache-2.0
// NCCL's adapter, and that the emulated NCCL finds mistakes: each test makes one, and has the right way beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/nccl/communicator.hpp"
#include "support/gpu_ranks.hpp"
#include "support/on_device.hpp"

#ifdef GRADMETER_CUDA_EMULATED
#include <nccl.h>
#endif

namespace gradmeter::runtime {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t n = 9000;  // more than two pieces of the emulated NCCL

std::vector<float> numbers(int rank) {
  std::vector<float> out(n);
  std::iota(out.begin(), out.end(), static_cast<float>(1000 * rank));
  return out;
}
std::vector<float> sums(int ranks) {
  std::vector<float> out(n);
  for (int r = 0; r < ranks; ++r) {
    const auto summand = numbers(r);
    for (std::size_t i = 0; i < n; ++i) out[i] += summand[i];
  }
  return out;
}

std::byte* address(DeviceBuffer<float>& b) { return reinterpret_cast<std::byte*>(b.span().device_address()); }

/// Streams of the thread, not of a queue: what a caller of the adapter may do wrong shows.
std::vector<float> all_reduced(const test::GpuRank& r) {
  const Stream stream, reader;
  const CudaEvent done;
  auto values = test::on_device<float>(numbers(r.world.rank()), stream);
  NcclCommunicator nccl(r.world, {});
  nccl.issue("ncclAllReduce", stream.get(), [&](const NcclCalls& calls) {
    calls.all_reduce(address(values), address(values), n, core::Element::f32, Combine::sum);
  });
  done.record(stream);
  reader.wait(done);
  const auto out = test::read_back<float>(values.span(), reader);
  stream.synchronize();
  nccl.note_completion();
  return out;
}

TEST(Nccl, SumsInAStream) {
  for (const int ranks : {1, 2, 3, 4}) {
    if (const auto why = test::lack_of_gpus(ranks); !why.empty()) GTEST_SKIP() << why;
    test::each_device_seed<5>(
        [&] { test::run_gpu_ranks(ranks, [&](const test::GpuRank& r) { EXPECT_EQ(all_reduced(r), sums(ranks)); }); });
  }
}

/// Rows are of NCCL as it comes: what this program set later than a run's environment is read, no row would record.
TEST(Nccl, LeavesItsSettingsAsTheyAre) {
  const auto settings = [] {
    std::vector<std::string> found;
    for (char** at = environ; *at; ++at) {
      if (std::string_view(*at).starts_with("NCCL_")) found.emplace_back(*at);
    }
    return found;
  };
  const auto before = settings();
  test::run_gpu_ranks(1, [](const test::GpuRank& r) { EXPECT_EQ(all_reduced(r), sums(1)); });
  EXPECT_EQ(settings(), before);
}

TEST(Nccl, RanksThatShareAGpuAreRefused) {
  std::vector<std::string> errors(3);
  run_thread_ranks(3, [&](const Communicator& world) {
    CudaDevice device(0);
    errors[static_cast<std::size_t>(world.rank())] = test::error_of([&] { const NcclCommunicator c(world, {}); });
  });
  EXPECT_THAT(errors[0], HasSubstr("NCCL: ranks 0 and 1 share the GPU "));
  EXPECT_THAT(errors, ::testing::Each(errors[0]));
}

TEST(Nccl, NamesItsVersion) {
  EXPECT_EQ(nccl_refusal(), "");
  EXPECT_THAT(nccl_library(), ::testing::MatchesRegex("NCCL 2\\.[0-9]+\\.[0-9]+"));
}

/// A graph that is destroyed at the end of the scope.
struct Graph {
  ~Graph() {
    cudaGraphExecDestroy(launchable);
    cudaGraphDestroy(captured);
  }
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t launchable = nullptr;
};
void begin_capture(const Stream& s) {
  check_cuda(cudaStreamBeginCapture(s.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}
void end_capture(const Stream& s, Graph& g) {
  check_cuda(cudaStreamEndCapture(s.get(), &g.captured), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&g.launchable, g.captured, 0), "cudaGraphInstantiate");
}
void issue_all_reduce(NcclCommunicator& nccl, const Stream& stream, DeviceBuffer<float>& in, DeviceBuffer<float>& out) {
  nccl.issue("ncclAllReduce", stream.get(), [&](const NcclCalls& calls) {
    calls.all_reduce(address(in), address(out), n, core::Element::f32, Combine::sum);
  });
}

TEST(Nccl, ACapturedCallTakesTheDataOfEachLaunch) {
  for (const int ranks : {1, 2, 3, 4}) {
    if (ranks > test::most_graph_ranks()) GTEST_SKIP() << "graphs of several GPUs in one process may block each other";
    test::each_device_seed<5>([&] {
      test::run_gpu_ranks(ranks, [&](const test::GpuRank& r) {
        const Stream stream;
        DeviceBuffer<float> in(n), out(n);
        NcclCommunicator nccl(r.world, {});
        Graph graph;
        begin_capture(stream);
        issue_all_reduce(nccl, stream, in, out);
        end_capture(stream, graph);
        nccl.note_completion();
        for (int launch = 0; launch < 3; ++launch) {
          const auto values = numbers(r.world.rank() + launch);
          copy<float>(in.span(), values, stream);
          nccl.begin("ncclAllReduce");
          check_cuda(cudaGraphLaunch(graph.launchable, stream.get()), "cudaGraphLaunch");
          auto wanted = sums(ranks);
          for (float& w : wanted) w += static_cast<float>(1000 * launch * ranks);
          EXPECT_EQ(test::read_back<float>(out.span(), stream), wanted) << "launch " << launch;
          nccl.note_completion();
        }
        r.world.barrier();
      });
    });
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::BackendError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Nccl, APeerThatDoesNotComeToTheMeetingIsAnError) {
  if (const auto why = test::lack_of_gpus(2); !why.empty()) GTEST_SKIP() << why;
  std::string error;
  const auto run = [&] {
    test::run_gpu_ranks(2, [&](const test::GpuRank& r) {
      // The other rank takes part in all that the ranks agree on, but not in NCCL's own meeting.
      if (r.world.rank() == 1) {
        const auto node = r.world.split_by_node();
        (void)node.all_gather_value(1);
        const auto counts = node.member().share(page_bytes);
        node.barrier();
        (void)CudaDevice::shared_gpu(r.world, r.device.number());
        std::vector<std::byte> id(128);
        r.world.broadcast(std::span(id));
        r.world.barrier();
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        return;
      }
      error = error_of([&] { const NcclCommunicator c(r.world, {.timeout = core::Seconds{0.2}}); });
    });
  };
  run();
  EXPECT_THAT(error, HasSubstr("ncclCommInitRankConfig"));
  EXPECT_THAT(error, HasSubstr("rank 0 of 2: not done after"));
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

/// Each by a thread of its own, in a stream of its own.
TEST(Nccl, CommunicatorsOfOneGpuLaunchOneAtATime) {
#ifdef GRADMETER_CUDA_EMULATED
  cuda_emulator::set_nccl_launch_time(0.002);
#endif
  test::run_gpu_ranks(1, [](const test::GpuRank& r) {
    NcclCommunicator first(r.world, {}), second(r.world, {});
    const auto issue_some = [&](NcclCommunicator& nccl) {
      r.device.select();
      const Stream stream;
      DeviceBuffer<float> in(n), out(n);
      for (int i = 0; i < 10; ++i) {
        issue_all_reduce(nccl, stream, in, out);
        stream.synchronize();
        nccl.note_completion();
      }
    };
    std::thread other([&] { issue_some(second); });
    issue_some(first);
    other.join();
  });
#ifdef GRADMETER_CUDA_EMULATED
  cuda_emulator::set_nccl_launch_time(0);
  EXPECT_THAT(cuda_emulator::take_reports(), IsEmpty());
#endif
}

/// NCCL connects ranks at their first collective, and ncclGroupEnd waits for them: the rank's thread cannot look at a
/// clock then. A graph that holds calls of the communicator goes before its abort ends.
class NcclWatchdog : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::most_gpu_ranks() < 2) GTEST_SKIP() << "fewer GPUs than ranks";
#ifdef GRADMETER_CUDA_EMULATED
    cuda_emulator::set_nccl_connects(true);
#endif
  }
  void TearDown() override {
#ifdef GRADMETER_CUDA_EMULATED
    cuda_emulator::set_nccl_connects(false);
    EXPECT_THAT(cuda_emulator::take_reports(), IsEmpty());
#endif
  }
};

TEST_F(NcclWatchdog, EndsACallThatWaitsForAPeerThatDoesNotCome) {
  std::string error, later;
  test::run_gpu_ranks(2, [&](const test::GpuRank& r) {
    const Stream stream;
    DeviceBuffer<float> in(n), out(n);
    NcclCommunicator nccl(r.world, {.timeout = core::Seconds{0.3}});
    if (r.world.rank() == 0) {
      error = error_of([&] {
        issue_all_reduce(nccl, stream, in, out);
        while (cudaStreamQuery(stream.get()) == cudaErrorNotReady) nccl.check();
      });
      later = error_of([&] { nccl.begin("ncclAllReduce"); });
    }
    r.world.barrier();
  });
  EXPECT_THAT(error, HasSubstr("ncclAllReduce"));
  EXPECT_THAT(error, HasSubstr("rank 0 of 2: not done after"));
  EXPECT_THAT(error, HasSubstr("without this call so far: rank 1"));
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_THAT(later, HasSubstr("aborted by an earlier error"));
}

TEST_F(NcclWatchdog, EndsACallWhenAnotherRankFails) {
  const auto run = [] {
    test::run_gpu_ranks(2, [](const test::GpuRank& r) {
      const Stream stream;
      DeviceBuffer<float> in(n), out(n);
      NcclCommunicator nccl(r.world, {});
      r.world.barrier();
      if (r.world.rank() == 1) throw core::BackendError("a test", "a call", "it fails");
      issue_all_reduce(nccl, stream, in, out);
    });
  };
  EXPECT_THAT(error_of(run), HasSubstr("it fails"));
}

#ifdef GRADMETER_CUDA_EMULATED
TEST_F(NcclWatchdog, WaitsForNoGraph) {
  std::string error;
  test::run_gpu_ranks(2, [&](const test::GpuRank& r) {
    const Stream stream;
    DeviceBuffer<float> in(n), out(n);
    cuda_emulator::set_nccl_connects(false);
    NcclCommunicator nccl(r.world, {.timeout = core::Seconds{0.3}});
    auto graph = std::make_unique<Graph>();
    begin_capture(stream);
    issue_all_reduce(nccl, stream, in, out);
    end_capture(stream, *graph);
    nccl.note_completion();
    nccl.on_abort([&] { graph = nullptr; });
    r.world.barrier();
    cuda_emulator::set_nccl_connects(true);
    if (r.world.rank() == 0) error = error_of([&] { issue_all_reduce(nccl, stream, in, out); });
    r.world.barrier();
    graph = nullptr;
    nccl.on_abort(nullptr);
  });
  EXPECT_THAT(error, HasSubstr("without this call so far: rank 1"));
}
#endif

#ifdef GRADMETER_CUDA_EMULATED
/// As NCCL, which makes no row of it.
TEST(EmulatedNccl, RefusesTwoRanksOnOneDevice) {
  run_thread_ranks(2, [&](const Communicator& world) {
    ncclUniqueId id{};
    const ncclResult_t made = world.rank() == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    EXPECT_EQ(made, ncclSuccess);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, world.broadcast_value(id), world.rank()), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("Duplicate GPU detected : rank "));
    world.barrier();
  });
  EXPECT_THAT(cuda_emulator::take_reports(), IsEmpty());
}

TEST(EmulatedNccl, ReportsACommunicatorThatDoesNotBlock) {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_THAT(cuda_emulator::take_reports(), Contains(HasSubstr("makes and joins a thread for each group of calls")));
}

/// Two threads without a turn, each with a communicator of its own.
TEST(EmulatedNccl, ReportsThreadsThatLaunchAtOnce) {
  cuda_emulator::set_nccl_launch_time(0.02);
  const auto call_some = [] {
    const Stream stream;
    DeviceBuffer<float> values(n);
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
    float* const at = values.span().device_address();
    for (int i = 0; i < 10; ++i) (void)ncclAllReduce(at, at, n, ncclFloat32, ncclSum, comm, stream.get());
    stream.synchronize();
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  };
  std::thread other(call_some);
  call_some();
  other.join();
  cuda_emulator::set_nccl_launch_time(0);
  EXPECT_THAT(cuda_emulator::take_reports(), Contains(HasSubstr("host threads racing to launch")));
}

/// Ends with the errors of the ranks; what was reported is returned.
std::vector<std::string> reports_of(int ranks,
                                    const std::function<void(const test::GpuRank&, NcclCommunicator&)>& body) {
  cuda_emulator::set_seed(0);
  cuda_emulator::set_patience(0.5);
  EXPECT_NE(error_of([&] {
              test::run_gpu_ranks(ranks, [&](const test::GpuRank& r) {
                NcclCommunicator nccl(r.world, {.timeout = core::Seconds{60}});  // longer than the emulator's
                body(r, nccl);
              });
            }),
            "");
  cuda_emulator::set_patience(10);
  return cuda_emulator::take_reports();
}

/// Rank 0's call is as given, the others' is an all-reduce of n numbers.
using Mistake = std::function<void(const NcclCalls&, std::byte*)>;
std::vector<std::string> reports_of_call(const Mistake& mistake) {
  return reports_of(2, [&](const test::GpuRank& r, NcclCommunicator& nccl) {
    const Stream stream;
    DeviceBuffer<float> values(n);
    std::byte* const at = address(values);
    nccl.issue("a call", stream.get(), [&](const NcclCalls& calls) {
      if (r.world.rank() == 0) return mistake(calls, at);
      calls.all_reduce(at, at, n, core::Element::f32, Combine::sum);
    });
    const std::string error = error_of([&] {
      while (cudaStreamQuery(stream.get()) == cudaErrorNotReady) nccl.check();
      nccl.note_completion();
    });
    EXPECT_NE(error, "no error");
    nccl.abort();
    EXPECT_NE(cudaStreamSynchronize(stream.get()), cudaErrorInvalidValue);
  });
}

TEST(EmulatedNccl, ReportsRanksWhoseCallsDiffer) {
  const auto expect = [](const Mistake& m) {
    // Either rank may be the one that finds it.
    EXPECT_THAT(reports_of_call(m),
                Contains(AnyOf(HasSubstr("meets ncclAllReduce of 9000 of type 7, operation 0"),
                               HasSubstr("of 9000 elements of type 7, operation 0, root 0 meets"))));
  };
  expect([](const NcclCalls& c, std::byte* at) { c.all_reduce(at, at, n - 1, core::Element::f32, Combine::sum); });
  expect([](const NcclCalls& c, std::byte* at) { c.all_reduce(at, at, n, core::Element::i32, Combine::sum); });
  expect([](const NcclCalls& c, std::byte* at) { c.all_reduce(at, at, n, core::Element::f32, Combine::max); });
  expect([](const NcclCalls& c, std::byte* at) { c.broadcast(at, at, n, core::Element::f32, 1); });
}

TEST(EmulatedNccl, RefusesMemoryThatIsTooShortOrOverlaps) {
  const auto expect = [](const char* text, const Mistake& m) {
    const auto reports = reports_of(1, [&](const test::GpuRank&, NcclCommunicator& nccl) {
      const Stream stream;
      DeviceBuffer<float> values(n);
      nccl.issue("a call", stream.get(), [&](const NcclCalls& calls) { m(calls, address(values)); });
    });
    EXPECT_THAT(reports, Contains(HasSubstr(text)));
  };
  expect("too little",
         [](const NcclCalls& c, std::byte* at) { c.all_reduce(at, at, n + 1, core::Element::f32, Combine::sum); });
  std::vector<float> host(n);
  expect("not the device's", [&](const NcclCalls& c, std::byte* at) {
    c.all_reduce(reinterpret_cast<std::byte*>(host.data()), at, n, core::Element::f32, Combine::sum);
  });
  expect("overlap",
         [](const NcclCalls& c, std::byte* at) { c.all_reduce(at, at + 4, n - 1, core::Element::f32, Combine::sum); });
  expect("no such rank", [](const NcclCalls& c, std::byte* at) { c.send(at, n, core::Element::f32, 1); });
}

/// Both send first: NCCL hangs unless both are in one group.
TEST(EmulatedNccl, SendsThatAreNotGroupedWithTheirReceivesHang) {
  const auto exchange = [](bool grouped) {
    return reports_of(2, [grouped](const test::GpuRank& r, NcclCommunicator& nccl) {
      const Stream stream;
      const int peer = 1 - r.world.rank();
      auto from = test::on_device<float>(numbers(r.world.rank()), stream);
      DeviceBuffer<float> to(n);
      nccl.issue("ncclSend", stream.get(), [&](const NcclCalls& c) {
        c.send(address(from), n, core::Element::f32, peer);
        if (grouped) c.receive(address(to), n, core::Element::f32, peer);
      });
      const cudaError_t e = cudaStreamSynchronize(stream.get());
      EXPECT_EQ(e, grouped ? cudaSuccess : cudaErrorLaunchTimeout);
      if (!grouped) return;
      nccl.note_completion();
      EXPECT_EQ(test::read_back<float>(to.span(), stream), numbers(peer));
    });
  };
  EXPECT_THAT(exchange(true), IsEmpty());
  EXPECT_THAT(exchange(false), Contains(HasSubstr("hang: ncclSend")));
}

TEST(EmulatedNccl, ReportsACommunicatorThatEndsBeforeTheGraphOfItsCalls) {
  for (const bool aborts : {false, true}) {
    const auto reports = reports_of(1, [aborts](const test::GpuRank& r, NcclCommunicator& nccl) {
      const Stream stream;
      DeviceBuffer<float> in(n), out(n);
      Graph graph;
      {
        NcclCommunicator early(r.world, {});
        begin_capture(stream);
        issue_all_reduce(aborts ? nccl : early, stream, in, out);
        end_capture(stream, graph);
        (aborts ? nccl : early).note_completion();
        if (aborts) nccl.abort();
      }
      check_cuda(cudaGraphLaunch(graph.launchable, stream.get()), "cudaGraphLaunch");
      stream.synchronize();
      throw core::BackendError("a test", "a call", "it is over");
    });
    EXPECT_THAT(reports, Contains(HasSubstr("waits for a graph that holds its calls"))) << aborts;
    EXPECT_EQ(std::ranges::any_of(reports, [](const auto& t) { return t.find("that has ended") != t.npos; }), aborts);
  }
}

#endif

}  // namespace
}  // namespace gradmeter::runtime
