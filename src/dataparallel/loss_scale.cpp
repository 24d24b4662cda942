#include "dataparallel/loss_scale.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t gradient_grain = 1 << 14;  // elements for each thread at least
constexpr double least_scale = 0x1p-30, most_scale = 0x1p30;

float scale_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least_scale && value <= most_scale))
    throw core::UsageError(
        fmt::format("loss scale '{}' is not known; there are: none, a number such as 1024 from 2^-30 to 2^30, and "
                    "dynamic:start=65536,grow=2000",
                    text));
  return static_cast<float>(value);
}

class Skipping final : public Optimizer {
 public:
  Skipping(std::unique_ptr<Optimizer> inside, const LossScaler& scaler)
      : Optimizer(inside->name()), inside_(std::move(inside)), scaler_(scaler) {}

  bool needs_whole_tensors() const override { return inside_->needs_whole_tensors(); }
  bool shares() const override { return inside_->shares(); }
  void measure(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    inside_->measure(w, g, offset, counted(step));
  }
  runtime::Cost measure_cost(std::size_t n) const override { return inside_->measure_cost(n); }
  void share() override { inside_->share(); }
  std::vector<runtime::Buffer> state() override { return inside_->state(); }
  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    if (!scaler_.skips()) inside_->apply(w, g, offset, counted(step));
  }
  runtime::Cost cost(std::size_t n) const override { return inside_->cost(n); }

 private:
  /// Adam's bias is that of the steps that it has seen.
  UpdateStep counted(UpdateStep s) const {
    s.number -= scaler_.state().skipped;
    return s;
  }
  std::unique_ptr<Optimizer> inside_;
  const LossScaler& scaler_;
};

}  // namespace

std::string LossScaling::text() const {
  if (!used()) return "none";
  return adapts() ? fmt::format("dynamic:grow={},start={}", grow, start) : fmt::format("{}", start);
}

LossScaling parse_loss_scaling(std::string_view text) {
  if (text == "none") return {};
  const core::ParsedName name = core::parse_name(text);
  if (name.base != "dynamic") return {.start = scale_of(text)};
  const auto n = core::with_defaults("loss scale", "dynamic", "grow=2000,start=65536", name);
  return {.start = scale_of(n.parameters.at("start")),
          .grow = core::count_parameter(n, "grow", {.least = 1, .most = 1'000'000'000})};
}

void LossScaler::unscale(std::span<float> gradients) const {
  const float inverse = 1 / scale_;
  kernels::split(gradients.size(), gradient_grain, [&](std::size_t first, std::size_t n) {
    for (float& g : gradients.subspan(first, n)) g *= inverse;
  });
}

void LossScaler::submit_check(runtime::Queue& queue, runtime::ConstBuffer gradients) {
  const auto n = static_cast<double>(gradients.count());
  queue.submit("update.check", {.flops = n, .bytes = 4 * n}, [=, this] { check(gradients.values<float>()); });
}

void LossScaler::submit_end_of_step(runtime::Queue& queue) {
  queue.submit("update.scale", {}, [this] { end_step(); });
}

void LossScaler::check(std::span<const float> gradients) {
  kernels::split(gradients.size(), gradient_grain, [&](std::size_t first, std::size_t n) {
    constexpr std::uint32_t exponent = 0x7f800000;
    std::uint32_t found = 0;
    for (const float g : gradients.subspan(first, n))
      found |= (std::bit_cast<std::uint32_t>(g) & exponent) == exponent ? 1 : 0;
    if (found != 0) skips_ = true;
  });
}

void LossScaler::end_step() {
  if (skips_.exchange(false)) {
    scale_ = std::max(scale_ / 2, std::numeric_limits<float>::min());
    good_ = 0;
    ++skipped_;
  } else if (++good_ == scaling_.grow) {
    if (std::isfinite(scale_ * 2)) scale_ *= 2;
    good_ = 0;
  }
}

std::unique_ptr<Optimizer> make_skipping(std::unique_ptr<Optimizer> inside, const LossScaler* scaler) {
  if (!scaler || !scaler->adapts()) return inside;
  return std::make_unique<Skipping>(std::move(inside), *scaler);
}

}  // namespace gradmeter::dataparallel
