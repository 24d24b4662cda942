// SPDX-License-Identifier: Apache-2.0
// Kernel cases of optimizers' updates and of the LSTM cell. Their references come first, and a few of other loops:
// plain arithmetic in float64, rounded once where a result is stored.
#include "kernels/pointwise/case.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/element.hpp"
#include "core/format.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/loops.hpp"
#include "kernels/number_format.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels {

void relu_backward_reference(std::span<const float> activation, std::span<float> gradient) {
  require_elements("relu_backward: gradient", gradient.size(), activation.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = activation[i] > 0 ? gradient[i] : 0.0F;
}

void column_sums_reference(std::span<const float> matrix, std::size_t columns, std::span<float> out) {
  require_elements("column_sums: out", out.size(), columns);
  std::vector<double> sums(columns);
  for (std::size_t i = 0; i < matrix.size(); ++i) sums[i % columns] += double{matrix[i]};
  for (std::size_t j = 0; j < columns; ++j) out[j] = static_cast<float>(sums[j]);
}

void sgd_reference(std::span<float> w, std::span<const float> g, float step) {
  require_elements("sgd: g", g.size(), w.size());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(double{w[i]} - double{step} * double{g[i]});
}

void momentum_reference(std::span<float> w, std::span<float> v, std::span<const float> g, MomentumParameters p) {
  require_elements("momentum: v", v.size(), w.size());
  require_elements("momentum: g", g.size(), w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double velocity = double{p.mu} * double{v[i]} + double{g[i]};
    const double direction = p.nesterov ? double{g[i]} + double{p.mu} * velocity : velocity;
    v[i] = static_cast<float>(velocity);
    w[i] = static_cast<float>(double{w[i]} - double{p.step} * direction);
  }
}

void adam_reference(std::span<float> w, std::span<float> m, std::span<float> v, std::span<const float> g,
                    AdamParameters p) {
  require_elements("adam: m", m.size(), w.size());
  require_elements("adam: v", v.size(), w.size());
  require_elements("adam: g", g.size(), w.size());
  const auto t = static_cast<double>(p.update);
  const double rate = double{p.step} * std::sqrt(1 - std::pow(double{p.beta2}, t)) / (1 - std::pow(double{p.beta1}, t));
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double first = double{p.beta1} * double{m[i]} + (1 - double{p.beta1}) * double{g[i]};
    const double second = double{p.beta2} * double{v[i]} + (1 - double{p.beta2}) * double{g[i]} * double{g[i]};
    m[i] = static_cast<float>(first);
    v[i] = static_cast<float>(second);
    w[i] = static_cast<float>(double{w[i]} - rate * first / (std::sqrt(second) + double{p.epsilon}));
  }
}

void lstm_cell_reference(LstmGates<float> gates, std::span<float> c, std::span<float> h) {
  require_elements("lstm_cell: h", h.size(), c.size());
  const auto sigma = [](float x) { return 1 / (1 + std::exp(-double{x})); };
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double kept = sigma(gates.forget[i]) * double{c[i]};
    const double cell = kept + sigma(gates.input[i]) * std::tanh(double{gates.candidate[i]});
    c[i] = static_cast<float>(cell);
    h[i] = static_cast<float>(sigma(gates.output[i]) * std::tanh(cell));
  }
}

// Updates of optimizers and the LSTM cell by our own loops. fused: in one pass over memory, in fp32 or bf16. unfused:
// one pass for each arithmetic operation, in fp32.

namespace {

/// The numbers of arrays of an optimizer or cell: all its operands, those of them that it writes, which come first, and
/// the temporary ones of the unfused form. The operands: sgd w g; momentum w v g; adam w m v g; lstm_cell c h and the
/// gates input, forget, candidate, output.
struct ArrayCounts {
  std::size_t all, written, temporary;
};
ArrayCounts array_counts(PointwiseKind k) {
  constexpr std::array<ArrayCounts, 4> table{{{2, 1, 1}, {3, 2, 1}, {4, 3, 1}, {6, 2, 4}}};
  return table[static_cast<std::size_t>(k)];
}

float value(float x) { return x; }
float value(Bf16 x) { return core::to_float(core::bf16_format, static_cast<std::uint16_t>(x)); }
void assign(float& x, float to) { x = to; }
void assign(Bf16& x, float to) { x = Bf16{core::from_float(core::bf16_format, to)}; }

/// The arrays of one operand set.
template <class T>
using ArraySet = std::vector<AlignedVector<T>>;
template <class T>
std::span<T> span(AlignedVector<T>& x) {
  return x;
}

template <class T>
void fused(PointwiseKind kind, ArraySet<T>& arrays) {
  switch (kind) {
    case PointwiseKind::sgd:
      return sgd(span(arrays[0]), arrays[1], case_step);
    case PointwiseKind::momentum:
      return momentum(span(arrays[0]), arrays[1], arrays[2], case_momentum);
    case PointwiseKind::adam:
      return adam(span(arrays[0]), arrays[1], arrays[2], arrays[3], case_adam);
    case PointwiseKind::lstm_cell:
      return lstm_cell(LstmGates<T>{arrays[2], arrays[3], arrays[4], arrays[5]}, span(arrays[0]), arrays[1]);
  }
}

void unfused(PointwiseKind kind, ArraySet<float>& arrays, ArraySet<float>& temporaries) {
  switch (kind) {
    case PointwiseKind::sgd:
      vector_op(Unary::multiply, arrays[1], case_step, temporaries[0]);
      return vector_op(Binary::subtract, arrays[0], temporaries[0], arrays[0]);
    case PointwiseKind::momentum:
      vector_op(Unary::multiply, arrays[1], case_momentum.mu, arrays[1]);
      vector_op(Binary::add, arrays[1], arrays[2], arrays[1]);
      vector_op(Unary::multiply, arrays[1], case_momentum.step, temporaries[0]);
      return vector_op(Binary::subtract, arrays[0], temporaries[0], arrays[0]);
    case PointwiseKind::adam:
      vector_op(Unary::multiply, arrays[1], case_adam.beta1, arrays[1]);
      vector_op(Unary::multiply, arrays[3], 1 - case_adam.beta1, temporaries[0]);
      vector_op(Binary::add, arrays[1], temporaries[0], arrays[1]);
      vector_op(Binary::multiply, arrays[3], arrays[3], temporaries[0]);
      vector_op(Unary::multiply, temporaries[0], 1 - case_adam.beta2, temporaries[0]);
      vector_op(Unary::multiply, arrays[2], case_adam.beta2, arrays[2]);
      vector_op(Binary::add, arrays[2], temporaries[0], arrays[2]);
      vector_op(Unary::square_root, arrays[2], 0, temporaries[0]);
      vector_op(Unary::add, temporaries[0], case_adam.epsilon, temporaries[0]);
      vector_op(Binary::divide, arrays[1], temporaries[0], temporaries[0]);
      vector_op(Unary::multiply, temporaries[0], case_adam.rate(), temporaries[0]);
      return vector_op(Binary::subtract, arrays[0], temporaries[0], arrays[0]);
    case PointwiseKind::lstm_cell:
      vector_op(Unary::sigmoid, arrays[2], 0, temporaries[0]);
      vector_op(Unary::sigmoid, arrays[3], 0, temporaries[1]);
      vector_op(Unary::tanh, arrays[4], 0, temporaries[2]);
      vector_op(Unary::sigmoid, arrays[5], 0, temporaries[3]);
      vector_op(Binary::multiply, temporaries[1], arrays[0], temporaries[1]);
      vector_op(Binary::multiply, temporaries[0], temporaries[2], temporaries[0]);
      vector_op(Binary::add, temporaries[1], temporaries[0], arrays[0]);
      vector_op(Unary::tanh, arrays[0], 0, temporaries[2]);
      return vector_op(Binary::multiply, temporaries[3], temporaries[2], arrays[1]);
  }
}

void reference(PointwiseKind kind, ArraySet<float>& arrays) {
  switch (kind) {
    case PointwiseKind::sgd:
      return sgd_reference(arrays[0], arrays[1], case_step);
    case PointwiseKind::momentum:
      return momentum_reference(arrays[0], arrays[1], arrays[2], case_momentum);
    case PointwiseKind::adam:
      return adam_reference(arrays[0], arrays[1], arrays[2], arrays[3], case_adam);
    case PointwiseKind::lstm_cell:
      return lstm_cell_reference({arrays[2], arrays[3], arrays[4], arrays[5]}, arrays[0], arrays[1]);
  }
}

/// For each written array, the magnitude of the numbers from which its element i was computed, since its error consists
/// of roundings of such numbers.
std::array<double, 3> magnitudes(PointwiseKind kind, const ArraySet<float>& arrays, std::size_t i) {
  const auto at = [&](std::size_t array) { return std::fabs(double{arrays[array][i]}); };
  if (kind == PointwiseKind::sgd) return {at(0) + case_step * at(1), 0, 0};
  if (kind == PointwiseKind::lstm_cell) return {1 + at(0), 1 + at(0), 0};
  if (kind == PointwiseKind::momentum) return {at(0) + case_step * (at(1) + at(2)), at(1) + at(2), 0};
  const double first = at(1) + 0.1 * at(3), second = case_adam.beta2 * at(2) + (1 - case_adam.beta2) * at(3) * at(3);
  return {at(0) + case_adam.rate() * first / (std::sqrt(second) + case_adam.epsilon), first, second};
}

template <class T>
class PointwiseCase : public KernelCase {
 public:
  PointwiseCase(const PointwiseShape& s, std::size_t sets, std::uint64_t seed)
      : shape_(s), counts_(array_counts(s.kind)) {
    for (std::size_t i = 0; i < sets; ++i) {
      sets_.emplace_back(counts_.all, AlignedVector<T>(s.elements));
      temporaries_.emplace_back(s.fused ? 0 : counts_.temporary, AlignedVector<float>(s.elements));
      fill(sets_.back(), seed + 8 * i);
    }
  }

  void run(std::size_t set) override {
    if constexpr (std::is_same_v<T, float>) {
      if (!shape_.fused) return unfused(shape_.kind, sets_[set], temporaries_[set]);
    }
    fused(shape_.kind, sets_[set]);
  }

  void redraw(std::size_t set_index, std::uint64_t seed) override {
    fill(host_set(set_index), seed);
    upload(set_index);
  }

  /// Keeps the numbers before the call, since the call changes its inputs.
  void prepare_check(const CheckedCall& call) override {
    places_ = places_to_check(call);
    download(call.set);
    before_ = at(host_set(call.set), places_);
  }

  KernelCaseCheck finish_check(const CheckedCall& call) override {
    download(call.set);
    ArraySet<T>& x = host_set(call.set);
    if (call.inject_error) {
      T& element = x[0][places_[places_.size() / 2]];
      assign(element, value(element) + 0.5F);
    }
    ArraySet<float> expected = before_;
    for (std::size_t i = 0; i < call.runs; ++i) reference(shape_.kind, expected);
    return compare(expected, at(x, places_), static_cast<double>(call.runs));
  }

  std::string implementation() const override {
    return fmt::format("highway {}:{}", shape_.fused ? "fused" : "unfused", vector_target());
  }

 protected:
  /// The set in the host's memory. A device's sets share one copy here, which `upload` and `download` transfer.
  virtual ArraySet<T>& host_set(std::size_t set_index) { return sets_[set_index]; }
  virtual void upload(std::size_t set_index) { (void)set_index; }
  virtual void download(std::size_t set_index) { (void)set_index; }

  void fill(ArraySet<T>& to, std::uint64_t seed) const {
    std::vector<float> values(shape_.elements);
    for (std::size_t array = 0; array < counts_.all; ++array) {
      fill_gaussian(values, seed + array);
      const bool is_square = shape_.kind == PointwiseKind::adam && array == 2;  // v is an average of squares
      for (std::size_t i = 0; i < values.size(); ++i)
        assign(to[array][i], is_square ? values[i] * values[i] : values[i]);
    }
  }

  ArraySet<T>& first() { return sets_[0]; }

 private:
  /// The elements to check, at most 2^20 to limit memory.
  std::vector<std::size_t> places_to_check(const CheckedCall& call) const {
    const double most = std::min(call.flops_at_most / 50, 0x1p20);  // an element costs the reference up to 50 FLOP
    return sample_places(shape_.elements, std::max<std::size_t>(static_cast<std::size_t>(most), 2), call.seed);
  }

  ArraySet<float> at(const ArraySet<T>& from, const std::vector<std::size_t>& places) const {
    ArraySet<float> out(counts_.all, AlignedVector<float>(places.size()));
    for (std::size_t array = 0; array < counts_.all; ++array)
      for (std::size_t i = 0; i < places.size(); ++i) out[array][i] = value(from[array][places[i]]);
    return out;
  }

  KernelCaseCheck compare(const ArraySet<float>& expected, const ArraySet<float>& after, double runs) const {
    constexpr double storage_roundoff = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
    // For each run, an element may be off by one rounding to storage, and by 16 roundings of its magnitude to fp32.
    KernelCaseCheck check;
    double squared_error = 0, squared_norm = 0, zeros = 0;
    for (std::size_t i = 0; i < before_[0].size(); ++i) {
      const auto magnitude = magnitudes(shape_.kind, before_, i);
      for (std::size_t array = 0; array < counts_.written; ++array) {
        const double expected_value = expected[array][i],
                     distance = std::fabs(double{after[array][i]} - expected_value);
        const double worst =
            distance / (runs * (storage_roundoff * std::fabs(expected_value) + 16 * 0x1p-24 * magnitude[array]));
        squared_error += distance * distance, squared_norm += expected_value * expected_value,
            zeros += after[array][i] == 0;
        // A NaN stays, since no number compares greater than it.
        if (worst > check.worst || std::isnan(worst)) check.worst = worst;
      }
    }
    check.error = squared_norm > 0 ? std::sqrt(squared_error / squared_norm) : std::sqrt(squared_error);
    check.zero_share = zeros / static_cast<double>(counts_.written * before_[0].size());
    return check;
  }

  PointwiseShape shape_;
  ArrayCounts counts_;
  std::vector<ArraySet<T>> sets_;
  std::vector<ArraySet<float>> temporaries_;
  std::vector<std::size_t> places_;
  ArraySet<float> before_;  ///< the numbers at places_ before the call
};

template <class T>
class DevicePointwiseCase final : public PointwiseCase<T> {
 public:
  DevicePointwiseCase(const PointwiseShape& s, const KernelCaseOptions& o, PointwiseUpdate update,
                      std::string implementation)
      : PointwiseCase<T>(s, 1, o.seed),
        kind_(s.kind),
        update_(update),
        implementation_(std::move(implementation)),
        queue_(o.device->make_queue()) {
    constexpr auto element = std::is_same_v<T, float> ? core::Element::f32 : core::Element::i8;
    for (std::size_t i = 0; i < o.sets; ++i) {
      auto& arrays = sets_.emplace_back();
      for (std::size_t a = 0; a < array_counts(s.kind).all; ++a) {
        memory_.push_back(o.device->allocate(element, s.elements * sizeof(T) / core::size_of(element)));
        arrays.push_back(memory_.back().buffer);
      }
      DevicePointwiseCase::redraw(i, o.seed + 8 * i);
    }
  }

  void run(std::size_t set) override {
    queue_->submit("kernel", {}, [this, set] { update_(kind_, sets_[set]); });
  }
  runtime::Queue* queue() override { return queue_.get(); }
  std::string implementation() const override { return implementation_; }

 private:
  ArraySet<T>& host_set(std::size_t) override { return this->first(); }
  void upload(std::size_t set_index) override {
    for (std::size_t a = 0; a < sets_[set_index].size(); ++a) queue_->copy("upload", bytes_of(a), sets_[set_index][a]);
    queue_->synchronise();
  }
  void download(std::size_t set_index) override {
    for (std::size_t a = 0; a < sets_[set_index].size(); ++a)
      queue_->copy("download", sets_[set_index][a], bytes_of(a));
    queue_->synchronise();
  }
  runtime::Buffer bytes_of(std::size_t array) {
    return {core::Element::i8, std::as_writable_bytes(span(this->first()[array]))};
  }

  PointwiseKind kind_;
  PointwiseUpdate update_;
  std::string implementation_;
  std::vector<runtime::OwnedBuffer> memory_;
  std::vector<std::vector<runtime::Buffer>> sets_;
  std::unique_ptr<runtime::Queue> queue_;  // destroyed first, since its destructor waits for calls under way
};

}  // namespace

std::string pointwise_case_refusal(const Problem& p) {
  if (p.pass != Pass::forward) return "pointwise has one pass";
  const auto& s = std::get<PointwiseShape>(p.shape);
  if (s.elements == 0) return "pointwise needs elements of at least 1";
  if (!s.fused && p.precision != Precision::fp32)
    return fmt::format("pointwise in {} is fused alone: rounding every intermediate result would be another rule",
                       name(p.precision));
  return {};
}

std::size_t pointwise_case_bytes(const Problem& p) {
  const auto& s = std::get<PointwiseShape>(p.shape);
  const ArrayCounts counts = array_counts(s.kind);
  const std::size_t arrays = counts.all + (s.fused ? 0 : counts.temporary);
  return whole_bytes(static_cast<double>(arrays * storage_bytes(p.precision)) * static_cast<double>(s.elements));
}

std::unique_ptr<KernelCase> make_pointwise_case(const Problem& p, const KernelCaseOptions& o) {
  const auto& s = std::get<PointwiseShape>(p.shape);
  if (p.precision == Precision::bf16) return std::make_unique<PointwiseCase<Bf16>>(s, o.sets, o.seed);
  return std::make_unique<PointwiseCase<float>>(s, o.sets, o.seed);
}

void update_fp32_on_device(PointwiseKind kind, std::span<const runtime::Buffer> arrays) {
  if (kind == PointwiseKind::sgd) loops().sgd(arrays[0], arrays[1], case_step, {});
  if (kind == PointwiseKind::momentum) loops().momentum(arrays[0], arrays[1], arrays[2], case_momentum, {});
  if (kind == PointwiseKind::adam) loops().adam(arrays[0], arrays[1], arrays[2], arrays[3], case_adam, 1);
}

std::string device_pointwise_refusal(const Problem& p) {
  if (auto why = pointwise_case_refusal(p); !why.empty()) return why;
  const auto& s = std::get<PointwiseShape>(p.shape);
  if (s.kind == PointwiseKind::lstm_cell)
    return "the cell alone is the host's: a device has it within recurrent layers";
  if (!s.fused) return "one pass for each arithmetic operation is the host's: a device has optimizers fused";
  return {};
}

std::unique_ptr<KernelCase> make_device_pointwise_case(const Problem& p, const KernelCaseOptions& o,
                                                       PointwiseUpdate update, std::string implementation) {
  const auto& s = std::get<PointwiseShape>(p.shape);
  if (p.precision == Precision::bf16)
    return std::make_unique<DevicePointwiseCase<Bf16>>(s, o, update, std::move(implementation));
  return std::make_unique<DevicePointwiseCase<float>>(s, o, update, std::move(implementation));
}

}  // namespace gradmeter::kernels
