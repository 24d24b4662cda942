// SPDX-License-Identifier: Apache-2.0
// The table of all strategies, by name. Each is defined beside its code.
#include <array>

#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

extern const StrategyInfo ad_psgd_strategy, adacomm_strategy, bmuf_strategy, d_psgd_strategy, dc_asgd_strategy,
    diloco_strategy, easgd_strategy, es_strategy, gossip_strategy, independent_strategy, model_averaging_strategy,
    population_strategy, ps_async_strategy, ps_backup_strategy, ps_softsync_strategy, ps_ssp_strategy, ps_sync_strategy,
    sharded_strategy, slowmo_strategy, sync_strategy;

std::span<const StrategyInfo> strategies() {
  static const std::array rows{
      ad_psgd_strategy,         adacomm_strategy,    bmuf_strategy,     d_psgd_strategy,    dc_asgd_strategy,
      diloco_strategy,          easgd_strategy,      es_strategy,       gossip_strategy,    independent_strategy,
      model_averaging_strategy, population_strategy, ps_async_strategy, ps_backup_strategy, ps_softsync_strategy,
      ps_ssp_strategy,          ps_sync_strategy,    sharded_strategy,  slowmo_strategy,    sync_strategy};
  return rows;
}

StrategyPtr find_strategy(std::string_view text) {
  const core::ParsedName parsed = core::parse_name(text);
  std::vector<std::string> names;
  for (const StrategyInfo& s : strategies()) {
    if (s.name == parsed.base) {
      auto choice = std::make_shared<StrategyChoice>(s, core::with_defaults("strategy", s.name, s.parameters, parsed));
      (void)choice->make({});  // reports wrong values of parameters now
      return choice;
    }
    names.emplace_back(s.name);
  }
  core::refuse_unknown("strategy", parsed.base, names);
}

}  // namespace gradmeter::dataparallel
