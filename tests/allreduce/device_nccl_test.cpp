// SPDX-License-Identifier: Apache-2.0
// The row nccl against the host's sums, on ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "allreduce/test_data.hpp"
#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "runtime/nccl/communicator.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/transport/network.hpp"
#include "support/collectives.hpp"
#include "support/gpu_ranks.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using runtime::Buffer;
using test::GpuRank;
using ::testing::HasSubstr;

constexpr std::size_t most_bytes = std::size_t{1} << 20;

/// The algorithm of this name, bound as commands bind it.
class Bound {
 public:
  Bound(const GpuRank& r, const std::string& name, CollectiveKind kind, Placement placement, std::uint32_t root)
      : network_(r.world, {.transport = runtime::TransportKind::automatic, .memory_bytes = std::size_t{1} << 20}),
        link_(network_.connect(r.world, 4)) {
    const ExchangeSpec options{.placement = placement, .max_bytes = most_bytes, .queue = &r.queue};
    collective_ = find_algorithm(name)->bind({r.world, network_, *link_}, options, kind, root);
  }
  Collective& operator*() const { return *collective_; }
  Collective* operator->() const { return collective_.get(); }

 private:
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> link_;
  std::unique_ptr<Collective> collective_;
};

void run_to_end(Collective& c) {
  runtime::Backoff backoff({.spins = 20, .yields = 0});
  while (!c.advance()) backoff.wait();
}

/// Two buffers of a GPU, and the call on them.
struct OnGpu {
  OnGpu(const GpuRank& r, core::Element e, std::size_t count)
      : queue(r.queue), in(r.device.allocate(e, count)), out(r.device.allocate(e, count)) {}
  std::span<std::byte> bytes(const Buffer& b) const { return {b.host(), b.bytes()}; }

  runtime::Queue& queue;
  runtime::OwnedBuffer in, out;
};

/// Empty: right on this rank.
std::string fault(const GpuRank& r, Collective& collective, const test::CollectiveCase& c) {
  const auto rank = static_cast<std::size_t>(r.world.rank());
  const OnGpu on(r, c.known.data.element, c.known.count);
  const bool in_place = c.placement == Placement::in_place;
  const Buffer in = on.in.buffer, out = in_place ? in : on.out.buffer;
  std::uint64_t before = 0, after = 0;
  CheckResult verdict;
  r.queue.submit("give", {}, [&] {
    write_input(c.known, rank, on.bytes(in));
    before = hash_of(on.bytes(in));
  });
  collective.start({.in = in, .out = out, .op = c.known.data.op});
  run_to_end(collective);
  // On another queue: `advance` has said that the result is there.
  const auto reader = r.device.make_queue();
  reader->run_and_wait([&] {
    verdict = check(c.known, rank, on.bytes(out));
    after = hash_of(on.bytes(in));
  });
  if (verdict.wrong > 0)
    return fmt::format("{}: {} wrong, the first at {}", describe(c), verdict.wrong, verdict.first_wrong);
  if (!in_place && before != after) return fmt::format("{}: the input was changed", describe(c));
  return {};
}

struct Kind {
  CollectiveKind kind;
  int ranks;
};
/// What no call reports fails the test.
class Reported {
 public:
  Reported() = default;
  ~Reported() {
#ifdef GRADMETER_CUDA_EMULATED
    EXPECT_THAT(cuda_emulator::take_reports(), ::testing::IsEmpty());
#endif
  }
  Reported(const Reported&) = delete;
  Reported& operator=(const Reported&) = delete;
};

class NcclRow : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (const auto why = test::lack_of_gpus(GetParam().ranks); !why.empty()) GTEST_SKIP() << why;
  }
};

std::vector<test::CollectiveCase> cases(Kind k, Placement placement, const std::vector<test::TypeAndOp>& types,
                                        const std::vector<std::size_t>& counts) {
  std::vector<test::CollectiveCase> out;
  for (const auto& [element, op] : types) {
    if (!reduces(k.kind) && op != Op::sum) continue;
    for (const Pattern pattern : {Pattern::exact, Pattern::random}) {
      if (pattern == Pattern::random && element != core::Element::f32) continue;
      for (const std::size_t n : counts) {
        const KnownData data{.pattern = pattern,
                             .element = element,
                             .op = op,
                             .ranks = static_cast<std::size_t>(k.ranks),
                             .seed = n + out.size()};
        const std::size_t root = static_cast<std::size_t>(k.ranks) - 1;
        out.push_back({{k.kind, data, n, k.kind == CollectiveKind::broadcast ? root : 0}, placement, false});
      }
    }
  }
  return out;
}

void expect_right(Kind k, const std::vector<test::TypeAndOp>& types, const std::vector<std::size_t>& counts) {
  test::run_gpu_ranks(k.ranks, [&](const GpuRank& r) {
    for (const Placement placement : {Placement::in_place, Placement::out_of_place}) {
      const std::uint32_t root = k.kind == CollectiveKind::broadcast ? static_cast<std::uint32_t>(k.ranks) - 1 : 0;
      const Bound bound(r, "nccl", k.kind, placement, root);
      for (const test::CollectiveCase& c : cases(k, placement, types, counts)) EXPECT_EQ(fault(r, *bound, c), "");
    }
  });
}

TEST_P(NcclRow, HasTheHostsResults) {
  const auto ranks = static_cast<std::size_t>(GetParam().ranks);
  const std::vector<test::TypeAndOp> types{{core::Element::f32, Op::sum},
                                           {core::Element::f32, Op::average},
                                           {core::Element::bf16, Op::average},
                                           {core::Element::f16, Op::sum}};
  test::each_device_seed<5>([&] { expect_right(GetParam(), types, test::odd_counts(GetParam().kind, ranks)); });
}

class NcclTypes : public NcclRow {};
TEST_P(NcclTypes, AreThoseOfTheHost) {
  const Reported reported;
  const auto ranks = static_cast<std::size_t>(GetParam().ranks);
  expect_right(GetParam(), test::types_and_ops(),
               {0, 129 * ranks, GetParam().kind == CollectiveKind::all_to_all ? ranks : 131});
}

std::vector<Kind> kinds(std::initializer_list<int> counts) {
  std::vector<Kind> out;
  for (const CollectiveKind kind : test::all_goals) {
    for (const int ranks : counts) out.push_back({kind, ranks});
  }
  return out;
}
std::string kind_name(const ::testing::TestParamInfo<Kind>& p) {
  return test::test_name(fmt::format("{}_p{}", name(p.param.kind), p.param.ranks));
}
INSTANTIATE_TEST_SUITE_P(Kinds, NcclRow, ::testing::ValuesIn(kinds({1, 2, 3, 4})), kind_name);
INSTANTIATE_TEST_SUITE_P(Kinds, NcclTypes, ::testing::ValuesIn(kinds({1, 3})), kind_name);

/// What a call on one rank ends with.
/// Buffers of NCCL's own memory, which it was told of: the same results, and each call finds both registered.
class RegisteredBuffers : public ::testing::Test {
 protected:
  struct Registered {
    Registered(const GpuRank& r, std::size_t count) : host(2 * count * sizeof(float)) {
      const std::span<std::byte> all(host);
      in = runtime::allocate_registrable_beside(r.device, core::Element::f32, all.first(all.size() / 2));
      out = runtime::allocate_registrable_beside(r.device, core::Element::f32, all.last(all.size() / 2));
    }
    std::vector<std::byte> host;
    runtime::OwnedBuffer in, out;
  };
  static std::uint64_t registered_calls() {
#ifdef GRADMETER_CUDA_EMULATED
    return cuda_emulator::counts().registered;
#else
    return 0;
#endif
  }
};

TEST_F(RegisteredBuffers, HaveTheHostsResults) {
  if (!runtime::nccl_registration_refusal().empty()) GTEST_SKIP() << runtime::nccl_registration_refusal();
  constexpr std::size_t count = 4 * 257;
  for (const int ranks : {1, 2, 3, 4}) {
    if (const auto why = test::lack_of_gpus(ranks); !why.empty()) GTEST_SKIP() << why;
    [[maybe_unused]] const std::uint64_t before = registered_calls();
    test::each_device_seed([&] {
      test::run_gpu_ranks(ranks, [&](const GpuRank& r) {
        const Registered memory(r, count);
        const auto rank = static_cast<std::size_t>(r.world.rank());
        const Bound bound(r, "nccl", CollectiveKind::all_reduce, Placement::out_of_place, 0);
        bound->register_buffers(std::array{memory.in.buffer, memory.out.buffer});
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          const KnownCollective known{.collective_kind = CollectiveKind::all_reduce,
                                      .data = {.pattern = Pattern::exact,
                                               .element = core::Element::f32,
                                               .op = Op::sum,
                                               .ranks = static_cast<std::size_t>(ranks),
                                               .seed = seed},
                                      .count = count,
                                      .root = 0};
          const Buffer in = memory.in.buffer, out = memory.out.buffer;
          r.queue.submit("give", {}, [&] { write_input(known, rank, {in.host(), in.bytes()}); });
          bound->start({.in = in, .out = out, .op = Op::sum});
          run_to_end(*bound);
          CheckResult verdict;
          r.queue.run_and_wait([&] { verdict = check(known, rank, {out.host(), out.bytes()}); });
          EXPECT_EQ(verdict.wrong, 0u) << "rank " << rank << " of " << ranks << ", seed " << seed;
        }
        r.world.barrier();
      });
    });
#ifdef GRADMETER_CUDA_EMULATED
    EXPECT_GE(registered_calls() - before, static_cast<std::uint64_t>(3 * ranks));
#endif
  }
}

TEST_F(RegisteredBuffers, AreKnownToNcclAlone) {
  if (!runtime::nccl_registration_refusal().empty()) GTEST_SKIP() << runtime::nccl_registration_refusal();
  const std::uint64_t before = registered_calls();
  test::run_gpu_ranks(1, [&](const GpuRank& r) {
    const Registered memory(r, 100);
    const std::array both{memory.in.buffer, memory.out.buffer};
    const Bound other(r, "gpu-direct", CollectiveKind::all_reduce, Placement::out_of_place, 0);
    EXPECT_THROW(other->register_buffers(both), core::BackendError);
    const Bound untold(r, "nccl", CollectiveKind::all_reduce, Placement::out_of_place, 0);
    untold->start({.in = both[0], .out = both[1], .op = Op::sum});
    run_to_end(*untold);
  });
  EXPECT_EQ(registered_calls(), before);
}

TEST(NcclErrors, MemoryOfTheHostIsRefused) {
  test::run_gpu_ranks(1, [](const GpuRank& r) {
    const Bound bound(r, "nccl", CollectiveKind::all_reduce, Placement::in_place, 0);
    std::vector<float> v(4);
    EXPECT_TRUE(bound->takes_device_memory());
    EXPECT_THAT(test::error_of([&] { bound->start({v, v}); }), HasSubstr("memory of the host"));
    runtime::Network network(r.world, {.transport = runtime::TransportKind::automatic, .memory_bytes = 4096});
    const auto link = network.connect(r.world, 4);
    const auto bind = [&] { (void)find_algorithm("nccl")->bind({r.world, network, *link}, {}); };
    EXPECT_THAT(test::error_of(bind), HasSubstr("--device cuda"));
  });
}

TEST(NcclErrors, AllToAllNeedsEqualBlocks) {
  if (const auto why = test::lack_of_gpus(2); !why.empty()) GTEST_SKIP() << why;
  test::run_gpu_ranks(2, [](const GpuRank& r) {
    const Bound bound(r, "nccl", CollectiveKind::all_to_all, Placement::out_of_place, 0);
    const OnGpu on(r, core::Element::f32, 5);
    EXPECT_THAT(test::error_of([&] {
                  bound->start({on.in.buffer, on.out.buffer});
                }),
                HasSubstr("no multiple of 2 ranks"));
  });
}

std::string late_peer_error(int ranks, int late) {
  const Reported reported;
  std::string error;
  try {
    test::run_gpu_ranks(ranks, [&](const GpuRank& r) {
      const OnGpu on(r, core::Element::f32, 100);  // outlives a call that is given up
      NcclCollective c("nccl", r.world, {.algorithm = {}, .protocol = {}, .timeout = core::Seconds{0.4}},
                       CollectiveKind::all_reduce, 0, r.queue);
      if (r.world.rank() != late) c.start({on.in.buffer, on.out.buffer});
      r.world.barrier();
      if (r.world.rank() == late) return std::this_thread::sleep_for(std::chrono::seconds(1));
      EXPECT_EQ(c.waiting().peer, late);
      const std::string mine = test::error_of([&] { run_to_end(c); });
      if (r.world.rank() == 0) error = mine;
      EXPECT_THAT(test::error_of([&] { c.start({on.in.buffer, on.out.buffer}); }), HasSubstr("last call was complete"));
    });
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  return error;
}

TEST(NcclErrors, APeerThatDoesNotComeIsNamed) {
  if (const auto why = test::lack_of_gpus(3); !why.empty()) GTEST_SKIP() << why;
  const std::string error = late_peer_error(3, 2);
  EXPECT_THAT(error, HasSubstr("ncclAllReduce"));
  EXPECT_THAT(error, HasSubstr("rank 0 of 3"));
  EXPECT_THAT(error, HasSubstr("without this call so far: rank 2"));
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(NcclErrors, ARankThatEndsByAnErrorEndsTheOthers) {
  if (const auto why = test::lack_of_gpus(2); !why.empty()) GTEST_SKIP() << why;
  const Reported reported;
  const auto run = [] {
    test::run_gpu_ranks(2, [](const GpuRank& r) {
      const OnGpu on(r, core::Element::f32, 100);  // outlives a call that is given up
      const Bound bound(r, "nccl", CollectiveKind::all_reduce, Placement::out_of_place, 0);
      r.world.barrier();
      if (r.world.rank() == 1) throw core::BackendError("a test", "a call", "it fails");
      bound->start({on.in.buffer, on.out.buffer});
      run_to_end(*bound);
    });
  };
  EXPECT_THAT(test::error_of(run), HasSubstr("it fails"));
}

/// What follows NCCL's call in the stream uses memory that goes with the collective.
TEST(NcclErrors, ACallUnderWayCanBeGivenUp) {
  if (const auto why = test::lack_of_gpus(2); !why.empty()) GTEST_SKIP() << why;
  for (const int polls : {0, 1, 2, 3}) {
    test::each_device_seed([&] {
      test::run_gpu_ranks(2, [&](const GpuRank& r) {
        const OnGpu on(r, core::Element::f32, 30'000);
        const Bound bound(r, "nccl", CollectiveKind::send_receive, Placement::in_place, 0);
        bound->start({on.in.buffer, on.in.buffer});
        for (int i = 0; i < polls; ++i) (void)bound->advance();
      });
    });
  }
}

TEST(NcclNames, ForceAlgorithmsAndProtocols) {
  EXPECT_EQ(find_algorithm("nccl")->name, "nccl:algorithm=any,protocol=any");
  const auto forced = find_algorithm("nccl:algorithm=ring,protocol=ll");
  EXPECT_EQ(forced->name, "nccl:algorithm=ring,protocol=ll");
  for (const auto kind : test::all_goals) {
    const bool messages = kind == CollectiveKind::all_to_all || kind == CollectiveKind::send_receive;
    EXPECT_EQ(forced->refusal({2, 2}, kind).empty(), !messages) << name(kind);
    EXPECT_EQ(find_algorithm("nccl:algorithm=tree")->refusal({2, 2}, kind).empty(), kind == CollectiveKind::all_reduce);
    EXPECT_TRUE(find_algorithm("nccl")->refusal({2, 2}, kind).empty());
  }
  EXPECT_THAT(test::error_of([] { find_algorithm("nccl:algorithm=bush"); }), HasSubstr("tree"));
  EXPECT_THAT(test::error_of([] { find_algorithm("nccl:protocol=ll256"); }), HasSubstr("ll128"));
}

/// Before 2.24 NCCL left its ring beside the algorithm that was forced, but for all-reduces.
TEST(NcclNames, AreRefusedWhereAnOldNcclMayTakeItsRingInstead) {
  using enum CollectiveKind;
  for (const char* algorithm : {"nvls", "collnetdirect", "pat"}) {
    for (const auto kind : {reduce_scatter, all_gather}) {
      EXPECT_THAT(ring_instead_refusal(algorithm, kind, 22304), HasSubstr("by ring although")) << algorithm;
      EXPECT_THAT(ring_instead_refusal(algorithm, kind, std::nullopt), HasSubstr("unknown version")) << algorithm;
      EXPECT_EQ(ring_instead_refusal(algorithm, kind, 22403), "") << algorithm;
    }
  }
  EXPECT_EQ(ring_instead_refusal("ring", all_gather, 21805), "");
  EXPECT_EQ(ring_instead_refusal("nvls", all_reduce, 21805), "");
}

#ifdef GRADMETER_CUDA_EMULATED
/// NCCL reads them when communicators are made; what was there before comes back.
TEST(NcclNames, AreInTheEnvironmentWhileCommunicatorsAreMade) {
  setenv("NCCL_PROTO", "^ll128", 1);
  test::run_gpu_ranks(3, [](const GpuRank& r) {
    for (int i = 0; i < 5; ++i) {  // whichever rank is the last
      const Bound another(r, "nccl:algorithm=tree,protocol=ll", CollectiveKind::all_reduce, Placement::out_of_place, 0);
      EXPECT_EQ(cuda_emulator::nccl_environment(r.world.rank()), "tree ll");
    }
    const Bound bound(r, "nccl:algorithm=ring,protocol=ll", CollectiveKind::all_reduce, Placement::out_of_place, 0);
    EXPECT_EQ(cuda_emulator::nccl_environment(r.world.rank()), "ring ll");
    const Bound other(r, "nccl", CollectiveKind::all_reduce, Placement::out_of_place, 0);
    EXPECT_EQ(cuda_emulator::nccl_environment(r.world.rank()), " ^ll128");
    const OnGpu on(r, core::Element::f32, 7);
    bound->start({on.in.buffer, on.out.buffer});
    run_to_end(*bound);
  });
  EXPECT_EQ(std::getenv("NCCL_ALGO"), nullptr);
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "^ll128");
  unsetenv("NCCL_PROTO");
}

TEST(NcclErrors, AnAsynchronousErrorEndsTheCall) {
  const Reported reported;
  std::string error;
  const auto run = [&] {
    test::run_gpu_ranks(2, [&](const GpuRank& r) {
      const OnGpu on(r, core::Element::f32, 100);  // outlives a call that is given up
      const Bound bound(r, "nccl", CollectiveKind::all_reduce, Placement::out_of_place, 0);
      r.world.barrier();
      if (r.world.rank() == 0) cuda_emulator::fail_nccl(0);
      r.world.barrier();
      bound->start({on.in.buffer, on.out.buffer});
      if (r.world.rank() == 0) error = test::error_of([&] { run_to_end(*bound); });
      r.world.barrier();
      if (r.world.rank() == 1) throw core::UsageError("the peer is gone");
    });
  };
  EXPECT_THAT(test::error_of(run), HasSubstr("the peer is gone"));
  cuda_emulator::fail_nccl(-1);
  EXPECT_THAT(error, HasSubstr("ncclAllReduce"));
  EXPECT_THAT(error, HasSubstr("remote process exited"));
}
#endif

}  // namespace
}  // namespace gradmeter::allreduce
