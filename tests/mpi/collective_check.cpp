// SPDX-License-Identifier: Apache-2.0
// Every algorithm × collective × type × operation × placement × odd length, on real ranks, over each transport that
// they can have: shared memory, MPI, and both at once with one host playing several nodes. Every type on three ranks
// over shared memory, which is how values are added; elsewhere one of each size, since only their way is another.
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <map>

#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/transport/network.hpp"
#include "runtime/transport/peer_memory.hpp"
#include "support/collectives.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using runtime::TransportKind;
using test::CollectiveCase;

constexpr std::size_t message = 4096;  // bytes: several slices of the longest buffer
constexpr std::size_t longest = std::size_t{1} << 20;

class Place {
 public:
  explicit Place(TransportKind kind)
      : network_(world_, {.transport = kind,
                          .memory_bytes = std::size_t{48} << 20,
                          .fake_nodes = kind == TransportKind::hybrid ? test::pairs_on_nodes(world_.size())
                                                                      : std::vector<int>{}}),
        link_(network_.connect(world_, most_lanes(world_.size()))),
        memory_(network_.arena().take(2 * longest)),
        mark_(network_.arena().mark()) {}

  std::string refusal(const AlgorithmChoice& a, CollectiveKind collective_kind) const {
    if (a.info().backend == Backend::shared && network_.transport() != TransportKind::shm) return "not shared";
    return a.refusal(shape_of(network_.nodes_of(world_)), collective_kind);
  }

  /// What was wrong on any rank, the first few. memory: of the buffers.
  std::vector<std::string> run(const AlgorithmChoice& a, CollectiveKind collective_kind,
                               const std::vector<CollectiveCase>& cases, std::span<std::byte> memory) {
    network_.arena().rewind(mark_);
    std::map<Placement, std::unique_ptr<Collective>> bound;
    for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
      bound[placement] = a.bind({world_, network_, *link_},
                                {.placement = placement,
                                 .max_bytes = longest,
                                 .message_bytes = message,
                                 .private_buffers = memory.data() != memory_.data()},
                                collective_kind, 0);
    }
    std::vector<std::string> faults;
    const RankShape shape = shape_of(network_.nodes_of(world_));
    for (const auto& c : cases) {
      if (!a.refusal(shape, collective_kind, {.element = c.known.data.element, .op = c.known.data.op}).empty())
        continue;
      const auto o = run_known(*bound[c.placement], c, static_cast<std::size_t>(world_.rank()), memory, spin_policy_);
      if (!o.fault.empty()) faults.push_back(o.fault);
      const bool must_be_same = same_on_all_ranks(collective_kind) && !a.is_vendor();
      if (!world_.all(!must_be_same || world_.broadcast_value(o.hash) == o.hash))
        faults.push_back("other bits: " + describe(c));
    }
    return faults;
  }

  std::span<std::byte> memory() const { return memory_; }

 private:
  runtime::Communicator world_ = runtime::MpiSession::world();
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> link_;
  std::span<std::byte> memory_;
  runtime::Arena::Mark mark_;
  runtime::SpinPolicy spin_policy_ = test::spin_policy_of(world_, 1);
};

std::vector<CollectiveCase> cases_for(CollectiveKind collective_kind, TransportKind kind) {
  const auto ranks = static_cast<std::size_t>(runtime::MpiSession::world().size());
  const bool reduces =
      collective_kind == CollectiveKind::all_reduce || collective_kind == CollectiveKind::reduce_scatter;
  const std::vector<std::size_t> counts = collective_kind == CollectiveKind::all_to_all
                                              ? std::vector<std::size_t>{ranks, 1003 * ranks}
                                              : std::vector<std::size_t>{0, 1, ranks - 1, ranks + 1, 5003};
  std::vector<CollectiveCase> out;
  const bool every_type = ranks == 3 && kind == TransportKind::shm;
  for (const auto& [element, op] : every_type ? test::types_and_ops() : test::few_types_and_ops()) {
    if (!reduces && op != Op::sum) continue;
    for (const std::size_t count : counts) {
      for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
        const auto pattern = count > 1000 ? Pattern::random : Pattern::exact;
        out.push_back({.known = {.collective_kind = collective_kind,
                                 .data = {.pattern = pattern, .element = element, .op = op, .ranks = ranks},
                                 .count = count},
                       .placement = placement});
      }
    }
  }
  return out;
}

/// Names that stand for more than one course are tried with other parameters too.
std::vector<std::string> all_algorithms() {
  std::vector<std::string> names = test::scheduled_algorithms();
  for (const auto& a : algorithms()) {
    if (a.backend != Backend::schedule) names.emplace_back(a.name);
  }
  names.emplace_back("0-1K:recursive-doubling,1K-:ring");
  return names;
}

class CollectiveContract : public ::testing::TestWithParam<std::tuple<TransportKind, std::string>> {
 protected:
  static void TearDownTestSuite() { places.clear(); }  // while MPI is up
  /// Windows are dear: one place a transport.
  static Place& place(TransportKind kind) {
    auto& p = places[kind];
    if (!p) p = std::make_unique<Place>(kind);
    return *p;
  }

 private:
  static inline std::map<TransportKind, std::unique_ptr<Place>> places;
};

TEST_P(CollectiveContract, EveryCombinationIsRightOnEveryRank) {
  const auto& [kind, algorithm_name] = GetParam();
  Place& here = place(kind);
  const auto algorithm = find_algorithm(algorithm_name);
  for (const CollectiveKind collective_kind : test::all_goals) {
    if (!here.refusal(*algorithm, collective_kind).empty()) continue;
    const auto faults = here.run(*algorithm, collective_kind, cases_for(collective_kind, kind), here.memory());
    EXPECT_TRUE(faults.empty()) << faults.size() << " faults; " << faults.front();
  }
}

/// Peers cannot map this memory: it is copied by the kernel, or through the arena. Several pieces and chunks of each.
TEST(PrivateMemory, IsSummedWhereRanksShareANode) {
  Place here(TransportKind::shm);
  std::vector<std::byte> memory(2 * longest);
  const auto ranks = static_cast<std::size_t>(runtime::MpiSession::world().size());
  std::vector<CollectiveCase> cases;
  for (const auto& [element, op] : test::types_and_ops()) {
    const std::size_t width = core::size_of(element);
    for (const std::size_t count : {std::size_t{9000}, longest / width - 1}) {
      for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
        cases.push_back({.known = {.data = {.pattern = Pattern::random, .element = element, .op = op, .ranks = ranks},
                                   .count = count},
                         .placement = placement});
      }
    }
  }
  // Where one rank can read the next one, all reach all: else the calls below would silently take the way by the arena.
  const runtime::Communicator world = runtime::MpiSession::world();
  std::uint64_t mine = 1000 + static_cast<std::uint64_t>(world.rank()), seen = 0;
  const auto processes = world.all_gather_value(::getpid());
  const auto addresses = world.all_gather_value(&mine);
  const auto next = static_cast<std::size_t>((world.rank() + 1) % world.size());
  const iovec to{&seen, sizeof(seen)}, from{addresses[next], sizeof(seen)};
  const bool reads = ::process_vm_readv(processes[next], &to, 1, &from, 1, 0) == ssize_t{sizeof(seen)};
  world.barrier();  // `mine` is read until here
  EXPECT_EQ(runtime::reach_peer_memory(world).size(), world.all(reads) ? ranks : 0u);
  if (reads) {
    EXPECT_EQ(seen, 1000 + next);
  }
  for (const char* const name : {"shm-direct", "auto"}) {
    const auto faults = here.run(*find_algorithm(name), CollectiveKind::all_reduce, cases, memory);
    EXPECT_TRUE(faults.empty()) << name << ": " << faults.size() << " faults; " << faults.front();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, CollectiveContract,
    ::testing::Combine(::testing::Values(TransportKind::shm, TransportKind::mpi, TransportKind::hybrid),
                       ::testing::ValuesIn(all_algorithms())),
    [](const auto& param) {
      return test::test_name(fmt::format("{}_{}", runtime::name(std::get<0>(param.param)), std::get<1>(param.param)));
    });

}  // namespace
}  // namespace gradmeter::allreduce
