// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/optimizers/weight_format.hpp"

#include <array>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

class Bf16Nearest : public UpdateFormat {
 public:
  void round(Buffer weights) const override { kernels::loops().bf16_nearest(weights, weights, {}); }
  void add(Buffer w, ConstBuffer target, Buffer, std::size_t, const UpdateStep& step) const override {
    kernels::loops().bf16_nearest(target, w, step.update_number());
  }
};

class Bf16Kahan final : public Bf16Nearest {
 public:
  bool has_carry() const override { return true; }
  void add(Buffer w, ConstBuffer target, Buffer carry, std::size_t, const UpdateStep& step) const override {
    kernels::loops().bf16_kahan(w, target, carry, step.update_number());
  }
};

class Bf16Stochastic final : public Bf16Nearest {
 public:
  void add(Buffer w, ConstBuffer target, Buffer, std::size_t place, const UpdateStep& step) const override {
    kernels::loops().bf16_stochastic(w, target, place, step.update_number());
  }
};

class LnsUpdateRule final : public UpdateFormat {
 public:
  explicit LnsUpdateRule(kernels::LnsUpdateRule rule) : rule_(rule) {}
  bool has_carry() const override { return rule_.kahan; }
  bool has_products() const override { return true; }
  void round(Buffer weights) const override { kernels::loops().lns_round(rule_.fraction_bits, weights); }
  void add(Buffer w, ConstBuffer target, Buffer carry, std::size_t, const UpdateStep& step) const override {
    kernels::loops().lns_update(rule_, w, target, carry, step.update_number());
  }
  void descend(Buffer w, ConstBuffer gradient, Buffer carry, const UpdateStep& step) const override {
    kernels::loops().lns_descend(rule_, w, gradient, step.step_size, carry, step.update_number());
  }

 private:
  kernels::LnsUpdateRule rule_;
};

template <class Format>
std::unique_ptr<UpdateFormat> make_plain() {
  return std::make_unique<Format>();
}
template <unsigned fraction_bits, bool kahan>
std::unique_ptr<UpdateFormat> make_lns() {
  return std::make_unique<LnsUpdateRule>(kernels::LnsUpdateRule{fraction_bits, kahan});
}

constexpr std::string_view kahan_source = "Zamirai et al., 2020; Kahan, CACM 8(1), 1965";
constexpr std::string_view lns_source = "Coleman et al., IEEE Trans. Computers 49(7), 2000";
constexpr std::array format_rows{
    UpdateFormatInfo{"fp32", "w + change in fp32", "-", nullptr},
    UpdateFormatInfo{"bf16", "rounded to nearest, ties to even", "Kalamkar et al., 2019", make_plain<Bf16Nearest>},
    UpdateFormatInfo{"bf16-kahan", "with a carry in bf16 that keeps what rounding took", kahan_source,
                     make_plain<Bf16Kahan>},
    UpdateFormatInfo{"bf16-sr", "rounded up with the probability of what would be cut", "Gupta et al., ICML 2015",
                     make_plain<Bf16Stochastic>},
    UpdateFormatInfo{"lns16", "added as logarithms, 8 fraction bits", lns_source, make_lns<8, false>},
    UpdateFormatInfo{"lns16-kahan", "the same with a carry", kahan_source, make_lns<8, true>},
    UpdateFormatInfo{"lns16-f7", "as lns16 with 7 fraction bits", lns_source, make_lns<7, false>},
    UpdateFormatInfo{"lns16-f7-kahan", "the same with a carry", kahan_source, make_lns<7, true>},
    UpdateFormatInfo{"lns16-f6", "as lns16 with 6 fraction bits", lns_source, make_lns<6, false>},
    UpdateFormatInfo{"lns16-f6-kahan", "the same with a carry", kahan_source, make_lns<6, true>},
};

/// Applies an inner optimizer to weights in a format.
class Rounded final : public Optimizer {
 public:
  Rounded(std::string name, std::unique_ptr<Optimizer> inner, std::unique_ptr<UpdateFormat> format,
          const OptimizerScope& scope)
      : Optimizer(std::move(name)),
        inner_(std::move(inner)),
        format_(std::move(format)),
        descends_(format_->has_products() && inner_->name() == "sgd"),
        first_(scope.first),
        target_(descends_ ? runtime::OwnedBuffer{} : scope.state()),
        carry_(format_->has_carry() ? scope.state() : runtime::OwnedBuffer{}) {}

  bool needs_whole_tensors() const override { return inner_->needs_whole_tensors(); }
  bool has_tensor_parts() const override { return inner_->has_tensor_parts(); }
  void measure(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    inner_->measure(w, g, offset, step);
  }
  runtime::Cost measure_cost(std::size_t n) const override { return inner_->measure_cost(n); }
  void share_norms() override { inner_->share_norms(); }
  std::vector<runtime::Buffer> state() override { return inner_->state(); }
  std::size_t kept_per_element() override {
    return inner_->kept_per_element() + (descends_ ? 0 : 1) + (format_->has_carry() ? 1 : 0);
  }

  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    const runtime::Buffer carry = format_->has_carry() ? carry_.buffer.part(offset, w.count()) : runtime::empty_buffer;
    if (descends_) return format_->descend(w, g, carry, step);
    // The inner optimizer changes a copy of the weights, in fp32.
    const runtime::Buffer target = target_.buffer.part(offset, w.count());
    kernels::loops().copy(w, target);
    inner_->apply(target, g, offset, step);
    format_->add(w, target, carry, first_ + offset, step);
  }

  runtime::Cost cost(std::size_t n) const override {
    const runtime::Cost step = inner_->cost(n);
    const auto count = static_cast<double>(n);
    return {.flops = step.flops + (format_->has_carry() ? 4 : 1) * count,
            .bytes = step.bytes + (format_->has_carry() ? 28 : 20) * count};
  }

 private:
  std::unique_ptr<Optimizer> inner_;
  std::unique_ptr<UpdateFormat> format_;
  bool descends_;  ///< the format makes the whole step
  std::size_t first_;
  runtime::OwnedBuffer target_, carry_;
};

}  // namespace

void UpdateFormat::descend(Buffer, ConstBuffer, Buffer, const UpdateStep&) const {
  throw std::logic_error("the format has no products of its own");
}

std::span<const UpdateFormatInfo> update_formats() { return format_rows; }

std::unique_ptr<UpdateFormat> make_update_format(std::string_view name) {
  std::vector<std::string> known;
  for (const UpdateFormatInfo& r : format_rows) {
    if (r.name == name) return r.make ? r.make() : nullptr;
    known.emplace_back(r.name);
  }
  core::refuse_unknown("update format", name, known);
}

std::string with_update_format(std::string_view optimizer, std::string_view format) {
  (void)make_update_format(format);
  core::ParsedName name = core::parse_name(optimizer);
  const auto update = name.parameters.find("update");
  // fp32 is what is taken where no format is asked for, so it contradicts none that the optimizer's name has.
  if (format != "fp32" && update != name.parameters.end() && update->second != format)
    throw core::UsageError(
        fmt::format("optimizer '{}' and --update {} name two formats for the weights; give one", optimizer, format));
  if (format != "fp32") name.parameters["update"] = format;
  return name.canonical();
}

std::string update_format_of(std::string_view optimizer) {
  const core::ParsedName name = core::parse_name(optimizer);
  const auto update = name.parameters.find("update");
  return update == name.parameters.end() ? "fp32" : update->second;
}

std::unique_ptr<Optimizer> make_rounded(std::unique_ptr<Optimizer> inner, std::string_view format,
                                        const OptimizerScope& scope) {
  auto update_format = make_update_format(format);
  if (!update_format) return inner;
  std::string name = with_update_format(inner->name(), format);
  return std::make_unique<Rounded>(std::move(name), std::move(inner), std::move(update_format), scope);
}

}  // namespace gradmeter::dataparallel
