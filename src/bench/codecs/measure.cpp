// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "compression/codec.hpp"
#include "compression/crossover.hpp"
#include "compression/expected_error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "runtime/clock.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {

CodecSteps::CodecSteps(const compression::CodecChoice& c, std::size_t n, std::size_t senders,
                       const std::optional<compression::MatrixShape>& shape)
    : Codec(c.name), steps_(dataparallel::make_chunk_codec(c, senders, shape)), n_(n), encoder_(steps_->encoder(n)) {}

std::size_t CodecSteps::encode(std::span<const float> x, std::byte* wire, const compression::RandomDraw& draw) const {
  draw_ = draw;
  return encoder_(x, wire, draw);
}

void CodecSteps::decode(std::span<const std::byte> wire, std::span<float> out) const {
  steps_->decode(wire, out, draw_);
}

void CodecSteps::decode_add(std::span<const std::byte> wire, std::span<const float> addend,
                            std::span<float> out) const {
  std::vector<float> decoded(out.size());
  decode(wire, decoded);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = addend[i] + decoded[i];
}

std::string codec_steps_refusal(const compression::CodecChoice& c, std::size_t n, std::size_t senders) {
  if (auto why = dataparallel::chunk_codec_refusal(c); !why.empty()) return why;
  if (dataparallel::make_chunk_codec(c, senders)->wire_bytes(n) < n * sizeof(float)) return {};
  return fmt::format("{} does not shrink a tensor of {} elements: it goes dense; take a larger --size", c.label, n);
}

namespace {

/// y += x, as in a reduction; the loop that the compiler makes is as fast as memory.
void add(std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += x[i];
}

class HostCalls final : public CodecCalls {
 public:
  explicit HostCalls(const CodecTask& t)
      : task_(t),
        memory_(arena_bytes(t)),
        y_(memory_.take_of<float>(t.gradient.size())),
        wire_(memory_.take(t.codec.wire_bytes(t.gradient.size()))),
        reducer_(t.codec, t.gradient.size()) {
    for (std::size_t p = 0; p < t.parts; ++p) {
      const auto part = memory_.take(t.codec.wire_bytes(t.gradient.size()));
      parts_.emplace_back(part.data(), t.codec.encode(t.gradient, part.data(), t.draw(p)));
    }
  }

  /// Codecs with steps do not sum encoded gradients: what they send is summed as numbers, or decoded one by one.
  bool has(CodecCall c) const override {
    return !task_.has_steps() || (c != CodecCall::decode_add && c != CodecCall::reduce_encode);
  }

  std::string fault() override {
    return !has(CodecCall::decode_add) || sums_like_decode() ? "" : "decode_add is not decode and a sum";
  }

  std::vector<double> time(CodecCall codec_call, std::size_t iterations) override {
    std::vector<double> times(iterations);
    // `y_` grows with each of thousands of calls, but not to numbers with slow arithmetic, since each block starts at
    // 0.
    if (codec_call == CodecCall::decode_add || codec_call == CodecCall::add) std::memset(y_.data(), 0, y_.size_bytes());
    for (double& t : times) {
      const double begin = runtime::host_clock();
      call(codec_call);
      t = runtime::host_clock() - begin;
    }
    return times;
  }

 private:
  static std::size_t arena_bytes(const CodecTask& t) {
    const std::size_t wire = t.codec.wire_bytes(t.gradient.size());
    return t.gradient.size_bytes() + (t.parts + 1) * wire + (t.parts + 2) * runtime::page_bytes;
  }

  bool sums_like_decode() {
    const std::size_t n = std::min<std::size_t>(task_.gradient.size(), 1u << 16);
    const auto x = task_.gradient.first(n);
    const auto wire = wire_.first(task_.codec.encode(x, wire_.data(), task_.draw()));
    std::vector<float> sum(n);
    task_.codec.decode(wire, y_.first(n));
    task_.codec.decode_add(wire, x, sum);
    for (std::size_t i = 0; i < n; ++i) y_[i] += x[i];
    // Numbers are compared, not bits: a sum of zeros may have another sign, and so may a subnormal that is flushed.
    return std::equal(sum.begin(), sum.end(), y_.begin(),
                      [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); });
  }

  void call(CodecCall codec_call) {
    const std::span<const float> x = task_.gradient;
    switch (codec_call) {
      case CodecCall::copy:
        std::memcpy(y_.data(), x.data(), x.size_bytes());
        break;
      case CodecCall::add:
        add(x, y_);
        break;
      case CodecCall::encode:
        task_.codec.encode(x, wire_.data(), task_.draw());
        break;
      case CodecCall::decode:
        task_.codec.decode(parts_.front(), y_);
        break;
      case CodecCall::decode_add:
        task_.codec.decode_add(parts_.front(), y_, y_);
        break;
      case CodecCall::reduce_encode:
        reducer_.run(parts_, x.size(), wire_.data(), task_.draw());
        break;
    }
  }

  const CodecTask task_;
  runtime::PrivateArena memory_;
  std::span<float> y_;  ///< what calls decode, copy or add up
  std::span<std::byte> wire_;
  std::vector<std::span<const std::byte>> parts_;  ///< encoded gradients, with their actual lengths
  compression::Reducer reducer_;
};

}  // namespace

std::unique_ptr<CodecCalls> make_host_calls(const CodecTask& t) { return std::make_unique<HostCalls>(t); }

namespace {

std::unique_ptr<CodecSteps> steps_of(const CodecPoint& p, int senders) {
  if (p.codec->codec) return nullptr;
  return std::make_unique<CodecSteps>(*p.codec, p.elements(), static_cast<std::size_t>(senders));
}

}  // namespace

CodecBenchmark::CodecBenchmark(const CodecPoint& point, const CodecFactors& factors, std::span<const float> gradient,
                               std::uint64_t seed, runtime::Device& device, const runtime::GpuGauge* gauge)
    : point_(point),
      factors_(factors),
      steps_(steps_of(point, factors.ranks)),
      codec_(steps_ ? *steps_ : *point.codec->codec),
      gradient_(gradient),
      task_{*point.codec, codec_, gradient, factors.parts, seed},
      gauge_(gauge),
      calls_(&device == &runtime::host_device() ? make_host_calls(task_) : make_device_calls(task_, device)),
      findings_{.point = point, .codec = codec_, .error = {}, .encode_times = {}, .noise = {}} {}

namespace {

/// The tensors of n values of a recorded gradient, which is cut or repeated to n values.
std::vector<compression::GradientTensor> tensors_of(const compression::RecordedGradient& g, std::size_t n) {
  std::vector<compression::GradientTensor> out;
  auto tensors = g.tensors;
  if (tensors.empty()) tensors.push_back({.name = {}, .shape = {}, .offset = 0, .count = g.values.size()});
  for (std::size_t first = 0; first < n; first += g.values.size()) {
    for (auto t : tensors) {
      t.offset += first;
      if (t.offset >= n) break;
      t.count = std::min(t.count, n - t.offset);
      if (t.count > 0) out.push_back(std::move(t));
    }
  }
  return out;
}

/// A tensor as training takes it for a matrix (dataparallel::make_buckets); empty: as one without a shape. A tensor
/// that was cut has fewer rows.
std::optional<compression::MatrixShape> matrix_of(const compression::GradientTensor& t) {
  if (t.shape.size() < 2) return std::nullopt;
  const std::size_t columns = std::accumulate(t.shape.begin() + 1, t.shape.end(), std::size_t{1}, std::multiplies<>());
  return compression::MatrixShape{.rows = (t.count + columns - 1) / columns, .columns = columns, .count = t.count};
}

/// Adds the prediction for one tensor to that for the tensors before it; it is unknown where any of them is.
void add(const std::optional<compression::ExpectedError>& tensor, std::optional<compression::ExpectedError>& all) {
  if (!tensor) all.reset();
  if (!all) return;
  all->mean += tensor->mean;
  all->deviation = std::hypot(all->deviation, tensor->deviation);
  all->is_bound |= tensor->is_bound;
  all->arithmetic += tensor->arithmetic;
}

}  // namespace

/// Adds up the error, the prediction and the wire of one tensor of a recorded gradient. Training sends some tensors
/// without the codec: short ones, and those that it does not shrink. They have no error.
void CodecBenchmark::measure_tensor(const compression::GradientTensor& t, std::uint32_t number) {
  CodecError& error = findings_.error;
  const auto x = gradient_.subspan(t.offset, t.count);
  std::unique_ptr<CodecSteps> steps;
  if (steps_)
    steps =
        std::make_unique<CodecSteps>(*point_.codec, t.count, static_cast<std::size_t>(factors_.ranks), matrix_of(t));
  const compression::Codec& codec = steps ? *steps : codec_;
  const std::size_t dense = x.size_bytes(), declared = codec.wire_bytes(t.count);
  if (t.count < point_.codec->min_elements || (steps && declared >= dense)) {
    findings_.wire_bytes += dense;
    *findings_.declared_bytes += dense;
    return;
  }
  std::vector<std::byte> wire(declared);
  std::vector<float> decoded(t.count);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < error.draws; ++i) {
    if (steps) steps->forget();
    // The steps of a codec know a chunk by its first element.
    bytes = codec.encode(x, wire.data(),
                         {.seed = task_.seed, .step = i, .tensor = number, .first = steps ? t.offset : std::size_t{0}});
    codec.decode(std::span(wire).first(bytes), decoded);
    error.squared_error += compression::squared_error(decoded, x) / static_cast<double>(error.draws);
  }
  findings_.wire_bytes += bytes;
  *findings_.declared_bytes += declared;
  add(compression::expected_error(point_.codec->parsed, x), error.expected);
}

void CodecBenchmark::measure_error() {
  CodecError& error = findings_.error;
  // Over a million elements the random part of the mean error is small; a large gradient has as many in one encoding.
  constexpr std::size_t enough = std::size_t{1} << 20, most = 16;
  error.draws = std::clamp<std::size_t>(enough / gradient_.size(), 1, most);
  error.squared_error = 0;
  if (const auto* recorded = point_.distribution->recorded()) {
    error.squared_norm = compression::squared_norm(gradient_);
    error.expected = compression::ExpectedError{};
    findings_.wire_bytes = 0;
    findings_.declared_bytes = 0;
    std::uint32_t number = 0;
    for (const auto& t : tensors_of(*recorded, gradient_.size())) measure_tensor(t, number++);
    return;
  }
  std::vector<std::byte> wire(codec_.wire_bytes(gradient_.size()));
  std::vector<float> decoded(gradient_.size());
  for (std::size_t i = 0; i < error.draws; ++i) {
    if (steps_) steps_->forget();  // measures one encoding, without state kept for the next
    findings_.wire_bytes = codec_.encode(gradient_, wire.data(), {.seed = task_.seed, .step = i});
    codec_.decode(std::span(wire).first(findings_.wire_bytes), decoded);
    error.squared_error += compression::squared_error(decoded, gradient_) / static_cast<double>(error.draws);
  }
  error.squared_norm = compression::squared_norm(gradient_);
  error.expected = compression::expected_error(point_.codec->parsed, gradient_);
}

bool CodecBenchmark::check(core::Point& row) {
  measure_error();
  findings_.error.fault = calls_->fault();
  fill_codec_check(findings_, row);
  return row.status == core::Status::ok;
}

void CodecBenchmark::measure(const RoundPeers& peers, const RoundOptions& options, core::Point& row) {
  std::deque<Rounds> rounds_of_calls;
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    const auto codec_call = static_cast<CodecCall>(i);
    rounds_of_calls.emplace_back(peers, options, [this, codec_call](std::size_t iterations, bool) {
      return calls_->time(codec_call, iterations);
    });
  }
  const auto has_call = [this](std::size_t call) { return calls_->has(static_cast<CodecCall>(call)); };
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    if (!has_call(i)) continue;
    rounds_of_calls[i].warm_up();
    turns.emplace_back([&c = rounds_of_calls[i]] { return c.round() != core::Stop::none; });
  }
  NoiseSampler noise(gauge_);
  noise.begin();
  take_turns(core::unpredictable_seed(), turns);  // no other rank must draw the same order
  noise.end();
  findings_.noise = noise.alone();
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    if (!has_call(i)) continue;
    findings_.times[i] = core::summarise(rounds_of_calls[i].blocks());
    findings_.times[i].stop = rounds_of_calls[i].stop();
  }
  findings_.encode_times = rounds_of_calls[static_cast<std::size_t>(CodecCall::encode)].times();
  fill_codec_times(findings_, factors_, row);
}

namespace {

using core::Metric;
using core::Point;

/// The rate of a call [bytes of fp32/s]; 0: not measured.
double rate(const CodecFindings& findings, CodecCall call) {
  const double seconds = findings.times[static_cast<std::size_t>(call)].median;
  return seconds > 0 ? static_cast<double>(findings.point.size_bytes) / seconds : 0;
}

/// The relative error; NaN where it is not a number, since a comparison with NaN would make it 0.
double relative(double squared_error, double squared_norm) {
  if (!std::isfinite(squared_error) || !std::isfinite(squared_norm)) return NAN;
  return squared_norm > 0 ? squared_error / squared_norm : squared_error > 0 ? INFINITY : 0;
}

double bits_of(const CodecFindings& findings) {
  return 8 * static_cast<double>(findings.wire_bytes) / static_cast<double>(findings.point.elements());
}

}  // namespace

core::Metric metric_of(CodecCall call) {
  constexpr std::array metrics{Metric::memcpy_s, Metric::add_s,        Metric::encode_s,
                               Metric::decode_s, Metric::decode_add_s, Metric::reduce_encode_s};
  static_assert(metrics.size() == codec_call_count);
  return metrics.at(static_cast<std::size_t>(call));
}

void fill_codec_check(const CodecFindings& findings, Point& row) {
  auto& m = row.metrics;
  const CodecError& error = findings.error;
  m[Metric::wire_bits] = bits_of(findings);
  m[Metric::error] = relative(error.squared_error, error.squared_norm);
  const auto& codec = findings.codec;
  const std::size_t declared = findings.declared_bytes.value_or(codec.wire_bytes(findings.point.elements()));
  if (codec.variable() ? findings.wire_bytes > declared : findings.wire_bytes != declared) {
    return refuse(row, core::Status::wrong,
                  fmt::format("took {} bytes of wire where {} were declared", findings.wire_bytes, declared));
  }
  if (!error.fault.empty()) return refuse(row, core::Status::wrong, error.fault);
  if (!error.expected) return;
  const double expected = relative(error.expected->mean, error.squared_norm);
  m[error.expected->is_bound ? Metric::error_bound : Metric::error_expected] = expected;
  if (compression::matches_prediction(*error.expected, error.squared_error, error.draws)) return;
  refuse(row, core::Status::wrong,
         fmt::format("error {:.3g} where {}{:.3g} is expected", relative(error.squared_error, error.squared_norm),
                     error.expected->is_bound ? "at most " : "", expected));
}

void fill_codec_times(const CodecFindings& findings, const CodecFactors& factors, Point& row) {
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    if (findings.times[i].n > 0) row.metrics[metric_of(static_cast<CodecCall>(i))] = findings.times[i];
  }
  row.raw_times_s.assign(findings.encode_times.begin(), findings.encode_times.end());
  fill_noise(findings.noise, row);
  // The formula is that of a reduce-scatter and an all-gather.
  if (findings.point.codec->exchange != compression::Exchange::schedule) return;
  const core::CodecRates rates{.encode = rate(findings, CodecCall::encode),
                               .decode = rate(findings, CodecCall::decode),
                               .add = rate(findings, CodecCall::decode_add)};
  row.metrics[Metric::crossover_bytes_per_s] =
      compression::break_even_rate(rates, factors.ranks, bits_of(findings), wire_bits(factors.baseline)).value;
}

}  // namespace gradmeter::bench
