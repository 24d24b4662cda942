#include "dataparallel/optimizers/registry.hpp"

#include <array>
#include <string>
#include <vector>

#include "compression/momentum_correction.hpp"
#include "core/format.hpp"
#include "dataparallel/optimizers/adam.hpp"
#include "dataparallel/optimizers/lamb.hpp"
#include "dataparallel/optimizers/lars.hpp"
#include "dataparallel/optimizers/number_format.hpp"
#include "dataparallel/optimizers/sgd.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::array table{
    OptimizerInfo{"adam", "beta1=0.9,beta2=0.999,epsilon=1e-8",
                  "w -= step*m/(sqrt(v) + epsilon), averages of g and g^2", "Kingma & Ba, ICLR 2015", make_adam},
    OptimizerInfo{"adamw", "beta1=0.9,beta2=0.999,decay=0.01,epsilon=1e-8", "w *= 1 - step*decay, then adam",
                  "Loshchilov & Hutter, ICLR 2019", make_adamw},
    OptimizerInfo{"lamb", "beta1=0.9,beta2=0.999,decay=0.01,epsilon=1e-6",
                  "r = adam's direction + decay*w; w -= step*|w|/|r|*r, tensor by tensor", "You et al., ICLR 2020",
                  make_lamb},
    OptimizerInfo{"lars", "decay=0,eta=0.001,mu=0.9",
                  "v = mu*v + step*eta*|w|/(|g| + decay*|w|)*(g + decay*w); w -= v, tensor by tensor",
                  "You, Gitman & Ginsburg 2017", make_lars},
    OptimizerInfo{"momentum", "mu=0.9", "v = mu*v + g; w -= step*v", "Polyak 1964", make_momentum},
    OptimizerInfo{"nesterov", "mu=0.9", "v = mu*v + g; w -= step*(g + mu*v)", "Nesterov 1983", make_nesterov},
    OptimizerInfo{"sgd", "", "w -= step*g", "Robbins & Monro 1951", make_sgd},
};

}  // namespace

std::span<const OptimizerInfo> optimizers() { return table; }

std::unique_ptr<Optimizer> make_optimizer(std::string_view text, const OptimizerScope& scope) {
  core::ParsedName given = core::parse_name(text);
  const std::string format = update_format_of(text);
  given.parameters.erase("update");
  std::vector<std::string> known;
  for (const auto& o : table) {
    if (o.name == given.base) {
      return make_rounded(o.make(core::with_defaults("optimizer", o.name, o.parameters, given), scope), format, scope);
    }
    known.emplace_back(o.name);
  }
  core::refuse_unknown("optimizer", given.base, known);
}

std::size_t optimizer_bytes(std::string_view name, std::size_t elements) {
  return make_optimizer(name, {})->kept_per_element() * elements * sizeof(float);
}

std::string codec_refusal(const compression::CodecChoicePtr& c, std::string_view optimizer) {
  if (!c || compression::momentum_of(*c) == 0 || core::parse_name(optimizer).base == "sgd") return {};
  return fmt::format("codec {} has momentum {} of its own, beside which {} would apply momentum twice; use sgd",
                     c->info->name, compression::momentum_of(*c), optimizer);
}

float optimizer_parameter(const core::ParsedName& name, std::string_view key, float least, float below) {
  return static_cast<float>(core::number_parameter(name, key, {least, below}));
}

}  // namespace gradmeter::dataparallel
