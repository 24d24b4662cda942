#include "dataparallel/strategy.hpp"

#include <array>

#include "core/name.hpp"
#include "dataparallel/independent.hpp"
#include "dataparallel/sync.hpp"

namespace gradmeter::dataparallel {

void Worker::update(std::size_t offset, std::size_t count, float step) {
  compute("update", optimizer_.cost(count),
          [&] { optimizer_.apply(buffers_.parameters.part(offset, count), gradients(offset, count), offset, step); });
}

void Strategy::begin(Worker& w) {
  if (w.fabric().size() > 1) w.fabric().wait(w.fabric().broadcast(everybody, w.buffers().parameters, 0));
}

namespace {

constexpr std::array table{
    StrategyInfo{"independent", "no communication: the control", "tf_cnn_benchmarks", false, make_independent},
    StrategyInfo{"sync", "w -= step * mean(gradient), exchanged bucket by bucket while backward goes on",
                 "Goyal et al. 2017; Li et al., VLDB 2020", true, make_sync},
};

}  // namespace

std::span<const StrategyInfo> strategies() { return table; }

const StrategyInfo& find_strategy(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& s : table) {
    if (s.name == name) return s;
    known.emplace_back(s.name);
  }
  core::refuse_unknown("strategy", name, known);
}

}  // namespace gradmeter::dataparallel
