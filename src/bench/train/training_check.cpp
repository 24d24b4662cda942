// SPDX-License-Identifier: Apache-2.0
// Checks of the exchange before anything is measured, with known data and with training's own, on every rank.
#include <algorithm>
#include <array>
#include <cmath>

#include "bench/engine/coded_sum.hpp"
#include "bench/train/training.hpp"
#include "compression/codecs/dgc.hpp"
#include "core/format.hpp"
#include "dataparallel/strategy.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::CommunicationPattern;

/// Small whole numbers that differ by rank and by place: (7 i + 13 rank) mod 101 - 50. Their sums over up to 300,000
/// ranks are exact in fp32, whatever the order.
class KnownSums {
 public:
  explicit KnownSums(int ranks) : ranks_(ranks) {
    for (std::size_t c = 0; c < period; ++c) {
      double sum = 0;
      for (std::size_t k = 0; k < static_cast<std::size_t>(ranks) % period; ++k) sum += residue(c + k);
      rest_sums_[c] = sum;
    }
  }
  static float value(int rank, std::size_t i) {
    return static_cast<float>(residue(turn(i) + static_cast<std::size_t>(rank)) - middle);
  }
  /// The sum of value(rank, i) over all ranks: whole turns over the residues, each with the sum 0 + 1 + … + 100, and
  /// the rest. Cost: O(1).
  double sum(std::size_t i) const {
    const std::size_t turns = static_cast<std::size_t>(ranks_) / period;
    return static_cast<double>(turns) * (period * middle) + rest_sums_[turn(i)] - middle * ranks_;
  }

 private:
  static constexpr std::size_t period = 101;
  static constexpr double middle = 50;
  static double residue(std::size_t n) { return static_cast<double>(13 * n % period); }
  /// 7 i as a multiple of 13: 13 · 86 = 7 modulo 101.
  static std::size_t turn(std::size_t i) { return 86 * (i % period) % period; }
  int ranks_;
  std::array<double, period> rest_sums_{};  ///< by first residue: the sum of the residues after the last whole turn
};

constexpr double unit_roundoff = 0x1p-24;

}  // namespace

ExchangeCheck Training::check_sums() {
  ExchangeCheck found;
  const auto communication = config_.strategy->info().communication;
  if (!exchanges(config_, layout_) || communication != CommunicationPattern::all_reduce) return found;
  if (config_.codec) {
    found = check_coded_exchange();
  } else if (!sums_are_exact()) {
    found.fault = fmt::format("the all-reduce {} gives wrong sums", config_.algorithm->name);
  }
  queue_->run_and_wait([&] { std::ranges::fill(assembly_.buffers().gradients.values<float>(), 0.0f); });
  return found;
}

/// Starts the calls of all buckets before it waits for any, as a backward pass does.
void Training::exchange_gradients() {
  const auto exchanged = buckets();  // calls under way refer to the tensors in them
  std::vector<dataparallel::Ticket> tickets;
  for (const auto& b : exchanged) {
    tickets.push_back(verifier_.all_reduce(assembly_.worker().axis(), assembly_.worker().gradients(b.offset, b.count),
                                           allreduce::Op::average, verifier_.record(), b.tensor_layout()));
  }
  for (const auto& t : tickets) verifier_.wait(t);
}

bool Training::sums_are_exact() {
  const KnownSums known(assembly_.worker().ranks());
  const runtime::Buffer gradients = assembly_.buffers().gradients;
  queue_->run_and_wait([&] {
    const auto numbers = gradients.values<float>();
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = KnownSums::value(assembly_.worker().rank(), i);
  });
  exchange_gradients();
  const auto g = on_host(gradients, gradient_copy_);
  bool right = true;
  for (std::size_t i = 0; i < g.size(); ++i) {
    // The sum is exact; to divide it, or to multiply by a rounded 1/P, rounds.
    const double mean = known.sum(i) / assembly_.worker().ranks();
    right &= std::fabs(static_cast<double>(g[i]) - mean) <= 2 * unit_roundoff * std::fabs(mean);
  }
  return communicator_.all(right);
}

/// Encoding loses a part of the gradients. The check finds how much, compares it with what the codec may lose, and
/// compares the sums of all ranks, which must be the same.
ExchangeCheck Training::check_coded_exchange() {
  ExchangeCheck found = try_coded_exchange(CodedData::gradient);
  if (found.fault.empty() && keeps_signs(*config_.codec)) found.fault = try_coded_exchange(CodedData::signs).fault;
  return found;
}

/// Leaves no state in the codec, since what error feedback keeps of one check would be in the next sum.
ExchangeCheck Training::try_coded_exchange(CodedData data) {
  const runtime::Buffer gradients = assembly_.buffers().gradients;
  const auto axis =
      communicator_.split(layout_.place.stage * layout_.mesh.tensor + layout_.place.tensor, layout_.place.data);
  // The first step's density. Only the whole gradient can be clipped, so all-reduces do not clip.
  const auto codec = compression::warm_up_phases(compression::without_clip(config_.codec), 0, 1).front().codec;
  const allreduce::ExchangeSpec spec{
      .algorithm = config_.algorithm, .codec = codec, .shape = axis_shape(layout_, node_of_rank_)};
  const auto each_tensor = [&](auto g, const auto& visit) {
    for (const auto& b : buckets()) {
      for (const auto& part : b.parts) {
        visit(CodedTensor{.codec = *codec,
                          .encodings = allreduce::encodings_on_the_way(spec, part),
                          .seed = config_.seed + b.offset + part.offset,
                          .op = allreduce::Op::average,
                          .data = data,
                          .columns = part.columns},
              g.subspan(b.offset + part.offset, part.count));
      }
    }
  };
  queue_->run_and_wait([&] {
    const auto numbers = gradients.values<float>();
    std::ranges::fill(numbers, 0.0f);  // as between tensors in training
    each_tensor(numbers,
                [&](const CodedTensor& t, std::span<float> to) { draw_coded(t, axis.rank(), axis.size(), to); });
  });
  exchange_gradients();
  fabric_.forget();
  double lost = 0, exact = 0;
  ExchangeCheck found;
  each_tensor(on_host(gradients, gradient_copy_), [&](const CodedTensor& t, std::span<const float> result) {
    const CodedSum sum = check_coded_sum(axis, t, result);
    lost += sum.squared_error;
    exact += sum.squared_sum;
    if (found.fault.empty()) found.fault = sum.same_bits ? sum.fault : "ranks hold different sums";
  });
  found.error = exact > 0 ? lost / exact : lost;
  if (!found.fault.empty()) {
    found.fault = fmt::format("{} with codec {}: {}", config_.algorithm->name, config_.codec->label, found.fault);
  }
  found.fault = runtime::first_report(communicator_, found.fault).text;
  return found;
}

/// True if the steps so far have verified every kind of exchange. Where only the ranks of one replica exchange, one
/// step has them all.
bool Training::has_verified() const {
  const auto communication = config_.strategy->info().communication;
  if (communication == CommunicationPattern::client_server) return verifier_.messages_verified();
  // Some ranks only answer, and the others exchange in every step.
  if (communication == CommunicationPattern::asynchronous_messages) return true;
  return !exchanges(config_, layout_) || verifier_.verified(assembly_.mesh().data());
}

ExchangeCheck Training::check_exchange() {
  ExchangeCheck found = check_sums();
  const bool has_own_server = config_.strategy->info().communication == CommunicationPattern::client_server;
  if (!found.fault.empty() || (communicator_.size() == 1 && !has_own_server)) return found;
  constexpr std::size_t most_steps = 64;  // the longest usual block has 32
  bool verified = false;
  for (std::size_t n = 0; n < most_steps && !verified; ++n) {
    if (layout_.trains()) {
      verify_next();
      step(n % steps_per_epoch());
    }
    // All ranks decide alike: where a step waits for all workers, no rank may make one more.
    verified = communicator_.all(!layout_.trains() || has_verified());
  }
  verify_next();
  quiesce();
  verifier_.begin_step(steps_);
  evaluation_weights();
  verifier_.end_step();
  verifier_.disarm();
  quiesce();
  found.fault = take_fault();
  take_records();  // steps that are checked are no samples
  return found;
}

}  // namespace gradmeter::bench
