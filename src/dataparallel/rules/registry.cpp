#include "dataparallel/rules/registry.hpp"

#include <array>
#include <string>
#include <vector>

#include "dataparallel/rules/sgd.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::array table{
    OptimizerInfo{"momentum", "mu=0.9", "v = mu*v + g; w -= step*v", "Polyak 1964", make_momentum},
    OptimizerInfo{"nesterov", "mu=0.9", "v = mu*v + g; w -= step*(g + mu*v)", "Nesterov 1983", make_nesterov},
    OptimizerInfo{"sgd", "", "w -= step*g", "Robbins & Monro 1951", make_sgd},
};

}  // namespace

std::span<const OptimizerInfo> optimizers() { return table; }

std::unique_ptr<Rule> make_optimizer(std::string_view text, const RuleScope& scope) {
  const core::ParsedName given = core::parse_name(text);
  std::vector<std::string> known;
  for (const auto& o : table) {
    if (o.name == given.base) return o.make(core::with_defaults("optimizer", o.name, o.parameters, given), scope);
    known.emplace_back(o.name);
  }
  core::refuse_unknown("optimizer", given.base, known);
}

float rule_parameter(const core::ParsedName& name, std::string_view key, float least, float below) {
  return static_cast<float>(core::number_parameter(name, key, {least, below}));
}

}  // namespace gradmeter::dataparallel
