#include <array>

#include "dataparallel/strategies/easgd.hpp"
#include "dataparallel/strategies/independent.hpp"
#include "dataparallel/strategies/parameter_server.hpp"
#include "dataparallel/strategies/sync.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::array table{
    StrategyInfo{.name = "easgd",
                 .parameters = "every=4,beta=0.9",
                 .rule = "alone, and every so many steps drawn to a centre: x -= d, c += d, d = beta/P (x - c)",
                 .bytes_text = "2M/every",
                 .source = "Zhang et al., NIPS 2015",
                 .speech = Speech::messages,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_easgd},
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
    StrategyInfo{.name = "ps-async",
                 .parameters = "push=1,fetch=1,scale=mean,prefetch=0",
                 .rule = "servers apply every worker's gradient when it comes; nobody waits",
                 .bytes_text = "M/push up, M/fetch down",
                 .source = "Dean et al., NIPS 2012",
                 .speech = Speech::messages,
                 .keeps_equal = false,
                 .optimizer = "sgd",
                 .step_size = 0.05f,
                 .make = make_ps_async},
    StrategyInfo{.name = "ps-ssp",
                 .parameters = "staleness=2,push=1,fetch=1,scale=mean,prefetch=0",
                 .rule = "as ps-async, but a pull waits for workers that are more than `staleness` updates behind",
                 .bytes_text = "M/push up, M/fetch down",
                 .source = "Ho et al., NIPS 2013",
                 .speech = Speech::messages,
                 .keeps_equal = false,
                 .optimizer = "sgd",
                 .step_size = 0.05f,
                 .make = make_ps_ssp},
    StrategyInfo{.name = "ps-sync",
                 .parameters = "",
                 .rule = "servers apply the mean of all workers' gradients, whose pulls wait for it",
                 .bytes_text = "M up, M down",
                 .source = "Li et al., OSDI 2014",
                 .speech = Speech::messages,
                 .keeps_equal = true,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_ps_sync},
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
