// SPDX-License-Identifier: Apache-2.0
// What is injected into training on real ranks is found, whatever the strategy and whenever it begins, and nothing is
// found where nothing was injected.
#include "dataparallel/fabric/decorators/verifier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "bench/train/training.hpp"
#include "core/format.hpp"
#include "model/data/dataset.hpp"
#include "mpi/fabric_site.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::CommunicationPattern;
using dataparallel::FaultInjector;
using dataparallel::Verifier;

/// A session for all tests, which takes over signals. It ends before MPI does.
class Sessions final : public ::testing::Environment {
 public:
  void SetUp() override {
    signals_.emplace();
    watchdog_.emplace();
    session_.emplace(runtime::MpiSession::world(), ProcessWatch{*signals_, *watchdog_}, core::Seconds{120}, "test");
  }
  void TearDown() override {
    session_.reset();
    watchdog_.reset();
    signals_.reset();
  }
  Session& session() { return *session_; }

 private:
  std::optional<runtime::SignalWatch> signals_;
  std::optional<runtime::Watchdog> watchdog_;
  std::optional<Session> session_;
};
Sessions* const sessions = new Sessions;  // GoogleTest owns it
const auto* const registered = ::testing::AddGlobalTestEnvironment(sessions);
Session& session() { return sessions->session(); }

const model::DataSplit& data() {
  static const auto data = model::make_data({.train_samples = 256, .validation_samples = 8});
  return data;
}

/// Each strategy, coming together every other step at the latest, so that late calls come soon.
std::vector<std::string> all_strategies() {
  std::vector<std::string> names;
  for (const auto& s : dataparallel::strategies()) {
    if (s.communication == CommunicationPattern::nothing) continue;
    const bool blocks = s.parameters.find("every=") != std::string_view::npos;
    // adacomm ends by itself where ranks find different periods, before anybody asks for a verdict: it keeps its
    // period.
    const std::string_view parameters = s.name == "adacomm" ? ":every=2,interval=100000" : blocks ? ":every=2" : "";
    names.push_back(fmt::format("{}{}", s.name, parameters));
  }
  names.insert(names.end(), {"gossip:overlap=1", "ps-async:push=2,fetch=3", "ps-sync:servers=1",
                             "diloco:every=3,fragments=2,overlap=2"});
  return names;
}

TrainingConfig config(const std::string& strategy, const std::string& injection = {}) {
  TrainingConfig c{.model = "mlp:784-4-10",
                   .batch_per_rank = 2,
                   .strategy = dataparallel::find_strategy(strategy),
                   .algorithm = allreduce::find_algorithm("ring"),
                   .bucket_bytes = 8192};
  if (!injection.empty()) c.injection = core::parse_injection(injection);
  return c;
}

/// The verdict of some steps of which every other is verified; empty: right.
std::string train(Training& t, std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) {
    if (i % 2 == 0) t.verify_next();
    t.step(i % t.steps_per_epoch());
  }
  t.quiesce();
  return t.take_fault();
}

/// On the last rank, which serves where any rank only serves.
std::string flip(int call) { return fmt::format("flip:rank={},call={}", session().world().size() - 1, call); }

class EveryStrategy : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryStrategy, IsRightWhereNothingIsInjected) {
  Training t(session(), session().world(), data(), config(GetParam()));
  EXPECT_EQ(t.check_exchange().fault, "");
  EXPECT_EQ(train(t, 20), "");
  t.finish();
}

TEST_P(EveryStrategy, IsFoundWrongBeforeItsFirstStep) {
  for (const int call : {0, 5}) {
    Training t(session(), session().world(), data(), config(GetParam(), flip(call)));
    std::string fault = t.check_exchange().fault;
    if (call > 0 && fault.empty()) fault = train(t, 12);  // so few calls are made before
    EXPECT_NE(fault, "") << call;
    t.finish();
  }
}

TEST_P(EveryStrategy, IsFoundWrongInTheMiddleOfItsSteps) {
  Training t(session(), session().world(), data(), config(GetParam(), flip(150)));
  std::string fault = t.check_exchange().fault;
  EXPECT_EQ(fault, "");
  for (int window = 0; window < 40 && fault.empty(); ++window) fault = train(t, 12);
  EXPECT_NE(fault, "");
  t.finish();
}

/// Of ten steps; verified: every third of them.
std::vector<double> losses(const TrainingConfig& c, bool verified) {
  Training t(session(), session().world(), data(), c);
  std::vector<double> out;
  for (std::size_t i = 0; i < 10; ++i) {
    if (verified && i % 3 == 1) t.verify_next();
    out.push_back(t.step(i).get().loss_sum);
  }
  t.finish();
  return out;
}

TEST_P(EveryStrategy, HasTheBitsThatItHasWithoutVerification) {
  // Workers of some strategies meet in whatever order they come.
  const auto& info = dataparallel::find_strategy(GetParam())->info();
  const bool repeats = !uses_ports(info.communication) || info.name == "ps-sync";
  if (!repeats) return;
  EXPECT_EQ(losses(config(GetParam()), true), losses(config(GetParam()), false));
}

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryStrategy, ::testing::ValuesIn(all_strategies()), name_of);

/// Encoded hop by hop, gathered, summed as integers, as values, as factors; with feedback and without.
class EveryCodec : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<TrainingConfig> configs(const std::string& injection = {}) {
    std::vector<TrainingConfig> out;
    const NodeMap nodes{.node_of = std::vector<int>(static_cast<std::size_t>(session().world().size()))};
    for (const char* algorithm : {"ring", "direct", "one-shot", "rabenseifner"}) {
      TrainingConfig c = config("sync", injection);
      c.model = "mlp:784-32-10";
      c.algorithm = allreduce::find_algorithm(algorithm);
      c.codec = compression::find_codec(GetParam());
      if (refusal(c, {data().train->features(), data().train->classes()}, nodes).empty()) out.push_back(c);
    }
    EXPECT_GE(out.size(), 2u);
    return out;
  }
};

TEST_P(EveryCodec, IsRightWhereNothingIsInjected) {
  for (const auto& c : configs()) {
    Training t(session(), session().world(), data(), c);
    EXPECT_EQ(t.check_exchange().fault, "") << c.algorithm->name;
    EXPECT_EQ(train(t, 20), "") << c.algorithm->name;
    t.finish();
  }
}

TEST_P(EveryCodec, IsRightForChangesOfWeightsToo) {
  TrainingConfig c = config("diloco:every=2,overlap=1");
  c.model = "mlp:784-32-10";
  c.codec = compression::find_codec(GetParam());
  const NodeMap nodes{.node_of = std::vector<int>(static_cast<std::size_t>(session().world().size()))};
  const std::string why = refusal(c, {data().train->features(), data().train->classes()}, nodes);
  EXPECT_EQ(why.empty(), !GetParam().starts_with("dgc")) << why;
  if (!why.empty()) return;
  {
    Training t(session(), session().world(), data(), c);
    EXPECT_EQ(t.check_exchange().fault, "");
    EXPECT_EQ(train(t, 20), "");
    t.finish();
  }
  EXPECT_EQ(losses(c, true), losses(c, false));
}

TEST_P(EveryCodec, IsFoundToLackAContributionBeforeItsFirstStep) {
  for (const auto& c : configs("omit:rank=1")) {
    Training t(session(), session().world(), data(), c);
    EXPECT_NE(t.check_sums().fault, "") << c.algorithm->name << ": by known data alone";
    t.finish();
  }
}

TEST_P(EveryCodec, IsFoundToLackAContributionInTheMiddleOfItsSteps) {
  for (const auto& c : configs("omit:rank=1,call=60")) {
    Training t(session(), session().world(), data(), c);
    EXPECT_EQ(t.check_exchange().fault, "") << c.algorithm->name;
    std::string fault;
    for (int window = 0; window < 10 && fault.empty(); ++window) fault = train(t, 12);
    EXPECT_NE(fault.find("in its projection"), std::string::npos) << c.algorithm->name << ": " << fault;
    t.finish();
  }
}

TEST_P(EveryCodec, HasTheBitsThatItHasWithoutVerification) {
  for (const auto& c : configs()) EXPECT_EQ(losses(c, true), losses(c, false)) << c.algorithm->name;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryCodec,
                         ::testing::Values("bf16", "fp8-e4m3", "natural8", "qsgd2", "qsgd4", "qsgd8", "qsgd8:ef=on",
                                           "onebit", "onebit:ef=off", "terngrad", "terngrad:exchange=sra",
                                           "terngrad:exchange=sum", "topk", "topk:density=0.9", "dgc", "dgc:clip=0.5",
                                           "dgc:warmup=8", "powersgd", "powersgd:ef=off", "randomk", "randomk:ef=off"),
                         name_of);

TEST(Verification, HoldsModelsThatAreSplit) {
  const int ranks = session().world().size();
  if (ranks % 2 != 0) return;
  for (const char* mesh : {"data,tensor=2", "data,pipeline=2"}) {
    for (const bool wrong : {false, true}) {
      auto c = config("sync", wrong ? flip(0) : "");
      c.mesh = dataparallel::parse_mesh(mesh);
      c.accumulate = 2;
      Training t(session(), session().world(), data(), c);
      EXPECT_EQ(t.check_exchange().fault.empty(), !wrong) << mesh;
      t.finish();
    }
  }
}

/// Rank-distinct numbers of the order of 1: longer than ordinary gradients, so that more rounding is allowed.
TEST(Verification, FindsAnErrorOf1InOneOfTenMillionElements) {
  constexpr std::size_t n = 10'000'019;
  const auto world = runtime::MpiSession::world();
  for (const auto* injection : {"flip:call=0", "flip:call=1000"}) {
    for (const auto op : {allreduce::Op::sum, allreduce::Op::average}) {
      runtime::Activity activity;
      dataparallel::RankFabric fabric(
          world,
          {.exchange = {.max_bytes = n * sizeof(float), .algorithm = allreduce::find_algorithm("ring")},
           .transport = dataparallel::TransportKind::automatic,
           .spin_policy = test::spin_policy_of(world, 1),
           .memory_bytes = n * sizeof(float) + 8192},
          activity);
      FaultInjector injecting(fabric, core::parse_injection(injection), world.rank());
      Verifier verifier(injecting, world, false);
      const auto v = verifier.memory(n).values<float>();
      test::fill(v, world.rank());
      verifier.arm();
      verifier.begin_step(1);
      verifier.wait(verifier.all_reduce(dataparallel::everybody, v, op, {}, {}));
      verifier.end_step();
      EXPECT_TRUE(verifier.verified_last_step());
      const std::string fault = verifier.take_fault();
      EXPECT_EQ(fault.empty(), std::string_view(injection) == "flip:call=1000") << fault;
      EXPECT_EQ(fault.find("on rank 0 the all-reduce of 10000019"), fault.empty() ? std::string::npos : 0) << fault;
    }
  }
}

}  // namespace
}  // namespace gradmeter::bench
