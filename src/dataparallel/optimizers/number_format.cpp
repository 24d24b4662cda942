#include "dataparallel/optimizers/number_format.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/bf16_update.hpp"
#include "kernels/lns/lns.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::dataparallel {
namespace {

using kernels::bf16_nearest;

constexpr std::size_t add_grain = 1 << 14;  // elements for each thread at least

class Bf16Nearest : public UpdateFormat {
 public:
  void round(std::span<float> weights) const override {
    for (float& w : weights) w = bf16_nearest(w);
  }
  void add(std::span<float> w, std::span<const float> target, std::span<float>, std::size_t,
           std::uint64_t) const override {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = bf16_nearest(target[i]);
  }
};

class Bf16Kahan final : public Bf16Nearest {
 public:
  bool has_carry() const override { return true; }
  void add(std::span<float> w, std::span<const float> target, std::span<float> carry, std::size_t,
           std::uint64_t) const override {
    for (std::size_t i = 0; i < w.size(); ++i) kernels::bf16_kahan(w[i], target[i], carry[i]);
  }
};

class Bf16Stochastic final : public Bf16Nearest {
 public:
  void add(std::span<float> w, std::span<const float> target, std::span<float>, std::size_t place,
           std::uint64_t step) const override {
    using Rule = kernels::Bf16Stochastic;
    constexpr std::size_t each = Rule::each;
    const core::Random random(Rule::seed, step);
    std::array<std::uint64_t, 256> draws;
    const std::uint64_t end = place + w.size();
    for (std::uint64_t first = place; first < end;) {
      const std::uint64_t block = first / each;
      const std::uint64_t last = std::min<std::uint64_t>(end, (block + draws.size()) * each);
      random.bits(block, std::span(draws).first((last - 1) / each + 1 - block));
      for (; first < last; ++first) {
        w[first - place] = Rule::rounded(target[first - place], draws[first / each - block], first);
      }
    }
  }
};

/// Words of as many numbers as stay in a core's cache while they are added.
struct LnsBlock {
  static constexpr std::size_t most = 1024;
  std::array<kernels::Lns16, most> w, change, carry;
  std::array<float, most> difference;
};

/// block(w, other, carry) over parts of equal length; the carry may be empty.
template <class Block>
void each_block(std::span<float> w, std::span<const float> other, std::span<float> carry, const Block& block) {
  for (std::size_t first = 0; first < w.size(); first += LnsBlock::most) {
    const std::size_t n = std::min(LnsBlock::most, w.size() - first);
    block(w.subspan(first, n), other.subspan(first, n), carry.empty() ? carry : carry.subspan(first, n));
  }
}

class LnsUpdate final : public UpdateFormat {
 public:
  LnsUpdate(unsigned fraction_bits, bool kahan) : lns_(fraction_bits), kahan_(kahan) {}
  bool has_carry() const override { return kahan_; }
  bool has_products() const override { return true; }

  void round(std::span<float> weights) const override {
    std::vector<kernels::Lns16> words(weights.size());
    kernels::lns_encode(lns_, weights, words);
    kernels::lns_decode(lns_, words, weights);
  }

  void add(std::span<float> w, std::span<const float> target, std::span<float> carry, std::size_t,
           std::uint64_t) const override {
    each_block(w, target, carry, [&](auto to, auto from, auto kept) {
      LnsBlock b;
      for (std::size_t i = 0; i < to.size(); ++i) b.difference[i] = from[i] - to[i];
      kernels::lns_encode(lns_, std::span(b.difference).first(to.size()), std::span(b.change).first(to.size()));
      add_changes(b, to, kept);
    });
  }

  void descend(std::span<float> w, std::span<const float> gradient, float size, std::span<float> carry) const override {
    const kernels::Lns16 factor = lns_.encode(-double{size});
    each_block(w, gradient, carry, [&](auto to, auto from, auto kept) {
      LnsBlock b;
      const std::span changes = std::span(b.change).first(to.size());
      kernels::lns_encode(lns_, from, changes);
      for (kernels::Lns16& x : changes) x = lns_.multiply(x, factor);
      add_changes(b, to, kept);
    });
  }

 private:
  void add_changes(LnsBlock& b, std::span<float> w, std::span<float> carry) const {
    const std::size_t n = w.size();
    const std::span words = std::span(b.w).first(n), changes = std::span(b.change).first(n);
    kernels::lns_encode(lns_, w, words);
    if (!kahan_) {
      for (std::size_t i = 0; i < n; ++i) words[i] = lns_.add(words[i], changes[i]);
    } else {
      const std::span carries = std::span(b.carry).first(n);
      kernels::lns_encode(lns_, carry, carries);
      for (std::size_t i = 0; i < n; ++i) {
        kernels::LnsKahan sum{.w = words[i], .c = carries[i]};
        sum.add(lns_, changes[i]);
        words[i] = sum.w;
        carries[i] = sum.c;
      }
      kernels::lns_decode(lns_, carries, carry);
    }
    kernels::lns_decode(lns_, words, w);
  }

  kernels::Lns lns_;
  bool kahan_;
};

template <class Format>
std::unique_ptr<UpdateFormat> make_plain() {
  return std::make_unique<Format>();
}
template <unsigned fraction_bits, bool kahan>
std::unique_ptr<UpdateFormat> make_lns() {
  return std::make_unique<LnsUpdate>(fraction_bits, kahan);
}

struct Row {
  UpdateFormatInfo info;
  std::unique_ptr<UpdateFormat> (*make)();
};
constexpr std::string_view kahan_source = "Zamirai et al., 2020; Kahan, CACM 8(1), 1965";
constexpr std::string_view lns_source = "Coleman et al., IEEE Trans. Computers 49(7), 2000";
constexpr std::array rows{
    Row{{"fp32", "w + change in fp32", "-"}, nullptr},
    Row{{"bf16", "rounded to nearest, ties to even", "Kalamkar et al., 2019"}, make_plain<Bf16Nearest>},
    Row{{"bf16-kahan", "with a carry in bf16 that keeps what rounding took", kahan_source}, make_plain<Bf16Kahan>},
    Row{{"bf16-sr", "rounded up with the probability of what would be cut", "Gupta et al., ICML 2015"},
        make_plain<Bf16Stochastic>},
    Row{{"lns16", "added as logarithms, 8 fraction bits", lns_source}, make_lns<8, false>},
    Row{{"lns16-kahan", "the same with a carry", kahan_source}, make_lns<8, true>},
    Row{{"lns16-f7", "as lns16 with 7 fraction bits", lns_source}, make_lns<7, false>},
    Row{{"lns16-f7-kahan", "the same with a carry", kahan_source}, make_lns<7, true>},
    Row{{"lns16-f6", "as lns16 with 6 fraction bits", lns_source}, make_lns<6, false>},
    Row{{"lns16-f6-kahan", "the same with a carry", kahan_source}, make_lns<6, true>},
};
constexpr auto infos = [] {
  std::array<UpdateFormatInfo, rows.size()> out{};
  for (std::size_t i = 0; i < rows.size(); ++i) out[i] = rows[i].info;
  return out;
}();

class Rounded final : public Optimizer {
 public:
  Rounded(std::string name, std::unique_ptr<Optimizer> inside, std::unique_ptr<UpdateFormat> format,
          const OptimizerScope& s)
      : Optimizer(std::move(name)),
        inside_(std::move(inside)),
        format_(std::move(format)),
        descends_(format_->has_products() && inside_->name() == "sgd"),
        first_(s.first),
        target_(descends_ ? runtime::OwnedBuffer{} : s.state()),
        carry_(format_->has_carry() ? s.state() : runtime::OwnedBuffer{}) {}

  bool needs_whole_tensors() const override { return inside_->needs_whole_tensors(); }
  bool shares() const override { return inside_->shares(); }
  void measure(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    inside_->measure(w, g, offset, step);
  }
  runtime::Cost measure_cost(std::size_t n) const override { return inside_->measure_cost(n); }
  void share() override { inside_->share(); }
  std::vector<runtime::Buffer> state() override { return inside_->state(); }

  void apply(runtime::Buffer weights, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    const std::span<float> w = weights.values<float>();
    const std::span<const float> target = descends_ ? w : target_of(w, g, offset, step);
    const auto carry =
        format_->has_carry() ? carry_.buffer.part(offset, weights.count()).values<float>() : std::span<float>();
    kernels::split(w.size(), add_grain, [&](std::size_t at, std::size_t n) {
      const std::span<float> kept = carry.empty() ? carry : carry.subspan(at, n);
      if (descends_) return format_->descend(w.subspan(at, n), g.values<float>().subspan(at, n), step.size, kept);
      format_->add(w.subspan(at, n), target.subspan(at, n), kept, first_ + offset + at, step.number);
    });
  }

  runtime::Cost cost(std::size_t n) const override {
    const runtime::Cost step = inside_->cost(n);
    const auto count = static_cast<double>(n);
    return {.flops = step.flops + (format_->has_carry() ? 4 : 1) * count,
            .bytes = step.bytes + (format_->has_carry() ? 28 : 20) * count};
  }

 private:
  /// What the optimizer inside makes of the weights, in fp32.
  std::span<const float> target_of(std::span<const float> w, runtime::ConstBuffer g, std::size_t offset,
                                   UpdateStep step) {
    const runtime::Buffer to = target_.buffer.part(offset, w.size());
    std::ranges::copy(w, to.values<float>().begin());
    inside_->apply(to, g, offset, step);
    return to.values<float>();
  }

  std::unique_ptr<Optimizer> inside_;
  std::unique_ptr<UpdateFormat> format_;
  bool descends_;  ///< the format makes the whole step
  std::size_t first_;
  runtime::OwnedBuffer target_, carry_;
};

}  // namespace

void UpdateFormat::descend(std::span<float>, std::span<const float>, float, std::span<float>) const {
  throw std::logic_error("the format has no products of its own");
}

std::span<const UpdateFormatInfo> update_formats() { return infos; }

std::unique_ptr<UpdateFormat> make_update_format(std::string_view name) {
  std::vector<std::string> known;
  for (const Row& r : rows) {
    if (r.info.name == name) return r.make ? r.make() : nullptr;
    known.emplace_back(r.info.name);
  }
  core::refuse_unknown("update format", name, known);
}

std::string with_update_format(std::string_view optimizer, std::string_view format) {
  (void)make_update_format(format);
  core::ParsedName name = core::parse_name(optimizer);
  const auto given = name.parameters.find("update");
  if (given != name.parameters.end() && given->second != format)
    throw core::UsageError(
        fmt::format("optimizer '{}' and --update {} name two formats for the weights; give one", optimizer, format));
  if (format != "fp32") name.parameters["update"] = format;
  return name.canonical();
}

std::string update_format_of(std::string_view optimizer) {
  const core::ParsedName name = core::parse_name(optimizer);
  const auto given = name.parameters.find("update");
  return given == name.parameters.end() ? "fp32" : given->second;
}

std::unique_ptr<Optimizer> make_rounded(std::unique_ptr<Optimizer> inside, std::string_view format,
                                        const OptimizerScope& s) {
  auto made = make_update_format(format);
  if (!made) return inside;
  std::string name = with_update_format(inside->name(), format);
  return std::make_unique<Rounded>(std::move(name), std::move(inside), std::move(made), s);
}

}  // namespace gradmeter::dataparallel
