#include <array>

#include "dataparallel/strategies/independent.hpp"
#include "dataparallel/strategies/sync.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::array table{
    StrategyInfo{.name = "independent",
                 .parameters = "",
                 .rule = "no communication: the control",
                 .bytes_text = "0",
                 .source = "tf_cnn_benchmarks",
                 .speech = Speech::nothing,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_independent},
    StrategyInfo{.name = "sync",
                 .parameters = "",
                 .rule = "w -= step * mean(gradient), exchanged bucket by bucket while backward goes on",
                 .bytes_text = "2(P-1)/P M",
                 .source = "Goyal et al. 2017; Li et al., VLDB 2020",
                 .speech = Speech::all_reduce,
                 .keeps_equal = true,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_sync},
};

}  // namespace

std::span<const StrategyInfo> strategies() { return table; }

StrategyPtr find_strategy(std::string_view text) {
  const core::ParsedName given = core::parse_name(text);
  std::vector<std::string> known;
  for (const auto& s : table) {
    if (s.name == given.base) {
      auto choice = std::make_shared<StrategyChoice>(s, core::with_defaults("strategy", s.name, s.parameters, given));
      (void)choice->make({});  // a parameter's value is wrong whatever the rest: say so now
      return choice;
    }
    known.emplace_back(s.name);
  }
  core::refuse_unknown("strategy", given.base, known);
}

}  // namespace gradmeter::dataparallel
