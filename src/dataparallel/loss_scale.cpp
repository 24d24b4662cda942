// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/loss_scale.hpp"

#include <array>
#include <charconv>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

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

}  // namespace

std::string LossScaling::text() const {
  if (!used()) return "none";
  return adapts() ? fmt::format("dynamic:grow={},start={}", growth_interval, start) : fmt::format("{}", start);
}

LossScaling parse_loss_scaling(std::string_view text) {
  if (text == "none") return {};
  const core::ParsedName name = core::parse_name(text);
  if (name.base != "dynamic") return {.start = scale_of(text)};
  const auto n = core::with_defaults("loss scale", "dynamic", "grow=2000,start=65536", name);
  return {.start = scale_of(n.parameters.at("start")),
          .growth_interval = core::count_parameter(n, "grow", {.least = 1, .most = 1'000'000'000})};
}

LossScaler::LossScaler(const LossScaling& s, runtime::Device& device)
    : scaling_(s),
      scale_(device.allocate(core::Element::f32, 1)),
      counts_(device.allocate(core::Element::i64, kernels::loss_scale_words)) {
  device.make_queue()->run_and_wait([this] { kernels::loops().fill(scale_.buffer, scaling_.start); });
}

runtime::ConstBuffer LossScaler::counts() const { return adapts() ? counts_.buffer : runtime::empty_buffer; }

void LossScaler::submit_unscale(runtime::Queue& queue, runtime::Buffer gradients) const {
  const auto n = static_cast<double>(gradients.count());
  queue.submit("backward.unscale", {.flops = n, .bytes = 8 * n},
               [gradients, scale = scale_.buffer] { kernels::loops().unscale(gradients, scale); });
}

void LossScaler::submit_check(runtime::Queue& queue, runtime::ConstBuffer gradients) const {
  const auto n = static_cast<double>(gradients.count());
  queue.submit("update.check", {.flops = n, .bytes = 4 * n},
               [gradients, counts = counts_.buffer] { kernels::loops().note_non_finite(gradients, counts); });
}

void LossScaler::submit_end_of_step(runtime::Queue& queue) const {
  queue.submit("update.scale", {},
               [scale = scale_.buffer, counts = counts_.buffer,
                growth_interval = static_cast<std::int64_t>(scaling_.growth_interval)] {
                 kernels::loops().end_step(scale, counts, growth_interval);
               });
}

kernels::LossScaleCounts LossScaler::read_counts(runtime::Queue& queue) const {
  std::array<std::int64_t, kernels::loss_scale_words> words;
  queue.run_and_wait([&] { kernels::loops().copy(counts_.buffer, words); });
  return {.skips_step = words[0], .skipped = words[1], .good = words[2]};
}

bool LossScaler::skips_step(runtime::Queue& queue) const { return read_counts(queue).skips_step != 0; }

void LossScaler::note_not_finite(runtime::Queue& queue) const {
  static const std::int64_t skips_step = 1;
  queue.run_and_wait([this] { kernels::loops().copy(std::span(&skips_step, 1), counts_.buffer.part(0, 1)); });
}

LossScaler::State LossScaler::state(runtime::Queue& queue) const {
  State s{.skipped = static_cast<std::uint64_t>(read_counts(queue).skipped)};
  queue.run_and_wait([&] { kernels::loops().copy(scale_.buffer, std::span(&s.scale, 1)); });
  return s;
}

}  // namespace gradmeter::dataparallel
