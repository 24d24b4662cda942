// SPDX-License-Identifier: Apache-2.0
// The updates of optimizers and the LSTM cell, each in one pass over memory, which holds fp32 or bf16. Each step of the
// arithmetic is rounded, as in pointwise/pointwise.cpp.
#include "kernels/pointwise/updates.hpp"

#include <cmath>

#include "kernels/pointwise/pointwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pointwise/updates.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace gradmeter::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE void sgd(T* w, const T* g, float step, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto change = hn::Mul(hn::Set(d, step), load(d, g + i));
    store(hn::Sub(load(d, w + i), change), d, w + i);
  });
}

template <class T>
HWY_INLINE void momentum(T* w, T* v, const T* g, MomentumParameters p, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto mu = hn::Set(d, p.mu), gradient = load(d, g + i);
    const auto velocity = hn::Add(hn::Mul(mu, load(d, v + i)), gradient);
    const auto direction = p.nesterov ? hn::Add(gradient, hn::Mul(mu, velocity)) : velocity;
    store(velocity, d, v + i);
    store(hn::Sub(load(d, w + i), hn::Mul(hn::Set(d, p.step), direction)), d, w + i);
  });
}

template <class T>
HWY_INLINE void adam(T* w, T* m, T* v, const T* g, AdamParameters p, std::size_t n) {
  const float rate = p.rate();
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto gradient = load(d, g + i);
    const auto first =
        hn::Add(hn::Mul(hn::Set(d, p.beta1), load(d, m + i)), hn::Mul(hn::Set(d, 1 - p.beta1), gradient));
    const auto square = hn::Mul(hn::Mul(gradient, gradient), hn::Set(d, 1 - p.beta2));
    const auto second = hn::Add(hn::Mul(hn::Set(d, p.beta2), load(d, v + i)), square);
    const auto denominator = hn::Add(hn::Sqrt(second), hn::Set(d, p.epsilon));
    store(first, d, m + i);
    store(second, d, v + i);
    store(hn::Sub(load(d, w + i), hn::Mul(hn::Div(first, denominator), hn::Set(d, rate))), d, w + i);
  });
}

template <class T>
struct Gates {
  const T *input, *forget, *candidate, *output;
};

template <class T>
HWY_INLINE void lstm_cell(Gates<T> gates, T* c, T* h, std::size_t n) {
  each(n, [=](auto d, std::size_t i) HWY_ATTR {
    const auto kept = hn::Mul(sigmoid(d, load(d, gates.forget + i)), load(d, c + i));
    const auto candidate = hyperbolic_tangent(d, load(d, gates.candidate + i));
    const auto cell = hn::Add(kept, hn::Mul(sigmoid(d, load(d, gates.input + i)), candidate));
    const auto out = hn::Mul(sigmoid(d, load(d, gates.output + i)), hyperbolic_tangent(d, cell));
    store(cell, d, c + i);
    store(out, d, h + i);
  });
}

using Bf16Bits = std::uint16_t;
void SgdFloat(float* w, const float* g, float step, std::size_t n) { sgd(w, g, step, n); }
void SgdBf16(Bf16Bits* w, const Bf16Bits* g, float step, std::size_t n) { sgd(w, g, step, n); }
void MomentumFloat(float* w, float* v, const float* g, MomentumParameters p, std::size_t n) { momentum(w, v, g, p, n); }
void MomentumBf16(Bf16Bits* w, Bf16Bits* v, const Bf16Bits* g, MomentumParameters p, std::size_t n) {
  momentum(w, v, g, p, n);
}
void AdamFloat(float* w, float* m, float* v, const float* g, AdamParameters p, std::size_t n) {
  adam(w, m, v, g, p, n);
}
void AdamBf16(Bf16Bits* w, Bf16Bits* m, Bf16Bits* v, const Bf16Bits* g, AdamParameters p, std::size_t n) {
  adam(w, m, v, g, p, n);
}
void LstmFloat(const float* i, const float* f, const float* g, const float* o, float* c, float* h, std::size_t n) {
  lstm_cell(Gates<float>{i, f, g, o}, c, h, n);
}
void LstmBf16(const Bf16Bits* i, const Bf16Bits* f, const Bf16Bits* g, const Bf16Bits* o, Bf16Bits* c, Bf16Bits* h,
              std::size_t n) {
  lstm_cell(Gates<Bf16Bits>{i, f, g, o}, c, h, n);
}

}  // namespace gradmeter::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {

HWY_EXPORT(SgdFloat);
HWY_EXPORT(SgdBf16);
HWY_EXPORT(MomentumFloat);
HWY_EXPORT(MomentumBf16);
HWY_EXPORT(AdamFloat);
HWY_EXPORT(AdamBf16);
HWY_EXPORT(LstmFloat);
HWY_EXPORT(LstmBf16);

namespace {

// The fewest elements for each thread: enough work to outweigh the start of a team of threads.
constexpr std::size_t grain = 1 << 16;

// The address of element i of an array, with the type that the loops above take.
float* from(std::span<float> x, std::size_t i) { return x.data() + i; }
const float* from(std::span<const float> x, std::size_t i) { return x.data() + i; }
std::uint16_t* from(std::span<Bf16> x, std::size_t i) { return reinterpret_cast<std::uint16_t*>(x.data()) + i; }
const std::uint16_t* from(std::span<const Bf16> x, std::size_t i) {
  return reinterpret_cast<const std::uint16_t*>(x.data()) + i;
}

// Runs loop(first, count) over parts of [0, n) in parallel. `others` names the arrays with the given sizes, which must
// be n, in errors.
template <class Loop>
void each_part(const char* others, std::size_t n, std::initializer_list<std::size_t> sizes, const Loop& loop) {
  for (const std::size_t size : sizes) require_elements(others, size, n);
  split(n, grain, loop);
}

}  // namespace

void sgd(std::span<float> w, std::span<const float> g, float step) {
  each_part("sgd: g", w.size(), {g.size()}, [&](std::size_t i, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(SgdFloat)(from(w, i), from(g, i), step, n);
  });
}
void sgd(std::span<Bf16> w, std::span<const Bf16> g, float step) {
  each_part("sgd: g", w.size(), {g.size()}, [&](std::size_t i, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(SgdBf16)(from(w, i), from(g, i), step, n);
  });
}

void momentum(std::span<float> w, std::span<float> v, std::span<const float> g, MomentumParameters p) {
  each_part("momentum: v or g", w.size(), {v.size(), g.size()}, [&](std::size_t i, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(MomentumFloat)(from(w, i), from(v, i), from(g, i), p, n);
  });
}
void momentum(std::span<Bf16> w, std::span<Bf16> v, std::span<const Bf16> g, MomentumParameters p) {
  each_part("momentum: v or g", w.size(), {v.size(), g.size()}, [&](std::size_t i, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(MomentumBf16)(from(w, i), from(v, i), from(g, i), p, n);
  });
}

float AdamParameters::rate() const { return adam_rate(step, beta1, beta2, update); }
void adam(std::span<float> w, std::span<float> m, std::span<float> v, std::span<const float> g, AdamParameters p) {
  each_part("adam: m, v or g", w.size(), {m.size(), v.size(), g.size()}, [&](std::size_t i, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(AdamFloat)(from(w, i), from(m, i), from(v, i), from(g, i), p, n);
  });
}
void adam(std::span<Bf16> w, std::span<Bf16> m, std::span<Bf16> v, std::span<const Bf16> g, AdamParameters p) {
  each_part("adam: m, v or g", w.size(), {m.size(), v.size(), g.size()}, [&](std::size_t i, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(AdamBf16)(from(w, i), from(m, i), from(v, i), from(g, i), p, n);
  });
}

void lstm_cell(LstmGates<float> x, std::span<float> c, std::span<float> h) {
  each_part("lstm_cell: a gate or h", c.size(),
            {x.input.size(), x.forget.size(), x.candidate.size(), x.output.size(), h.size()},
            [&](std::size_t i, std::size_t n) {
              HWY_DYNAMIC_DISPATCH(LstmFloat)
              (from(x.input, i), from(x.forget, i), from(x.candidate, i), from(x.output, i), from(c, i), from(h, i), n);
            });
}
void lstm_cell(LstmGates<Bf16> x, std::span<Bf16> c, std::span<Bf16> h) {
  each_part("lstm_cell: a gate or h", c.size(),
            {x.input.size(), x.forget.size(), x.candidate.size(), x.output.size(), h.size()},
            [&](std::size_t i, std::size_t n) {
              HWY_DYNAMIC_DISPATCH(LstmBf16)
              (from(x.input, i), from(x.forget, i), from(x.candidate, i), from(x.output, i), from(c, i), from(h, i), n);
            });
}

}  // namespace gradmeter::kernels

#endif  // HWY_ONCE
