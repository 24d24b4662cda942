// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/slices.hpp"
#include "allreduce/vendor/vendor.hpp"
#include "core/element.hpp"
#include "core/error.hpp"
#include "mpi/ranks.hpp"
#include "runtime/gloo_adapter.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/transport/network.hpp"

namespace {
int plain_calls = 0, vector_calls = 0;
}  // namespace

// Who calls these calls them here.
extern "C" int MPI_Allgather(const void* in, int n, MPI_Datatype t, void* out, int m, MPI_Datatype u, MPI_Comm c) {
  ++plain_calls;
  return PMPI_Allgather(in, n, t, out, m, u, c);
}
extern "C" int MPI_Allgatherv(const void* in, int n, MPI_Datatype t, void* out, const int counts[], const int begins[],
                              MPI_Datatype u, MPI_Comm c) {
  ++vector_calls;
  return PMPI_Allgatherv(in, n, t, out, counts, begins, u, c);
}
extern "C" int MPI_Reduce_scatter_block(const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
  ++plain_calls;
  return PMPI_Reduce_scatter_block(in, out, n, t, op, c);
}
extern "C" int MPI_Reduce_scatter(const void* in, void* out, const int counts[], MPI_Datatype t, MPI_Op op,
                                  MPI_Comm c) {
  ++vector_calls;
  return PMPI_Reduce_scatter(in, out, counts, t, op, c);
}

namespace gradmeter::allreduce {
namespace {

using runtime::Communicator;

std::vector<std::string> vendors() {
  std::vector<std::string> names;
  for (const auto& a : algorithms()) {
    if (a.name == "nccl") continue;  // of GPUs' memory: tests/allreduce/device_nccl_test.cpp
    const bool built = a.name != "gloo" || runtime::gloo_refusal().empty();
    if (a.backend == Backend::vendor && built && a.refusal != mpi_vector_refusal) names.emplace_back(a.name);
  }
  names.emplace_back("ompi-segmented-ring:segment=64");
  if (runtime::gloo_refusal().empty()) names.emplace_back("gloo:algorithm=bcube");
  return names;
}

constexpr std::array goals{CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                           CollectiveKind::broadcast,  CollectiveKind::all_to_all,     CollectiveKind::send_receive};

/// Small whole numbers: any order of additions gives their exact sum.
int value_of(int rank, std::size_t i) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3) % 11) + rank;
}

class EveryNative : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Collective> bind(CollectiveKind collective_kind, Placement placement, std::uint32_t root = 0) {
    return algorithm_->bind({world_, network_, *link_}, {placement, std::size_t{1} << 22, 0}, collective_kind, root);
  }
  bool has(CollectiveKind collective_kind) const {
    return algorithm_->refusal(shape_of(network_.nodes_of(world_)), collective_kind).empty();
  }

  /// What `rank` must hold at i; nothing where the goal leaves it open.
  std::optional<int> expected(CollectiveKind collective_kind, int rank, std::size_t i, std::size_t n,
                              std::uint32_t root) const {
    const auto p = static_cast<std::uint32_t>(size_);
    std::uint32_t block = 0;
    while (block_begin(n, p, block + 1) <= i) ++block;
    int sum = 0;
    for (int r = 0; r < size_; ++r) sum += value_of(r, i);
    const std::size_t length = n / p;
    switch (collective_kind) {
      case CollectiveKind::all_reduce:
        return sum;
      case CollectiveKind::reduce_scatter:
        return block == static_cast<std::uint32_t>(rank) ? std::optional(sum) : std::nullopt;
      case CollectiveKind::all_gather:
        return value_of(static_cast<int>(block), i);
      case CollectiveKind::broadcast:
        return value_of(static_cast<int>(root), i);
      case CollectiveKind::all_to_all:
        return value_of(static_cast<int>(i / length), static_cast<std::size_t>(rank) * length + i % length);
      case CollectiveKind::send_receive:
        return value_of((rank + size_ - 1) % size_, i);
    }
    return std::nullopt;
  }

  template <class T>
  void run(Collective& c, CollectiveKind collective_kind, Placement placement, std::size_t n, std::uint32_t root,
           core::Element element) {
    std::vector<T> in(n), out(n, T{99});
    for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<T>(value_of(rank_, i));
    if (placement == Placement::in_place) out = in;
    EXPECT_EQ(core::element_of<T>, element);
    c.start({placement == Placement::in_place ? out : in, out});
    while (!c.advance()) {
    }
    int wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto want = expected(collective_kind, rank_, i, n, root);
      wrong += want && out[i] != static_cast<T>(*want);
      if (placement == Placement::out_of_place) wrong += in[i] != static_cast<T>(value_of(rank_, i));
    }
    EXPECT_EQ(wrong, 0) << c.name() << " " << allreduce::name(collective_kind) << " n " << n << " in place "
                        << (placement == Placement::in_place) << " " << core::info(element).name;
  }

  const Communicator world_ = runtime::MpiSession::world();
  const int rank_ = world_.rank(), size_ = world_.size();
  runtime::Network network_{world_, {.transport = runtime::TransportKind::mpi, .memory_bytes = 1 << 20}};
  std::unique_ptr<runtime::Transport> link_ = network_.connect(world_, 1);
  const AlgorithmPtr algorithm_ = find_algorithm(GetParam());
};

TEST_P(EveryNative, GivesTheExactAnswerForEveryGoalPlacementAndCount) {
  const auto p = static_cast<std::size_t>(size_);
  EXPECT_TRUE(has(CollectiveKind::all_reduce)) << algorithm_->refusal({std::uint32_t(size_), 1});
  for (const CollectiveKind collective_kind : goals) {
    if (!has(collective_kind)) continue;
    for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
      for (std::uint32_t root = 0; root < (collective_kind == CollectiveKind::broadcast ? p : 1); ++root) {
        const auto c = bind(collective_kind, placement, root);
        EXPECT_EQ(c->name(), algorithm_->name);
        EXPECT_FALSE(c->sent() || c->bytes_required());
        for (std::size_t n : {std::size_t{0}, std::size_t{1}, p - 1, p + 1, std::size_t{1001}, std::size_t{40'003}}) {
          if (collective_kind == CollectiveKind::all_to_all) n -= n % p;
          run<float>(*c, collective_kind, placement, n, root, core::Element::f32);
          run<std::int64_t>(*c, collective_kind, placement, n, root, core::Element::i64);
        }
      }
    }
  }
}

TEST_P(EveryNative, ReducesSmallFloatsOrRefusesThem) {
  const auto c = bind(CollectiveKind::all_reduce, Placement::in_place);
  constexpr std::size_t n = 1001;
  for (const core::Element e : {core::Element::f16, core::Element::bf16, core::Element::e4m3, core::Element::e5m2}) {
    std::vector<float> wide(n, static_cast<float>(rank_ % 2));  // sums of at most 2: exact in every type
    std::vector<std::byte> v(n * core::size_of(e));
    narrow(e, v.data(), wide.data(), n);
    const runtime::Buffer buffer(e, v);
    const bool is_gloo = algorithm_->info().name == "gloo";
    if (is_gloo && !runtime::gloo_has(e)) {
      EXPECT_THROW(c->start({buffer, buffer}), core::BackendError);
      continue;
    }
    c->start({buffer, buffer});
    while (!c->advance()) {
    }
    widen(e, wide.data(), v.data(), n);
    const auto right = static_cast<float>(size_ / 2);
    EXPECT_EQ(std::count(wide.begin(), wide.end(), right), std::ptrdiff_t{n}) << c->name() << " " << core::info(e).name;
  }
}

TEST_P(EveryNative, AveragesAndTakesExtremes) {
  for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
    const auto c = bind(CollectiveKind::all_reduce, placement);
    for (const Op op : {Op::average, Op::min, Op::max, Op::product}) {
      std::vector<double> in(33), out(33);
      double right = op == Op::product ? 1 : op == Op::average ? 0 : op == Op::min ? 1 : size_;
      for (int r = 1; r <= size_; ++r) {
        if (op == Op::product) right *= r;
        if (op == Op::average) right += double(r) / size_;
      }
      std::fill(in.begin(), in.end(), rank_ + 1);
      c->start({in, placement == Placement::in_place ? in : out, op});
      while (!c->advance()) {
      }
      for (double x : placement == Placement::in_place ? in : out) {
        EXPECT_NEAR(x, right, 1e-12) << c->name() << " " << name(op);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryNative, ::testing::ValuesIn(vendors()), [](const auto& param) {
  std::string n = param.param;
  std::replace_if(
      n.begin(), n.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return n;
});

/// The bits of a sum whose order of additions shows.
std::uint64_t sum_bits(const Communicator& c, std::size_t n) {
  std::vector<float> v(n);
  test::fill(v, c.rank());
  auto* bytes = reinterpret_cast<std::byte*>(v.data());
  runtime::mpi_all_reduce(c, {bytes, bytes, n}, runtime::Reduction(core::Element::f32, runtime::Combine::sum), nullptr);
  return test::hash_of(std::as_bytes(std::span(v)));
}

TEST(ForcedAlgorithms, AddInAnotherOrderThanTheOthersAndLeaveTheOriginalAlone) {
  const Communicator world = runtime::MpiSession::world();
  constexpr std::size_t n = 30'011;
  const std::uint64_t before = sum_bits(world, n);
  const auto linear = runtime::duplicate_forced(world, runtime::ForcedAllReduce::basic_linear, 0);
  const auto doubling = runtime::duplicate_forced(world, runtime::ForcedAllReduce::recursive_doubling, 0);
  const auto ring = runtime::duplicate_forced(world, runtime::ForcedAllReduce::ring, 0);
  const auto after = world.duplicate();
  EXPECT_EQ(sum_bits(world, n), before);
  EXPECT_EQ(sum_bits(after, n), before) << "the variables were not put back";
  const std::array<std::uint64_t, 3> bits{sum_bits(linear, n), sum_bits(doubling, n), sum_bits(ring, n)};
  if (world.size() < 4) return;  // with three ranks some of the orders are the same
  EXPECT_NE(bits[0], bits[1]);
  EXPECT_NE(bits[0], bits[2]);
  EXPECT_NE(bits[1], bits[2]);
}

TEST(ForcedAlgorithms, RefuseSegmentsThatOpenMpiWouldDivideByAsZero) {
  const Communicator world = runtime::MpiSession::world();
  EXPECT_THROW(runtime::duplicate_forced(world, runtime::ForcedAllReduce::segmented_ring, 0), core::UsageError);
  EXPECT_THROW(runtime::duplicate_forced(world, runtime::ForcedAllReduce::ring, 4096), core::UsageError);
  for (const char* wrong : {"0", "7", "2G"}) {
    EXPECT_THROW(find_algorithm(std::string("ompi-segmented-ring:segment=") + wrong)->refusal({4, 4}), core::UsageError)
        << wrong;
  }
  // 1 GiB by four ranks wraps to 0 in an int.
  EXPECT_THROW(find_algorithm("ompi-segmented-ring:segment=1G")->refusal({4, 4}), core::UsageError);
  EXPECT_EQ(find_algorithm("ompi-segmented-ring:segment=1M")->refusal({4, 4}), "");
  EXPECT_EQ(find_algorithm("ompi-segmented-ring")->name, "ompi-segmented-ring:segment=1M");
}

class EveryBlocked : public EveryNative {};

TEST_P(EveryBlocked, TakesThePlainCallForEqualBlocksAndIsRightForAll) {
  const auto p = static_cast<std::size_t>(size_);
  for (const CollectiveKind collective_kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
    ASSERT_TRUE(has(collective_kind));
    for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
      const auto c = bind(collective_kind, placement);
      for (const std::size_t n : {p, 100 * p, 100 * p + 1, std::size_t{0}, p - 1}) {
        plain_calls = vector_calls = 0;
        run<float>(*c, collective_kind, placement, n, 0, core::Element::f32);
        if (algorithm_->name == "mpi-nonblocking") continue;
        const bool plain = n % p == 0 && algorithm_->name == "mpi";
        EXPECT_EQ(plain_calls, plain ? 1 : 0) << n;
        EXPECT_EQ(vector_calls, plain ? 0 : 1) << n;
      }
    }
  }
  EXPECT_EQ(has(CollectiveKind::all_reduce), algorithm_->name != "mpi-v");
}

INSTANTIATE_TEST_SUITE_P(Vendors, EveryBlocked, ::testing::Values("mpi", "mpi-v", "mpi-nonblocking"));

TEST(Vendors, SayWhoStandsBehindThem) {
  EXPECT_EQ(library_of(find_algorithm("mpi")->info()), "");
  if (runtime::gloo_refusal().empty()) {
    EXPECT_EQ(library_of(find_algorithm("gloo")->info()).rfind("gloo ", 0), 0u);
  }
}

TEST(MpiCollective, RefusesUnequalBlocksAndCountsThatDoNotFit) {
  const Communicator world = runtime::MpiSession::world();
  float value = 0;
  const std::span<float> one(&value, 1), many(&value, std::size_t{1} << 31);
  MpiCollective all_to_all("mpi", world.duplicate(), MpiMode::blocking, CollectiveKind::all_to_all);
  if (world.size() > 1) {
    EXPECT_THROW(all_to_all.start({one, one}), core::BackendError);
  }
  MpiCollective gather("mpi", world.duplicate(), MpiMode::blocking, CollectiveKind::all_gather);
  EXPECT_THROW(gather.start({many, many}), core::BackendError);
}

TEST(Auto, HandsEachSizeToItsAlgorithmOverRealRanks) {
  const Communicator world = runtime::MpiSession::world();
  for (const auto kind : {runtime::TransportKind::shm, runtime::TransportKind::mpi}) {
    runtime::Network network(world, {.transport = kind, .memory_bytes = std::size_t{16} << 20});
    const auto link = network.connect(world, 2);
    for (const char* name : {"auto", "0-4K:recursive-doubling,4K-:ring", "0-4K:mpi,4K-64K:ring,64K-:mpi-nonblocking"}) {
      const auto start = network.arena().mark();
      const auto v = network.arena().take_of<float>(100'003);
      const auto c = find_algorithm(name)->bind({world, network, *link}, {Placement::in_place, v.size_bytes(), 0});
      for (const std::size_t n :
           {std::size_t{1}, std::size_t{1023}, std::size_t{1024}, std::size_t{20'000}, v.size()}) {
        const auto part = v.first(n);
        for (std::size_t i = 0; i < n; ++i) part[i] = static_cast<float>(value_of(world.rank(), i));
        c->start({part, part});
        while (!c->advance()) {
        }
        int wrong = 0;
        for (std::size_t i = 0; i < n; ++i) {
          int sum = 0;
          for (int r = 0; r < world.size(); ++r) sum += value_of(r, i);
          wrong += part[i] != static_cast<float>(sum);
        }
        EXPECT_EQ(wrong, 0) << c->name() << " n " << n;
      }
      network.arena().rewind(start);
    }
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
