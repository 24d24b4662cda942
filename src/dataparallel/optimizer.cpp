#include "dataparallel/optimizer.hpp"

#include <array>
#include <charconv>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::dataparallel {
namespace {

class Sgd final : public Optimizer {
 public:
  const std::string& name() const override { return name_; }
  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t, float step) override {
    kernels::sgd(w.values<float>(), g.values<float>(), step);
  }
  model::Cost cost(std::size_t n) const override { return {2.0 * double(n), 12.0 * double(n)}; }

 private:
  std::string name_ = "sgd";
};

class Momentum final : public Optimizer {
 public:
  Momentum(std::string name, std::size_t elements, float mu, bool nesterov)
      : name_(std::move(name)), mu_(mu), nesterov_(nesterov), velocity_(elements, 0.0f) {}
  const std::string& name() const override { return name_; }
  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, float step) override {
    kernels::momentum(w.values<float>(), std::span<float>(velocity_).subspan(offset, w.count()), g.values<float>(),
                      {step, mu_, nesterov_});
  }
  model::Cost cost(std::size_t n) const override { return {4.0 * double(n), 20.0 * double(n)}; }

 private:
  std::string name_;
  float mu_;
  bool nesterov_;
  std::vector<float> velocity_;
};

constexpr std::array table{
    OptimizerInfo{"sgd", "Robbins & Monro 1951"},
    OptimizerInfo{"momentum", "Polyak 1964"},
    OptimizerInfo{"nesterov", "Nesterov 1983"},
};

float fraction(const std::string& text, std::string_view what) {
  float value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value < 1)) {
    throw core::UsageError(fmt::format("{} is '{}'; it must be a number from 0 to below 1", what, text));
  }
  return value;
}

}  // namespace

std::span<const OptimizerInfo> optimizers() { return table; }

std::unique_ptr<Optimizer> make_optimizer(std::string_view text, std::size_t elements) {
  core::ParsedName name = core::parse_name(text);
  const bool nesterov = name.base == "nesterov";
  if (name.base != "sgd" && name.base != "momentum" && !nesterov) {
    std::vector<std::string> known;
    for (const auto& o : table) known.emplace_back(o.name);
    core::refuse_unknown("optimizer", name.base, known);
  }
  for (const auto& [key, value] : name.parameters) {
    if (name.base == "sgd" || key != "mu") {
      throw core::UsageError(fmt::format("optimizer {} has no parameter '{}'; {}", name.base, key,
                                         name.base == "sgd" ? "it takes none" : "it takes mu=0.9"));
    }
  }
  if (!name.bare.empty()) throw core::UsageError(fmt::format("optimizer '{}': parameters are written mu=0.9", text));
  if (name.base == "sgd") return std::make_unique<Sgd>();
  std::string& mu = name.parameters.try_emplace("mu", "0.9").first->second;
  const float value = fraction(mu, "mu");
  mu = fmt::format("{}", value);  // 0.90 and 0.9 are one name
  return std::make_unique<Momentum>(name.canonical(), elements, value, nesterov);
}

}  // namespace gradmeter::dataparallel
