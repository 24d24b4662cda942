// SPDX-License-Identifier: Apache-2.0
// Every codec over many algorithms on real ranks, over each transport: equal bits everywhere, the stated bytes, small
// tensors exact, and losses that even out over calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "allreduce/coded/coded.hpp"
#include "compression/codecs/dgc.hpp"
#include "core/error.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/transport/network.hpp"
#include "support/collectives.hpp"

namespace gradmeter::allreduce {
namespace {

using runtime::TransportKind;

/// Two tensors that go encoded and two that are too short for it, with gaps.
constexpr std::size_t length = 7500;
const std::vector<TensorPart> tensors{{.offset = 0, .count = 4200, .rows = 60, .columns = 70},
                                      {.offset = 4200, .count = 60},
                                      {.offset = 4260, .count = 3072, .rows = 48, .columns = 64},
                                      {.offset = 7400, .count = 10}};
constexpr std::size_t shortest = 100;  ///< that goes encoded

float value_at(int rank, std::size_t i) {
  const auto x = static_cast<float>(i);
  return std::sin(0.37f * x) + 0.7f * std::sin(1.13f * x + 2.1f * static_cast<float>(rank));
}

/// Relative squared error of `sum` / `calls` over the tensors that go encoded.
double error_of(std::span<const double> sum, double calls, int ranks) {
  double off = 0, norm = 0;
  for (const auto& t : tensors) {
    if (t.count < shortest) continue;
    for (std::size_t i = t.offset; i < t.offset + t.count; ++i) {
      double exact = 0;
      for (int r = 0; r < ranks; ++r) exact += static_cast<double>(value_at(r, i)) / ranks;
      off += (sum[i] / calls - exact) * (sum[i] / calls - exact);
      norm += exact * exact;
    }
  }
  return off / norm;
}

class Place {
 public:
  explicit Place(TransportKind kind)
      : network_(world_, {.transport = kind,
                          .memory_bytes = std::size_t{48} << 20,
                          .fake_nodes = kind == TransportKind::hybrid ? test::pairs_on_nodes(world_.size())
                                                                      : std::vector<int>{}}),
        link_(network_.connect(world_, most_lanes(world_.size()))),
        mark_(network_.arena().mark()) {}

  ExchangeSpec spec(const compression::CodecChoicePtr& codec, const AlgorithmPtr& algorithm) const {
    return {.placement = Placement::in_place,
            .max_bytes = length * 4,
            .message_bytes = 2048,
            .algorithm = algorithm,
            .codec = codec,
            .shape = shape_of(network_.nodes_of(world_))};
  }
  std::unique_ptr<Collective> bind(const ExchangeSpec& r) {
    network_.arena().rewind(mark_);
    const std::size_t before = network_.arena().mark();
    auto bound = bind_coded(r, {world_, network_, *link_});
    EXPECT_LE(network_.arena().mark() - before, coded_arena_bytes(r, static_cast<std::uint32_t>(world_.rank())));
    return bound;
  }
  const runtime::Communicator& world() const { return world_; }

  /// One average, in private memory: codecs need none that peers can read.
  std::vector<float> average(Collective& c) {
    std::vector<float> v(length);  // zero between the tensors: no codec looks there
    for (const auto& t : tensors) {
      for (std::size_t i = t.offset; i < t.offset + t.count; ++i) v[i] = value_at(world_.rank(), i);
    }
    c.start({.in = v, .out = v, .op = Op::average, .tensor_layout = {.tensors = tensors}});
    runtime::Backoff backoff(spin_policy_);
    while (!c.advance()) backoff.wait();
    return v;
  }

 private:
  runtime::Communicator world_ = runtime::MpiSession::world();
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> link_;
  runtime::Arena::Mark mark_;
  runtime::SpinPolicy spin_policy_ = test::spin_policy_of(world_, 1);
};

/// What is random without bias does, rounding or a choice of places; what always loses the same needs feedback.
bool evens_out(const compression::CodecChoice& c) {
  const std::string_view name = c.info->name;
  const bool unbiased =
      name.starts_with("qsgd") || name == "natural8" || name == "lns4" || name == "terngrad" || name == "randomk";
  return c.feedback || unbiased;
}

class CodedContract : public ::testing::TestWithParam<std::tuple<TransportKind, std::string>> {
 protected:
  static void TearDownTestSuite() { places.clear(); }  // while MPI is up
  static Place& place(TransportKind kind) {
    auto& p = places[kind];
    if (!p) p = std::make_unique<Place>(kind);
    return *p;
  }
  static void expect_right(Place& here, const compression::CodecChoicePtr& codec, const std::string& algorithm_name);

 private:
  static inline std::map<TransportKind, std::unique_ptr<Place>> places;
};

void CodedContract::expect_right(Place& here, const compression::CodecChoicePtr& codec,
                                 const std::string& algorithm_name) {
  const auto algorithm = find_algorithm(algorithm_name);
  const ExchangeSpec spec = here.spec(codec, algorithm);
  if (!codec_refusal(spec, CollectiveKind::all_reduce, {}).empty()) return;
  const std::string where = codec->label + " over " + algorithm_name;
  const auto bound = here.bind(spec);
  const auto& world = here.world();
  std::vector<double> sum(length);
  std::vector<float> first;
  double once = 0;
  constexpr int calls = 30;
  for (int call = 1; call <= calls; ++call) {
    const std::vector<float> out = here.average(*bound);
    if (call == 1) first = out;
    const auto hash = test::hash_of(std::as_bytes(std::span(out)));
    ASSERT_TRUE(world.all(world.broadcast_value(hash) == hash)) << where << ": other bits in call " << call;
    for (std::size_t i = 0; i < length; ++i) sum[i] += static_cast<double>(out[i]);
    for (const auto& t : tensors) {
      for (std::size_t i = t.offset; t.count < shortest && i < t.offset + t.count; ++i) {
        double exact = 0;
        for (int r = 0; r < world.size(); ++r) exact += static_cast<double>(value_at(r, i)) / world.size();
        EXPECT_NEAR(out[i], exact, 1e-6) << where << " at " << i << ": short tensors go dense";
      }
    }
    if (call == 1) once = error_of(sum, 1, world.size());
  }
  EXPECT_EQ(bound->sent().value_or(runtime::Traffic{}).bytes, bound->bytes_required().value_or(0)) << where;
  const double over_all = error_of(sum, calls, world.size());
  if (world.size() > 1 && evens_out(*codec)) {
    EXPECT_LT(over_all, std::max(0.5 * once, 1e-9)) << where << ", once " << once;
  } else {
    EXPECT_LT(once, 1.0) << where;
  }
  bound->forget();
  EXPECT_EQ(here.average(*bound), first) << where << ": after forget() the first call comes again";
  const auto second = here.average(*bound);
  bound->forget();
  (void)here.average(*bound);
  auto kept = bound->take_state();
  EXPECT_EQ(here.average(*bound), first) << where << ": with its state taken out it is as new";
  bound->restore_state(std::move(kept));
  EXPECT_EQ(here.average(*bound), second) << where << ": with its state put back it goes on";
}

TEST_P(CodedContract, RanksAgreeBytesAreAsStatedShortTensorsAreExactAndLossesEvenOut) {
  const auto& [kind, codec] = GetParam();
  const auto choice = compression::find_codec(codec);
  for (const auto* algorithm : {"auto", "direct", "ring", "one-shot", "double-tree", "hierarchical-lane",
                                "rabenseifner", "recursive-doubling", "mpi"}) {
    expect_right(place(kind), choice, algorithm);
  }
}

/// The tensors that go encoded, as all ranks' momentum correction by itself makes their average, call by call.
class WarmUpByHand {
 public:
  WarmUpByHand(const compression::CodecChoice& codec, int ranks)
      : stages_(compression::warm_up_stages(codec)),
        u_(static_cast<std::size_t>(ranks), std::vector<float>(length)),
        v_(u_) {}
  std::vector<float> average(std::size_t stage) {
    const compression::MomentumCorrection at(stages_.at(stage)->parsed);
    std::vector<float> out(length);
    for (const auto& t : tensors) {
      if (t.count < shortest) continue;
      const auto of_tensor = [&](std::vector<float>& v) { return std::span(v).subspan(t.offset, t.count); };
      std::vector<std::byte> wire(at.encoding().wire_bytes(t.count));
      for (std::size_t r = 0; r < u_.size(); ++r) {
        std::vector<float> g(t.count);
        for (std::size_t i = 0; i < t.count; ++i) g[i] = value_at(static_cast<int>(r), t.offset + i);
        at.encode(g, u_.size(), of_tensor(u_[r]), of_tensor(v_[r]), wire.data());
        at.encoding().decode_add(wire, of_tensor(out), of_tensor(out));
      }
      for (float& x : of_tensor(out)) x *= 1.0f / static_cast<float>(u_.size());
    }
    return out;
  }

 private:
  std::vector<compression::CodecChoicePtr> stages_;
  std::vector<std::vector<float>> u_, v_;  ///< by rank
};

TEST_F(CodedContract, AWarmUpSendsTheDensityOfEachStepAndKeepsWhatGathers) {
  auto& here = place(TransportKind::mpi);
  const auto& world = here.world();
  if (world.size() == 1) return;  // nothing is encoded
  const auto codec = compression::find_codec(fmt::format("dgc:warmup=8,min={}", shortest));
  const auto algorithm = find_algorithm("ring");
  const auto bound = here.bind(here.spec(codec, algorithm));
  WarmUpByHand by_hand(*codec, world.size());
  const auto first = here.average(*bound);
  bound->forget();
  for (std::size_t call = 0; call < 12; ++call) {
    const auto expected = by_hand.average(std::min<std::size_t>(call / 2, 3));  // 1 % has come before the last quarter
    const auto out = here.average(*bound);
    for (const auto& t : tensors) {
      for (std::size_t i = t.offset; t.count >= shortest && i < t.offset + t.count; ++i) {
        ASSERT_FLOAT_EQ(out[i], expected[i]) << call << " at " << i;
      }
    }
    if (call != 3) continue;
    auto kept = bound->take_state();
    EXPECT_EQ(here.average(*bound), first) << "as new: it warms up again";
    bound->restore_state(std::move(kept));
  }
}

std::vector<std::string> all_codecs() {
  std::vector<std::string> out;
  for (const auto& row : compression::codecs()) {
    // Momentum sums up gradients, and one element in a hundred is too few to have been everywhere after some calls.
    const std::string_view more = row.name == "dgc" ? "momentum=0," : row.name == "randomk" ? "density=0.2," : "";
    for (const auto* ef : {"on", "off"}) {
      const auto name = fmt::format("{}:{}ef={},min={}", row.name, more, ef, shortest);
      try {
        compression::find_codec(name);
        out.push_back(name);
      } catch (const core::UsageError&) {  // no feedback for what would not settle
      }
    }
  }
  // From four ranks on the sum of so many is dense, and summed so.
  out.push_back(fmt::format("topk:density=0.5,min={}", shortest));
  for (const auto* exchange : {"sra", "sum"}) {
    out.push_back(fmt::format("terngrad:exchange={},min={}", exchange, shortest));
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, CodedContract,
    ::testing::Combine(::testing::Values(TransportKind::shm, TransportKind::mpi, TransportKind::hybrid),
                       ::testing::ValuesIn(all_codecs())),
    [](const auto& param) {
      return test::test_name(fmt::format("{}_{}", runtime::name(std::get<0>(param.param)), std::get<1>(param.param)));
    });

}  // namespace
}  // namespace gradmeter::allreduce
