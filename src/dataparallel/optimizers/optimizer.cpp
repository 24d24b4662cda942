// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/optimizers/optimizer.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "compression/codecs/dgc.hpp"
#include "core/format.hpp"
#include "dataparallel/optimizers/layerwise.hpp"
#include "dataparallel/optimizers/weight_format.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {

void Optimizer::update(runtime::Queue& queue, runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset,
                       UpdateStep step) {
  runtime::Cost apply_cost = cost(weights.count());
  if (has_tensor_parts()) {
    const runtime::Cost norms_cost = measure_cost(weights.count());
    queue.submit("update.norms", norms_cost, [=, this] { measure(weights, change, offset, step); });
    queue.synchronise();
    share_norms();
    apply_cost = {.flops = apply_cost.flops - norms_cost.flops, .bytes = apply_cost.bytes - norms_cost.bytes};
  }
  queue.submit("update", apply_cost, [=, this] { apply(weights, change, offset, step); });
}

namespace {

/// w -= step·g. Cost: 12 bytes an element. Source: Robbins & Monro 1951.
class Sgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t, UpdateStep step) override {
    kernels::loops().sgd(w, g, step.step_size, step.update_number());
  }
  runtime::Cost cost(std::size_t n) const override { return {2.0 * double(n), 12.0 * double(n)}; }
};

/// v = mu·v + g; w -= step·v, with Nesterov's w -= step·(g + mu·v). Cost: 20 bytes an element, 4 of state.
/// Source: Polyak 1964; Nesterov 1983.
class Momentum final : public Optimizer {
 public:
  Momentum(std::string name, const OptimizerScope& scope, float mu, bool nesterov)
      : Optimizer(std::move(name)), mu_(mu), nesterov_(nesterov), velocity_(scope.state()) {}
  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    kernels::loops().momentum(w, velocity_.buffer.part(offset, w.count()), g, {step.step_size, mu_, nesterov_},
                              step.update_number());
  }
  std::vector<runtime::Buffer> state() override { return {velocity_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {4.0 * double(n), 20.0 * double(n)}; }

 private:
  float mu_;
  bool nesterov_;
  runtime::OwnedBuffer velocity_;
};

std::unique_ptr<Optimizer> with_velocity(const core::ParsedName& name, const OptimizerScope& scope, bool nesterov) {
  const float mu = optimizer_parameter(name, "mu", 0, 1);
  return std::make_unique<Momentum>(name.canonical(), scope, mu, nesterov);
}

std::unique_ptr<Optimizer> make_sgd(const core::ParsedName& name, const OptimizerScope&) {
  return std::make_unique<Sgd>(name.canonical());
}
std::unique_ptr<Optimizer> make_momentum(const core::ParsedName& name, const OptimizerScope& s) {
  return with_velocity(name, s, false);
}
std::unique_ptr<Optimizer> make_nesterov(const core::ParsedName& name, const OptimizerScope& s) {
  return with_velocity(name, s, true);
}

/// m = beta1·m + (1 − beta1)·g; v = beta2·v + (1 − beta2)·g²; w −= step·m̂/(√v̂ + epsilon), where m̂ = m/(1 − beta1^t)
/// and v̂ = v/(1 − beta2^t): algorithm 1 of the paper, as frameworks have it. (The kernel's epsilon is that of the end
/// of the paper's section 2, smaller by √(1 − beta2^t); the optimizer converts.) t is the step's number.
/// AdamW first computes w *= 1 − step·decay, so that the decay does not enter the averages. As in frameworks, the decay
/// is multiplied by the step size; the paper multiplies it only by its schedule.
/// Cost: 28 bytes an element, with decay 36. State: 8 bytes. Source: Kingma & Ba, ICLR 2015; Loshchilov & Hutter, ICLR
/// 2019, algorithm 2.
class Adam final : public Optimizer {
 public:
  Adam(std::string name, const OptimizerScope& scope, kernels::AdamParameters p, float decay)
      : Optimizer(std::move(name)), parameters_(p), decay_(decay), mean_(scope.state()), square_(scope.state()) {}

  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    kernels::AdamParameters p = parameters_;
    p.step = step.step_size;
    const auto of = [&](const runtime::OwnedBuffer& state) { return state.buffer.part(offset, w.count()); };
    kernels::loops().adam_step(w, of(mean_), of(square_), g, p, decay_ > 0 ? 1 - step.step_size * decay_ : 1,
                               step.update_number());
  }

  std::vector<runtime::Buffer> state() override { return {mean_.buffer, square_.buffer}; }
  runtime::Cost cost(std::size_t n) const override {
    const bool decays = decay_ > 0;
    return {(decays ? 13.0 : 12.0) * double(n), (decays ? 36.0 : 28.0) * double(n)};
  }

 private:
  kernels::AdamParameters parameters_;
  float decay_;
  runtime::OwnedBuffer mean_, square_;
};

std::unique_ptr<Optimizer> with_decay(const core::ParsedName& name, const OptimizerScope& scope, float decay) {
  const kernels::AdamParameters p{.beta1 = optimizer_parameter(name, "beta1", 0, 1),
                                  .beta2 = optimizer_parameter(name, "beta2", 0, 1),
                                  .epsilon = optimizer_parameter(name, "epsilon", 0, 1)};
  return std::make_unique<Adam>(name.canonical(), scope, p, decay);
}

std::unique_ptr<Optimizer> make_adam(const core::ParsedName& name, const OptimizerScope& s) {
  return with_decay(name, s, 0);
}
std::unique_ptr<Optimizer> make_adamw(const core::ParsedName& name, const OptimizerScope& s) {
  return with_decay(name, s, optimizer_parameter(name, "decay", 0, 1));
}

class Outer final : public Optimizer {
 public:
  Outer(const OptimizerScope& scope, OuterMomentum o)
      : Optimizer(fmt::format("outer:mu={},nesterov={:d},step={}", o.mu, o.nesterov, o.step)),
        momentum_(o),
        velocity_(scope.state()) {}
  void apply(runtime::Buffer w, runtime::ConstBuffer change, std::size_t offset, UpdateStep step) override {
    if (momentum_.follows_step_size && step.number != last_.number) {
      growth_ = last_.step_size > 0 ? step.step_size / last_.step_size : 1;
      last_ = step;
    }
    // The step is negative, because a change is added, whereas the kernel subtracts gradients.
    kernels::loops().momentum(w, velocity_.buffer.part(offset, w.count()), change,
                              {-momentum_.step, growth_ * momentum_.mu, momentum_.nesterov}, step.update_number());
  }
  runtime::Cost cost(std::size_t n) const override { return {4.0 * double(n), 20.0 * double(n)}; }

 private:
  OuterMomentum momentum_;
  UpdateStep last_{.step_size = 0, .number = 0};
  float growth_ = 1;  ///< the factor by which the step size has grown since the last update
  runtime::OwnedBuffer velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_outer_momentum(const OptimizerScope& scope, OuterMomentum o) {
  return std::make_unique<Outer>(scope, o);
}

namespace {

constexpr std::array optimizer_rows{
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

std::span<const OptimizerInfo> optimizers() { return optimizer_rows; }

std::unique_ptr<Optimizer> make_optimizer(std::string_view text, const OptimizerScope& scope) {
  core::ParsedName parsed = core::parse_name(text);
  const std::string format = update_format_of(text);
  parsed.parameters.erase("update");
  std::vector<std::string> names;
  for (const auto& o : optimizer_rows) {
    if (o.name == parsed.base) {
      return make_rounded(o.make(core::with_defaults("optimizer", o.name, o.parameters, parsed), scope), format, scope);
    }
    names.emplace_back(o.name);
  }
  core::refuse_unknown("optimizer", parsed.base, names);
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
  const auto value = static_cast<float>(core::number_parameter(name, key, {least, below}));
  if (value < below) return value;
  throw core::UsageError(fmt::format("{}: {} is {} in fp32, and must be less", name.canonical(), key, below));
}

}  // namespace gradmeter::dataparallel
