// SPDX-License-Identifier: Apache-2.0
// Training with codecs on real ranks: the bytes that the strategy forecast, and the bits of virtual time.
#include <gtest/gtest.h>

#include "core/format.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "mpi/ranks.hpp"
#include "runtime/communicator.hpp"
#include "runtime/mpi/session.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::StrategyEnd;
using test::StrategyRun;

struct Setting {
  std::string algorithm = "ring", codec = "none";
  TransportKind transport = TransportKind::mpi;
};

/// Every codec there is, with a density at which the sum of few ranks stays sparse.
std::vector<std::string> every_codec() {
  std::vector<std::string> out;
  for (const auto& row : compression::codecs()) {
    const bool sparse = row.parameters.find("density") != std::string_view::npos;
    out.push_back(fmt::format("{}:min=100{}", row.name, sparse ? ",density=0.05" : ""));
  }
  return out;
}

class CodedSite {
 public:
  CodedSite(const runtime::Communicator& world, const StrategyRun& run, const Setting& s)
      : model_(run.model()),
        bytes_(model_->element_count() * sizeof(float)),
        strategy_(find_strategy(run.strategy)
                      ->make({.bucket_bytes = run.bucket_bytes, .codec = compression::find_codec(run.codec)})),
        fabric_(world,
                {.exchange = {.max_bytes = bytes_,
                              .algorithm = allreduce::find_algorithm(s.algorithm),
                              .codec = compression::find_codec(s.codec)},
                 .transport = s.transport,
                 .progress = ProgressMode::thread,
                 .spin_policy = test::spin_policy_of(world, 2),
                 .memory_bytes = 3 * (bytes_ + 4096) + strategy_->fabric_bytes(*model_, world.size())},
                activity_) {}
  StrategyEnd train(const StrategyRun& run) { return test::run_worker(fabric_, run); }
  /// message_bytes: 0: the fabric's.
  Forecast forecast(const StrategyRun& run, const Setting& s, std::size_t message_bytes = 0) const {
    return strategy_->predict({.ranks = static_cast<std::uint32_t>(fabric_.size(everybody)),
                               .tensors = model_->tensors(),
                               .elements = model_->element_count(),
                               .steps = static_cast<std::uint64_t>(run.steps),
                               .algorithm = allreduce::find_algorithm(s.algorithm),
                               .codec = compression::find_codec(s.codec),
                               .message_bytes = message_bytes ? message_bytes : fabric_.message_bytes(everybody),
                               .max_call_bytes = bytes_});
  }

 private:
  std::unique_ptr<model::Model> model_;
  std::size_t bytes_;
  std::unique_ptr<Strategy> strategy_;
  runtime::Activity activity_;
  RankFabric fabric_;
};

bool taken(const runtime::Communicator& world, const StrategyRun& run, const Setting& s) {
  const auto algorithm = allreduce::find_algorithm(s.algorithm);
  const auto p = static_cast<std::uint32_t>(world.size());
  const auto codec = compression::find_codec(s.codec);
  return allreduce::codec_refusal({.max_bytes = run.model()->element_count() * sizeof(float),
                                   .algorithm = algorithm,
                                   .codec = codec,
                                   .shape = {p, p}},
                                  allreduce::CollectiveKind::all_reduce, {})
      .empty();
}

TEST(CodedTraining, SyncSendsWhatItForecastWithEveryCodecOverEveryAlgorithmThatTakesIt) {
  const auto world = runtime::MpiSession::world();
  const StrategyRun run{.steps = 2};
  int compared = 0;
  for (const auto& codec : every_codec()) {
    for (const char* algorithm : {"ring", "direct", "one-shot", "recursive-doubling", "auto"}) {
      const Setting s{.algorithm = algorithm, .codec = codec};
      if (!taken(world, run, s)) continue;
      CodedSite site(world, run, s);
      const double sent = world.sum(static_cast<double>(site.train(run).totals.bytes_sent));
      const Forecast f = site.forecast(run, s), dense = site.forecast(run, {.algorithm = algorithm});
      const auto where = fmt::format("{} {}", algorithm, codec);
      if (f.exact) {
        EXPECT_EQ(sent, static_cast<double>(f.bytes)) << where;
        ++compared;
      } else if (f.upper_bound) {
        EXPECT_LE(sent, static_cast<double>(f.bytes)) << where;
        EXPECT_GT(8 * sent, static_cast<double>(f.bytes)) << where;
      }
      if (world.size() > 1 && f.exact && dense.exact) {
        EXPECT_NE(f.bytes, dense.bytes) << where << ": the control: it is not the forecast without a codec";
      }
    }
  }
  EXPECT_GT(compared, 40);
}

TEST(CodedTraining, ChangesSendWhatWasForecastAndLoseWhatTheCodecLoses) {
  struct Coded {
    const char* codec;
    double most_off;  ///< of a weight after four blocks: a few times what was found
  };
  const auto world = runtime::MpiSession::world();
  const StrategyRun dense{.strategy = "diloco:every=2", .steps = 8};
  const auto expected = CodedSite(world, dense, {}).train(dense);
  for (const char* name : {"diloco:every=2", "diloco:every=3,fragments=3,overlap=2"}) {
    for (const auto& [codec, most_off] :
         {Coded{"bf16:min=100", 2e-3}, Coded{"qsgd8:ef=on,min=100", 2e-3}, Coded{"qsgd4:min=100", 0.1},
          Coded{"topk:density=0.1,min=100", 0.2}, Coded{"powersgd:min=100", 0.3}, Coded{"onebit:min=100", 0.5}}) {
      StrategyRun run = dense;
      run.strategy = name;
      const Setting s{.codec = codec};
      const bool is_cut = run.strategy != dense.strategy;
      if (is_cut && s.codec.starts_with("powersgd")) continue;
      CodedSite site(world, run, s);
      const auto end = site.train(run);
      const Forecast f = site.forecast(run, s);
      EXPECT_EQ(world.sum(static_cast<double>(end.totals.bytes_sent)), static_cast<double>(f.bytes)) << name << codec;
      if (world.size() == 1) continue;
      EXPECT_LT(static_cast<double>(f.bytes), 0.8 * static_cast<double>(site.forecast(run, {}).bytes)) << name << codec;
      if (is_cut) continue;
      EXPECT_TRUE(runtime::same_on_all(world, end.hashes.back())) << codec;
      const double off = test::farthest(end.weights, expected.weights);
      EXPECT_GT(off, 1e-5) << codec << ": the control: changes are encoded";
      EXPECT_LT(off, most_off) << codec;
    }
  }
}

TEST(CodedTraining, TheForecastOfLongBuffersKnowsWhereTheyAreCut) {
  const auto world = runtime::MpiSession::world();
  StrategyRun run{.steps = 1, .bucket_bytes = std::size_t{16} << 20};
  run.model = [] { return std::make_unique<model::Mlp>(std::vector<std::size_t>{784, 1500, 10}); };  // 4.5 MiB
  for (const auto transport : {TransportKind::mpi, TransportKind::shm}) {
    for (const char* codec : {"qsgd4", "natural8:bucket=192", "terngrad:exchange=sra", "topk"}) {
      const Setting s{.algorithm = "direct", .codec = codec, .transport = transport};
      if (!taken(world, run, s)) continue;
      CodedSite site(world, run, s);
      const double sent = world.sum(static_cast<double>(site.train(run).totals.bytes_sent));
      EXPECT_EQ(sent, static_cast<double>(site.forecast(run, s).bytes)) << codec << " " << int(transport);
      if (world.size() > 1 && s.codec == "qsgd4") {
        EXPECT_NE(sent, static_cast<double>(site.forecast(run, s, 1000).bytes)) << "the control: cut elsewhere";
      }
    }
  }
}

TEST(CodedTraining, ServersHaveTheBitsAndBytesOfVirtualTimeWithEveryCodec) {
  const auto world = runtime::MpiSession::world();
  for (const auto& codec : every_codec()) {
    const bool own_momentum = codec.starts_with("dgc");  // beside which an optimizer's would be a second one
    const StrategyRun run{
        .strategy = "ps-sync", .optimizer = own_momentum ? "sgd" : "momentum:mu=0.9", .codec = codec, .steps = 3};
    const auto expected = test::run_workers(world.size(), run)[static_cast<std::size_t>(world.rank())];
    for (const auto transport : {TransportKind::mpi, TransportKind::shm}) {
      const auto end = CodedSite(world, run, {.transport = transport}).train(run);
      EXPECT_EQ(end.hashes, expected.hashes) << codec << " " << int(transport);
      EXPECT_EQ(end.totals.bytes_sent, expected.totals.bytes_sent) << codec << " " << int(transport);
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
