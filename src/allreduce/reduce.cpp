// Highway compiles this file once for every instruction set and picks at run time.
#include "allreduce/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"
#include "core/format.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "allreduce/reduce.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradmeter::allreduce::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <Op op, class T>
T combine(T a, T b) {
  if constexpr (op == Op::min) return b < a ? b : a;
  if constexpr (op == Op::max) return a < b ? b : a;
  if constexpr (op == Op::product) return a * b;
  return a + b;
}

template <Op op, class V>
V combine_vectors(V a, V b) {
  if constexpr (op == Op::min) return hn::IfThenElse(hn::Lt(b, a), b, a);
  if constexpr (op == Op::max) return hn::IfThenElse(hn::Lt(a, b), b, a);
  if constexpr (op == Op::product) return hn::Mul(a, b);
  return hn::Add(a, b);
}

template <Op op, class T>
void combine_floats(T* to, const T* a, const T* b, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto x = combine_vectors<op>(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    const auto y = combine_vectors<op>(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes));
    hn::StoreU(x, d, to + i);
    hn::StoreU(y, d, to + i + lanes);
  }
  for (; i < n; ++i) to[i] = combine<op>(a[i], b[i]);
}

template <Op op>
void combine_bytes(core::Element e, std::byte* to, const std::byte* a, const std::byte* b, std::size_t n) {
  auto typed = [&]<class T>(T) {
    auto* t = reinterpret_cast<T*>(to);
    auto* x = reinterpret_cast<const T*>(a);
    auto* y = reinterpret_cast<const T*>(b);
    if constexpr (std::is_floating_point_v<T>) {
      combine_floats<op>(t, x, y, n);
    } else {
      for (std::size_t i = 0; i < n; ++i) t[i] = combine<op>(x[i], y[i]);
    }
  };
  switch (e) {
    case core::Element::f64:
      return typed(double{});
    case core::Element::f32:
      return typed(float{});
    case core::Element::i64:
      return typed(std::int64_t{});
    case core::Element::i32:
      return typed(std::int32_t{});
  }
}

void CombineTwo(core::Element e, Op op, std::byte* to, const std::byte* a, const std::byte* b, std::size_t n) {
  switch (op) {
    case Op::sum:
    case Op::average:
      return combine_bytes<Op::sum>(e, to, a, b, n);
    case Op::min:
      return combine_bytes<Op::min>(e, to, a, b, n);
    case Op::max:
      return combine_bytes<Op::max>(e, to, a, b, n);
    case Op::product:
      return combine_bytes<Op::product>(e, to, a, b, n);
  }
}

template <class T>
void divide(T* to, const T* from, std::size_t n, T factor) {
  const hn::ScalableTag<T> d;
  const auto f = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) hn::StoreU(hn::Mul(hn::LoadU(d, from + i), f), d, to + i);
  for (; i < n; ++i) to[i] = from[i] * factor;
}

void ScaleFloats(core::Element e, std::byte* to, const std::byte* from, std::size_t n, double factor) {
  if (e == core::Element::f32) {
    return divide(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), n, static_cast<float>(factor));
  }
  divide(reinterpret_cast<double*>(to), reinterpret_cast<const double*>(from), n, factor);
}

}  // namespace gradmeter::allreduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::allreduce {

HWY_EXPORT(CombineTwo);
HWY_EXPORT(ScaleFloats);

std::string_view name(Op op) {
  constexpr std::array<std::string_view, 5> names{"sum", "avg", "min", "max", "prod"};
  return names[static_cast<std::size_t>(op)];
}

void reduce(core::Element e, Op op, std::byte* destination, std::span<const std::byte* const> sources, std::size_t n) {
  const auto two = HWY_DYNAMIC_DISPATCH(CombineTwo);
  if (sources.size() == 2) return two(e, op, destination, sources[0], sources[1], n);
  // Many sources: in pieces that stay in the first cache, through a piece of our own, since `destination` may be a
  // source that is read later than it would be written.
  constexpr std::size_t piece_bytes = 8192;
  alignas(64) std::array<std::byte, piece_bytes> piece;
  const std::size_t width = core::size_of(e), step = piece_bytes / width;
  for (std::size_t i = 0; i < n; i += step) {
    const std::size_t m = std::min(step, n - i), at = i * width;
    two(e, op, piece.data(), sources[0] + at, sources[1] + at, m);
    for (std::size_t k = 2; k < sources.size(); ++k) two(e, op, piece.data(), piece.data(), sources[k] + at, m);
    std::memcpy(destination + at, piece.data(), m * width);
  }
}

void finish(core::Element e, Op op, std::byte* destination, const std::byte* source, std::size_t n, int ranks) {
  if (op == Op::average && ranks > 1) {
    HWY_DYNAMIC_DISPATCH(ScaleFloats)(e, destination, source, n, 1.0 / ranks);
  } else if (destination != source && n > 0) {
    std::memcpy(destination, source, n * core::size_of(e));
  }
}

void check_supported(core::Element e, Op op) {
  if (op == Op::average && core::info(e).unit_roundoff == 0) {
    throw core::UsageError(fmt::format("operation avg is not defined for {}; use sum", core::info(e).name));
  }
}

}  // namespace gradmeter::allreduce
#endif
