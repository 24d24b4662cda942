// A trial of the exchange before anything is measured: with known data, on every rank.
#include <algorithm>

#include "bench/coded_sum.hpp"
#include "bench/training.hpp"
#include "core/format.hpp"
#include "dataparallel/buckets.hpp"

namespace gradmeter::bench {

using dataparallel::Speech;

ExchangeCheck Training::check_exchange() {
  ExchangeCheck found;
  const auto speech = config_.strategy->info().speech;
  if (speech != Speech::all_reduce || !exchanges(config_, layout_)) return found;
  if (config_.codec) {
    found = check_coded_exchange();
  } else if (!sums_are_exact()) {
    found.fault = fmt::format("the all-reduce {} gives wrong sums", config_.algorithm->name);
  }
  std::ranges::fill(buffers_.gradients.values<float>(), 0.0f);
  return found;
}

bool Training::sums_are_exact() {
  const auto value = [](int rank, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50.0f;
  };
  const auto g = buffers_.gradients.values<float>();
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = value(worker_.rank(), i);
  fabric_.wait(fabric_.all_reduce(worker_.axis(), g, allreduce::Op::sum, {}, {}));
  // Small whole numbers: their sums are exact in fp32 whatever the order, so any difference is an error.
  bool right = true;
  for (std::size_t i = 0; i < g.size(); ++i) {
    float sum = 0;
    for (int r = 0; r < worker_.ranks(); ++r) sum += value(r, i);
    right &= g[i] == sum;
  }
  return communicator_.all(right);
}

/// Encoded gradients lose some: how much is the answer, but all ranks must hold the same.
ExchangeCheck Training::check_coded_exchange() {
  const auto g = buffers_.gradients.values<float>();
  const auto buckets = dataparallel::make_buckets(model_->tensors(), model_->element_count(), 0);
  std::ranges::fill(g, 0.0f);  // as between tensors in training
  for (const auto& t : buckets.front().parts) {
    draw_worker_gradient(config_.seed + t.offset, worker_.rank(), g.subspan(t.offset, t.count));
  }
  const std::vector<float> mine(g.begin(), g.end());
  fabric_.wait(fabric_.all_reduce(worker_.axis(), g, allreduce::Op::average, {}, buckets.front().contents()));
  fabric_.forget();
  const auto axis =
      communicator_.split(layout_.place.stage * layout_.mesh.tensor + layout_.place.tensor, layout_.place.data);
  const CodedSum sum = compare_coded_sum(axis, mine, g, allreduce::Op::average);
  ExchangeCheck found{.fault = {}, .error = sum.error};
  if (!sum.same_bits) {
    found.fault =
        fmt::format("ranks hold different sums after {} with codec {}", config_.algorithm->name, config_.codec->label);
  }
  return found;
}

}  // namespace gradmeter::bench
