// SPDX-License-Identifier: Apache-2.0
#include "kernels/loops.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/attention/transformer.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/lns/lns.hpp"
#include "kernels/pointwise/bf16_weights.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "kernels/pointwise/row_sums.hpp"
#include "kernels/pointwise/updates.hpp"

namespace gradmeter::kernels {
namespace {

std::span<float> floats(const Buffer& b) { return b.values<float>(); }
std::span<const float> floats(const ConstBuffer& b) { return b.values<float>(); }

std::map<std::string, const Loops*, std::less<>>& registered_loops() {
  static std::map<std::string, const Loops*, std::less<>> table;
  return table;
}

}  // namespace

void Loops::clear(Buffer b) const { std::memset(b.host(), 0, b.bytes()); }
void Loops::copy(ConstBuffer from, Buffer to) const {
  if (from.bytes() != to.bytes()) throw std::invalid_argument("a copy between buffers of different lengths");
  if (runtime::device_access && runtime::device_access->copy(to.address(), from.address(), to.bytes())) return;
  std::memmove(to.host(), from.host(), to.bytes());
}
void Loops::fill(Buffer b, float value) const { std::ranges::fill(floats(b), value); }
void Loops::scale(Buffer b, float factor) const { kernels::scale(floats(b), factor); }

void Loops::add(ConstBuffer a, ConstBuffer b, Buffer to) const {
  vector_op(Binary::add, floats(a), floats(b), floats(to));
}

void Loops::add_and_scale(ConstBuffer a, ConstBuffer b, float factor, Buffer to) const {
  const auto x = floats(a), y = floats(b);
  const auto out = floats(to);
  require_elements("add_and_scale: a", x.size(), out.size());
  require_elements("add_and_scale: b", y.size(), out.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = (x[i] + y[i]) * factor;
}

void Loops::add_row(ConstBuffer x, ConstBuffer row, bool is_relu, Buffer to) const {
  const auto in = floats(x), added = floats(row);
  const auto out = floats(to);
  require_elements("add_row: x", in.size(), out.size());
  require_rows("add_row: x", in.size(), added.size());
  for (std::size_t first = 0; first < out.size(); first += added.size()) {
    const float* const from = in.data() + first;
    float* const y = out.data() + first;
    for (std::size_t i = 0; i < added.size(); ++i)
      y[i] = is_relu ? std::max(from[i] + added[i], 0.0F) : from[i] + added[i];
  }
}

void Loops::column_sums(ConstBuffer matrix, Buffer sums) const {
  kernels::column_sums(floats(matrix), sums.count(), floats(sums));
}

void Loops::add_channels_and_relu(ConstBuffer bias, std::size_t pixels, Buffer images) const {
  const auto added = floats(bias);
  const auto values = floats(images);
  require_rows("add_channels_and_relu: images", values.size(), added.size() * pixels);
  for (std::size_t first = 0, plane = 0; first < values.size(); first += pixels, ++plane) {
    const float b = added[plane % added.size()];
    for (float& x : values.subspan(first, pixels)) x = std::max(x + b, 0.0F);
  }
}

void Loops::channel_sums(ConstBuffer images, std::size_t pixels, Buffer to) const {
  const auto values = floats(images);
  const std::size_t channels = to.count();
  require_rows("channel_sums: images", values.size(), channels * pixels);
  RowSums sums(channels);
  std::vector<float> of_image(channels);
  for (std::size_t first = 0, plane = 0; first < values.size(); first += pixels, ++plane) {
    of_image[plane % channels] = plane_sum(values.subspan(first, pixels));
    if (plane % channels + 1 == channels) sums.add(of_image.data());
  }
  sums.finish(floats(to));
}

void Loops::relu_backward(ConstBuffer activation, Buffer gradient) const {
  kernels::relu_backward(floats(activation), floats(gradient));
}

void Loops::gelu(ConstBuffer x, Buffer y) const { kernels::gelu(floats(x), floats(y)); }
void Loops::gelu_backward(ConstBuffer x, ConstBuffer delta, Buffer to) const {
  kernels::gelu_backward(floats(x), floats(delta), floats(to));
}
void Loops::layer_norm(ConstBuffer x, ConstBuffer gain, ConstBuffer bias, Buffer y) const {
  kernels::layer_norm(floats(x), floats(gain), floats(bias), floats(y));
}
void Loops::layer_norm_backward(ConstBuffer x, ConstBuffer gain, ConstBuffer delta, Buffer to) const {
  kernels::layer_norm_backward(floats(x), floats(gain), floats(delta), floats(to));
}
void Loops::layer_norm_backward_parameters(ConstBuffer x, ConstBuffer delta, Buffer gain, Buffer bias) const {
  kernels::layer_norm_backward_parameters(floats(x), floats(delta), floats(gain), floats(bias));
}
void Loops::causal_softmax(Buffer scores, std::size_t steps, float scale) const {
  kernels::causal_softmax(floats(scores), steps, scale);
}
void Loops::causal_softmax_backward(ConstBuffer probabilities, Buffer gradient, std::size_t steps, float scale) const {
  kernels::causal_softmax_backward(floats(probabilities), floats(gradient), steps, scale);
}

namespace {

std::size_t row_of(float word, std::size_t words) {
  if (word >= 0 && word < static_cast<float>(words)) return static_cast<std::size_t>(word);
  throw std::out_of_range(fmt::format("embedding: {} is no number of {} words", word, words));
}

}  // namespace

void Loops::embed(ConstBuffer words, ConstBuffer table, std::size_t width, Buffer to) const {
  const auto rows = floats(table);
  require_elements("embed: to", to.count(), words.count() * width);
  auto out = floats(to).begin();
  for (const float word : floats(words))
    out = std::ranges::copy(rows.subspan(row_of(word, rows.size() / width) * width, width), out).out;
}

void Loops::embed_backward(ConstBuffer words, ConstBuffer delta, std::size_t width, bool clears, Buffer table) const {
  const auto rows = floats(table);
  require_elements("embed_backward: delta", delta.count(), words.count() * width);
  if (clears) std::ranges::fill(rows, 0.0F);
  const float* from = floats(delta).data();
  for (const float word : floats(words))
    for (float& sum : rows.subspan(row_of(word, rows.size() / width) * width, width)) sum += *from++;
}

void Loops::swap_rows_and_columns(ConstBuffer from, std::size_t rows, std::size_t columns, std::size_t width,
                                  Buffer to) const {
  require_elements("swap_rows_and_columns: from", from.count(), rows * columns * width);
  require_elements("swap_rows_and_columns: to", to.count(), from.count());
  const float* const in = floats(from).data();
  float* const out = floats(to).data();
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      std::memcpy(out + (c * rows + r) * width, in + (r * columns + c) * width, width * sizeof(float));
}

void Loops::reorder_heads(ConstBuffer from, const HeadLayout& s, Buffer to) const {
  require_rows("reorder_heads: from", from.count(), s.samples * s.steps * s.heads * s.width);
  require_elements("reorder_heads: to", to.count(), from.count());
  const float* const in = floats(from).data();
  float* const out = floats(to).data();
  const std::size_t parts = from.count() / (s.samples * s.steps * s.heads * s.width);
  std::size_t token = 0;
  for (std::size_t n = 0; n < s.samples; ++n)
    for (std::size_t t = 0; t < s.steps; ++t)
      for (std::size_t p = 0; p < parts; ++p)
        for (std::size_t h = 0; h < s.heads; ++h, token += s.width) {
          const std::size_t head = (((p * s.samples + n) * s.heads + h) * s.steps + t) * s.width;
          const std::size_t source = s.to_heads ? token : head, target = s.to_heads ? head : token;
          std::memcpy(out + target, in + source, s.width * sizeof(float));
        }
}

void Loops::sgd(Buffer w, ConstBuffer g, float step, const UpdateNumber& number) const {
  if (!number.is_skipped()) kernels::sgd(floats(w), floats(g), step);
}
void Loops::momentum(Buffer w, Buffer v, ConstBuffer g, MomentumParameters p, const UpdateNumber& number) const {
  if (!number.is_skipped()) kernels::momentum(floats(w), floats(v), floats(g), p);
}
void Loops::adam(Buffer w, Buffer m, Buffer v, ConstBuffer g, AdamParameters p, float decay_factor) const {
  if (decay_factor != 1) kernels::scale(floats(w), decay_factor);
  kernels::adam(floats(w), floats(m), floats(v), floats(g), p);
}

void Loops::adam_step(Buffer w, Buffer m, Buffer v, ConstBuffer g, AdamParameters p, float decay_factor,
                      const UpdateNumber& number) const {
  if (number.is_skipped()) return;
  p.update = number.number_without_skipped();
  p.epsilon = adam_epsilon(p.epsilon, p.beta2, p.update);
  adam(w, m, v, g, p, decay_factor);
}

namespace {

void set_sums(const Buffer& sums, std::size_t piece, NormSquares s) {
  const auto at = sums.values<double>().subspan(2 * piece, 2);
  at[0] = s.weight_squares, at[1] = s.other_squares;
}
NormSquares sums_of(const ConstBuffer& sums, std::size_t piece) {
  const auto at = sums.values<double>().subspan(2 * piece, 2);
  return {at[0], at[1]};
}

}  // namespace

void Loops::lars_norms(ConstBuffer w, ConstBuffer g, Pieces pieces, Buffer sums) const {
  for (std::size_t i = 0; i < pieces.size(); ++i)
    set_sums(sums, i, kernels::lars_norms(floats(w), floats(g), pieces[i]));
}
void Loops::lars(Buffer w, Buffer v, ConstBuffer g, Pieces pieces, ConstBuffer sums, LarsParameters p,
                 const UpdateNumber& number) const {
  if (number.is_skipped()) return;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    kernels::lars(floats(w), floats(v), floats(g), pieces[i], sums_of(sums, i), p);
}
void Loops::lamb_norms(ConstBuffer w, Buffer m, Buffer v, ConstBuffer g, Pieces pieces, Buffer sums, LambParameters p,
                       const UpdateNumber& number) const {
  if (number.is_skipped()) return;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    set_sums(
        sums, i,
        kernels::lamb_norms(floats(w), floats(m), floats(v), floats(g), pieces[i], p, number.number_without_skipped()));
}
void Loops::lamb(Buffer w, ConstBuffer m, ConstBuffer v, Pieces pieces, ConstBuffer sums, LambParameters p,
                 const UpdateNumber& number) const {
  if (number.is_skipped()) return;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    kernels::lamb(floats(w), floats(m), floats(v), pieces[i], sums_of(sums, i), p, number.number_without_skipped());
}

namespace {

constexpr std::size_t grain = 1 << 14;  // elements for each thread at least

void round_at_random(std::span<float> w, std::span<const float> target, std::uint64_t place,
                     std::uint64_t update_number) {
  constexpr std::size_t each = Bf16Stochastic::numbers_per_draw;
  const core::Random random(Bf16Stochastic::seed, update_number);
  std::array<std::uint64_t, 256> draws;
  const std::uint64_t end = place + w.size();
  for (std::uint64_t first = place; first < end;) {
    const std::uint64_t block = first / each;
    const std::uint64_t last = std::min<std::uint64_t>(end, (block + draws.size()) * each);
    random.bits(block, std::span(draws).first((last - 1) / each + 1 - block));
    for (; first < last; ++first)
      w[first - place] = Bf16Stochastic::rounded(target[first - place], draws[first / each - block], first);
  }
}

}  // namespace

void Loops::bf16_nearest(ConstBuffer target, Buffer to, const UpdateNumber& number) const {
  if (number.is_skipped()) return;
  const auto in = floats(target);
  const auto out = floats(to);
  require_elements("bf16_nearest: target", in.size(), out.size());
  split(out.size(), grain, [=](std::size_t first, std::size_t n) {
    for (std::size_t i = first; i < first + n; ++i) out[i] = kernels::bf16_nearest(in[i]);
  });
}
void Loops::bf16_kahan(Buffer weights, ConstBuffer target, Buffer carry, const UpdateNumber& number) const {
  if (number.is_skipped()) return;
  const auto w = floats(weights), carries = floats(carry);
  const auto targets = floats(target);
  require_elements("bf16_kahan: target", targets.size(), w.size());
  require_elements("bf16_kahan: carry", carries.size(), w.size());
  split(w.size(), grain, [=](std::size_t first, std::size_t n) {
    for (std::size_t i = first; i < first + n; ++i) kernels::bf16_kahan(w[i], targets[i], carries[i]);
  });
}
void Loops::bf16_stochastic(Buffer weights, ConstBuffer target, std::uint64_t place, const UpdateNumber& number) const {
  if (number.is_skipped()) return;
  const auto w = floats(weights);
  const auto targets = floats(target);
  require_elements("bf16_stochastic: target", targets.size(), w.size());
  split(w.size(), grain, [&](std::size_t first, std::size_t n) {
    round_at_random(w.subspan(first, n), targets.subspan(first, n), place + first, number.number_without_skipped());
  });
}

void Loops::lns_round(unsigned fraction_bits, Buffer w) const { kernels::lns_round(fraction_bits, floats(w)); }
void Loops::lns_update(LnsUpdateRule u, Buffer w, ConstBuffer target, Buffer carry, const UpdateNumber& number) const {
  if (!number.is_skipped()) kernels::lns_update(u, floats(w), floats(target), floats(carry));
}
void Loops::lns_descend(LnsUpdateRule u, Buffer w, ConstBuffer g, float step, Buffer carry,
                        const UpdateNumber& number) const {
  if (!number.is_skipped()) kernels::lns_descend(u, floats(w), floats(g), step, floats(carry));
}

void Loops::unscale(Buffer gradients, ConstBuffer scale) const {
  const float inverse = 1 / floats(scale)[0];
  split(gradients.count(), grain, [inverse, values = floats(gradients)](std::size_t first, std::size_t n) {
    for (float& g : values.subspan(first, n)) g *= inverse;
  });
}

void Loops::note_non_finite(ConstBuffer gradients, Buffer counts) const {
  std::atomic<bool> is_finite = true;
  split(gradients.count(), grain, [&, values = floats(gradients)](std::size_t first, std::size_t n) {
    constexpr std::uint32_t exponent = 0x7f800000;
    std::uint32_t found = 0;
    for (const float g : values.subspan(first, n))
      found |= (std::bit_cast<std::uint32_t>(g) & exponent) == exponent ? 1 : 0;
    if (found != 0) is_finite = false;
  });
  if (!is_finite) counts.values<std::int64_t>()[0] = 1;
}

void Loops::end_step(Buffer scale, Buffer counts_buffer, std::int64_t growth_interval) const {
  const auto at = counts_buffer.values<std::int64_t>();
  LossScaleCounts counts{.skips_step = at[0], .skipped = at[1], .good = at[2]};
  kernels::end_step(floats(scale)[0], counts, growth_interval);
  at[0] = counts.skips_step, at[1] = counts.skipped, at[2] = counts.good;
}

namespace {

float gradient_scale(const ConstBuffer& loss_scale, std::size_t labels) {
  return (loss_scale.count() > 0 ? floats(loss_scale)[0] : 1.0F) / static_cast<float>(labels);
}

}  // namespace

void Loops::cross_entropy(ConstBuffer logits, ConstBuffer labels, ConstBuffer loss_scale, Buffer gradient,
                          const TakeLoss& take) const {
  const auto y = labels.values<std::int32_t>();
  take(softmax_cross_entropy(floats(logits), y, logits.count() / y.size(), gradient_scale(loss_scale, y.size()),
                             floats(gradient)));
}
void Loops::lns_cross_entropy(unsigned fraction_bits, ConstBuffer logits, ConstBuffer labels, ConstBuffer loss_scale,
                              Buffer gradient, const TakeLoss& take) const {
  const auto y = labels.values<std::int32_t>();
  take(lns_softmax_cross_entropy(Lns(fraction_bits), floats(logits), y, logits.count() / y.size(),
                                 gradient_scale(loss_scale, y.size()), floats(gradient)));
}

const Loops& loops() {
  static const Loops host;
  if (!runtime::device_access) return host;
  const auto found = registered_loops().find(runtime::device_access->kernels());
  return found == registered_loops().end() ? host : *found->second;
}

void add_loops(std::string_view kernels, const Loops& l) { registered_loops()[std::string(kernels)] = &l; }

}  // namespace gradmeter::kernels
