// SPDX-License-Identifier: Apache-2.0
// The rows of all strategies: each is defined beside its code, and registry.cpp lists them.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

extern const StrategyInfo ad_psgd_strategy, adacomm_strategy, bmuf_strategy, d_psgd_strategy, dc_asgd_strategy,
    diloco_strategy, easgd_strategy, es_strategy, gossip_strategy, independent_strategy, model_averaging_strategy,
    population_strategy, ps_async_strategy, ps_backup_strategy, ps_softsync_strategy, ps_ssp_strategy, ps_sync_strategy,
    sharded_strategy, slowmo_strategy, sync_strategy;

}  // namespace gradmeter::dataparallel
