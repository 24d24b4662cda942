#include <array>

#include "dataparallel/strategies/block_averaging.hpp"
#include "dataparallel/strategies/d_psgd.hpp"
#include "dataparallel/strategies/diloco.hpp"
#include "dataparallel/strategies/easgd.hpp"
#include "dataparallel/strategies/es.hpp"
#include "dataparallel/strategies/gossip.hpp"
#include "dataparallel/strategies/independent.hpp"
#include "dataparallel/strategies/parameter_server.hpp"
#include "dataparallel/strategies/population.hpp"
#include "dataparallel/strategies/sharded.hpp"
#include "dataparallel/strategies/sync.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::array table{
    StrategyInfo{
        .name = "adacomm",
        .parameters = "every=16,gamma=0.5,interval=100",
        .rule = "model-averaging; `every` becomes ceil(sqrt(F/F0)*every), or gamma times it, as the loss F falls",
        .bytes_text = "2(P-1)/P M / period, which falls from `every` to 1",
        .source = "Wang & Joshi, MLSys 2019",
        .communication = CommunicationPattern::collectives,
        .keeps_equal = false,
        .optimizer = "momentum:mu=0.9",
        .step_size = 0.01f,
        .make = make_adacomm},
    StrategyInfo{.name = "bmuf",
                 .parameters = "every=16,mu=auto,nesterov=0,zeta=1",
                 .rule = "d = mean(w) - w0; v = mu*v + zeta*d; w = w0 + v",
                 .bytes_text = "2(P-1)/P M / every",
                 .source = "Chen & Huo, ICASSP 2016",
                 .communication = CommunicationPattern::collectives,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_bmuf},
    StrategyInfo{.name = "d-psgd",
                 .parameters = "graph=ring",
                 .rule = "x_i = sum_j W_ij x_j - step*g_i(x_i); weights travel during the pass",
                 .bytes_text = "2M, hypercube M",
                 .source = "Lian et al., NIPS 2017",
                 .communication = CommunicationPattern::overlapped_messages,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_d_psgd},
    StrategyInfo{
        .name = "diloco",
        .parameters = "every=32,fragments=1,mix=0.5,mu=0.9,overlap=0,step=0.7",
        .rule =
            "inner steps alone, then outer Nesterov on the mean change, in `fragments` parts, `overlap` steps later",
        .bytes_text = "2(P-1)/P M / every",
        .source = "Douillard et al. 2023 and 2025",
        .communication = CommunicationPattern::changes,
        .keeps_equal = false,
        .optimizer = "adamw",
        .step_size = 0.001f,
        .make = make_diloco},
    StrategyInfo{.name = "easgd",
                 .parameters = "beta=0.9,every=4,servers=0",
                 .rule = "alone, every so many steps drawn to a centre: x -= d + step*g(x), c += d, d = beta/P (x - c)",
                 .bytes_text = "2M/every",
                 .source = "Zhang et al., NIPS 2015",
                 .communication = CommunicationPattern::client_server,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_easgd},
    StrategyInfo{.name = "es",
                 .parameters = "pairs=8,sigma=0.02",
                 .rule = "theta += a/(2 n sigma) sum (F+ - F-) eps; only scalars travel",
                 .bytes_text = "(P-1)/P 4n for n pairs",
                 .source = "Salimans et al. 2017",
                 .communication = CommunicationPattern::collectives,
                 .other_work = true,
                 .keeps_equal = true,
                 .optimizer = "",
                 .step_size = 0.001f,
                 .make = make_es},
    StrategyInfo{.name = "gossip",
                 .parameters = "graph=exponential,overlap=0",
                 .rule = "push-sum: half of (x, weight) to one peer; gradients at x/weight",
                 .bytes_text = "M + 64",
                 .source = "Assran et al., ICML 2019",
                 .communication = CommunicationPattern::messages,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_gossip},
    StrategyInfo{.name = "independent",
                 .parameters = "",
                 .rule = "no communication: the control",
                 .bytes_text = "0",
                 .source = "tf_cnn_benchmarks",
                 .communication = CommunicationPattern::nothing,
                 .optimizer_alone = true,
                 .may_skip_steps = true,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_independent},
    StrategyInfo{.name = "model-averaging",
                 .parameters = "every=16,start=0",
                 .rule = "w = mean(w) after every so many local steps; before `start` after each",
                 .bytes_text = "2(P-1)/P M / every",
                 .source = "McDonald et al. 2010; Su & Chen 2015; Lin et al., ICLR 2020",
                 .communication = CommunicationPattern::collectives,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_model_averaging},
    StrategyInfo{.name = "population",
                 .parameters = "breeding=1,decay=0.9998,mutation=0.005,size=16,survivors=4",
                 .rule = "the best models of a set stay, mutated children of them take the others' places",
                 .bytes_text = "(P-1)/P 4 size, and at most survivors M",
                 .source = "Such et al. 2017; Beyer & Schwefel 2002",
                 .communication = CommunicationPattern::collectives,
                 .other_work = true,
                 .keeps_equal = false,
                 .optimizer = "",
                 .step_size = 0.01f,
                 .make = make_population},
    StrategyInfo{.name = "ps-async",
                 .parameters = "fetch=1,prefetch=0,push=1,scale=mean,servers=0",
                 .rule = "servers apply every worker's gradient when it comes; nobody waits",
                 .bytes_text = "M/push up, M/fetch down",
                 .source = "Dean et al., NIPS 2012",
                 .communication = CommunicationPattern::client_server,
                 .optimizer_alone = true,
                 .keeps_equal = false,
                 .optimizer = "sgd",
                 .step_size = 0.05f,
                 .make = make_ps_async},
    StrategyInfo{.name = "ps-ssp",
                 .parameters = "fetch=1,prefetch=0,push=1,scale=mean,servers=0,staleness=2",
                 .rule = "as ps-async, but no step is on weights that lack updates older than `staleness`",
                 .bytes_text = "M/push up, M/fetch down",
                 .source = "Ho et al., NIPS 2013",
                 .communication = CommunicationPattern::client_server,
                 .optimizer_alone = true,
                 .keeps_equal = false,
                 .optimizer = "sgd",
                 .step_size = 0.05f,
                 .make = make_ps_ssp},
    StrategyInfo{.name = "ps-sync",
                 .parameters = "servers=0",
                 .rule = "servers apply the mean of all workers' gradients, whose pulls wait for it",
                 .bytes_text = "M up, M down",
                 .source = "Li et al., OSDI 2014",
                 .communication = CommunicationPattern::client_server,
                 .optimizer_alone = true,
                 .keeps_equal = true,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_ps_sync},
    StrategyInfo{.name = "sharded",
                 .parameters = "",
                 .rule = "gradients reduce-scattered, own block updated, weights gathered, bucket by bucket",
                 .bytes_text = "2(P-1)/P M",
                 .source = "Rajbhandari et al., SC20",
                 .communication = CommunicationPattern::blocks,
                 .own_optimizer = true,
                 .optimizer_alone = true,
                 .may_skip_steps = true,
                 .keeps_equal = true,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_sharded},
    StrategyInfo{.name = "slowmo",
                 .parameters = "alpha=1,beta=0.6,buffers=maintain,every=16",
                 .rule = "x = mean(w); u = beta*u + (w0 - x)/step; w = w0 - alpha*step*u",
                 .bytes_text = "2(P-1)/P M / every, with buffers=average of its buffers too",
                 .source = "Wang et al., ICLR 2020",
                 .communication = CommunicationPattern::collectives,
                 .keeps_equal = false,
                 .optimizer = "momentum:mu=0.9",
                 .step_size = 0.01f,
                 .make = make_slowmo},
    StrategyInfo{.name = "sync",
                 .parameters = "",
                 .rule = "w -= step * mean(gradient), exchanged bucket by bucket while backward goes on",
                 .bytes_text = "2(P-1)/P M",
                 .source = "Goyal et al. 2017; Li et al., VLDB 2020",
                 .communication = CommunicationPattern::all_reduce,
                 .optimizer_alone = true,
                 .may_skip_steps = true,
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
      (void)choice->make({});  // a wrong value is wrong whatever the rest: report it now
      return choice;
    }
    known.emplace_back(s.name);
  }
  core::refuse_unknown("strategy", given.base, known);
}

}  // namespace gradmeter::dataparallel
