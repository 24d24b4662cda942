// SPDX-License-Identifier: Apache-2.0
// Nothing hangs: many short runs of every strategy on real ranks, each rank and each program beside a worker delayed at
// random around its computations, so that messages meet in ever other orders. A run that does not end within its time
// is named, with what this rank waits for.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "core/random.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "support/served.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr int runs = 5, steps = 20;
constexpr unsigned timeout_s = 120;  // of one run, which takes tens of milliseconds where nothing else runs

/// Sleeps around computations: mostly for as long as a message takes, now and then for as long as several steps.
template <class Base>
class DelayingComputations : public Base {
 public:
  DelayingComputations(auto& inner, std::uint64_t seed, std::uint64_t program) : Base(inner), random_(seed, program) {}
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    delay();
    Base::submit(label, cost, work);
    delay();
  }

 private:
  void delay() {
    constexpr double often = 0.3, seldom = 0.01, long_us = 2000, short_us = 300;
    const double lot = random_.uniform(draws_++), length = random_.uniform(draws_++);
    if (lot >= often + seldom) return;
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(lot < seldom ? long_us : short_us * length));
  }
  core::Random random_;
  std::uint64_t draws_ = 0;
};

class Delaying final : public DelayingComputations<ForwardingFabric> {
 public:
  Delaying(Fabric& inner, std::uint64_t seed, std::uint64_t program)
      : DelayingComputations(inner, seed, program), seed_(seed), program_(program) {}
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram program) override {
    return inner_.launch([seed = seed_, beside = program_ + 1, program = std::move(program)](ExecutionContext& c) {
      DelayingComputations<ForwardingContext<ExecutionContext>> delaying(c, seed, beside);
      program(delaying);
    });
  }

 private:
  std::uint64_t seed_, program_;
};

/// What is said when the time of a run is over: its name, prepared, since a signal's handler may do little.
char watched_name[160];
int watched_rank = -1;
std::atomic<const runtime::Activity*> watched_activity{nullptr};

void out_of_time(int) {
  (void)!::write(STDERR_FILENO, watched_name, std::strlen(watched_name));
  // Not safe in a handler, but the process ends here in any case.
  if (const auto* a = watched_activity.load()) {
    const std::string doing = runtime::describe(watched_rank, a->doing()) + "\n";
    (void)!::write(STDERR_FILENO, doing.data(), doing.size());
  }
  ::sleep(2);  // so that the others speak as well
  ::_exit(3);
}

/// One run: as long as it lives, its end is waited for.
class Watched {
 public:
  Watched(const std::string& name, int run, int rank, const runtime::Activity& activity) {
    std::snprintf(watched_name, sizeof watched_name, "rank %d: %s hangs in run %d: ", rank, name.c_str(), run);
    watched_rank = rank;
    watched_activity = &activity;
    ::signal(SIGALRM, out_of_time);
    ::alarm(timeout_s);
  }
  ~Watched() {
    ::alarm(0);
    watched_activity = nullptr;
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

struct Plan {
  const char* strategy;
  int servers = 0;
};

using Endured = std::tuple<TransportKind, Plan>;
class Endurance : public ::testing::TestWithParam<Endured> {};

/// Now and then a model of which one server needs two chunks.
bool is_large(int run) { return run % 10 == 3; }
std::size_t served_elements(int run) { return is_large(run) ? 270'001 : 4'001; }

/// Workers with servers, each with a number of steps of its own.
void run_served(Fabric& fabric, const Plan& plan, int run) {
  const bool judges = run % 5 == 4;  // together, so all make equally many steps
  const test::Served served{.strategy = plan.strategy,
                            .servers = plan.servers,
                            .steps = [&](int rank) { return judges ? steps / 4 : steps - (rank * 3 + run) % 7; },
                            .elements = served_elements(run),
                            .targets = is_large(run) ? test::Served::Targets::zero : test::Served::Targets::moving,
                            .judge = judges};
  test::Seen seen;
  test::serve(fabric, served, seen);
  for (const float w : seen.weights) ASSERT_TRUE(std::isfinite(w));
}

void run_collective(Fabric& fabric, const Plan& plan, int run) {
  const auto end = test::run_worker(fabric, {.strategy = plan.strategy, .steps = steps, .judge_often = run % 5 == 4});
  for (const float w : end.weights) ASSERT_TRUE(std::isfinite(w));
}

TEST_P(Endurance, NoRunHangs) {
  const auto& [transport, plan] = GetParam();
  const auto world = runtime::MpiSession::world();
  if (plan.servers >= world.size()) return;
  const auto choice = find_strategy(plan.strategy);
  const bool is_asynchronous = uses_ports(choice->info().communication);
  const std::string strategy_name = fmt::format("{} with {} servers", plan.strategy, plan.servers);
  for (int run = 0; run < runs; ++run) {
    runtime::Activity activity;
    const Watched watched(strategy_name, run, world.rank(), activity);
    const auto strategy = (plan.servers > 0 ? choice->with_servers(plan.servers) : choice)->make({});
    const test::Quadratic model(is_asynchronous ? served_elements(run)
                                                : 20'000);  // as large as the one that is trained, or larger
    const std::size_t bytes = model.element_count() * sizeof(float) + 4096;
    RankFabric fabric(world,
                      {.exchange = {.max_bytes = bytes, .algorithm = allreduce::find_algorithm("ring")},
                       .transport = transport,
                       .progress = is_asynchronous || run % 2 == 0 ? ProgressMode::thread : ProgressMode::on_wait,
                       .spin_policy = {.spins = 20, .yields = 10},  // as in training with more threads than cores
                       .memory_bytes = 3 * bytes + strategy->fabric_bytes(model, world.size()),
                       .uses_reduce_scatter = true},
                      activity);
    const auto rank = static_cast<std::uint64_t>(world.rank());
    Delaying delaying(fabric, static_cast<std::uint64_t>(run), 2 * rank);
    is_asynchronous ? run_served(delaying, plan, run) : run_collective(delaying, plan, run);
  }
}

constexpr Plan plans[] = {{"sync"},
                          {"sharded"},
                          {"independent"},
                          {"model-averaging:every=3"},
                          {"bmuf:every=3"},
                          {"diloco:every=3"},
                          {"diloco:every=3,fragments=2,overlap=2"},
                          {"adacomm:every=3,interval=6"},
                          {"slowmo:every=3"},
                          {"gossip"},
                          {"gossip:overlap=1"},
                          {"d-psgd"},
                          {"ad-psgd"},
                          {"es"},
                          {"population:size=8,survivors=3"},
                          {"easgd:every=2"},
                          {"easgd:every=2", 1},
                          {"ps-sync"},
                          {"ps-sync", 1},
                          {"ps-async"},
                          {"ps-async", 1},
                          {"ps-async:prefetch=1"},
                          {"ps-async:push=2,fetch=3", 2},
                          {"ps-ssp:staleness=0"},
                          {"ps-ssp:staleness=1", 2},
                          {"ps-ssp:prefetch=1,staleness=3", 1}};

std::string name_of(const ::testing::TestParamInfo<Endured>& info) {
  const auto& [transport, plan] = info.param;
  std::string n = fmt::format("{}_{}_servers{}", runtime::name(transport), plan.strategy, plan.servers);
  std::replace_if(
      n.begin(), n.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return n;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Endurance,
                         ::testing::Combine(::testing::Values(TransportKind::automatic, TransportKind::mpi),
                                            ::testing::ValuesIn(plans)),
                         name_of);

}  // namespace
}  // namespace gradmeter::dataparallel
