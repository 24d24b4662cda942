#include "kernels/cuda/own/gemm.hpp"

#include "kernels/cuda/own/product.cuh"

namespace gradmeter::kernels::cuda {
namespace {

template <class T>
struct DenseResult {
  T* first;
  std::size_t row_stride, batch_stride;
  const float* bias;
  bool accumulate, is_relu;

  __device__ void put(unsigned batch, unsigned row, unsigned column, float value) const {
    T* const to = first + batch * batch_stride + row * row_stride + column;
    if (accumulate) value += load(to);
    if (bias != nullptr) value += bias[column];
    store(is_relu && value < 0 ? 0.0f : value, to);
  }
};

template <class T>
void check(const GemmShape& s, const GemmOperands<T>& o) {
  if (s.packed) throw std::invalid_argument("gemm: there is no layout of its own; leave packed out");
  check_lengths("gemm: a", o.a.size(), s.count * s.m * s.k);
  check_lengths("gemm: b", o.b.size(), s.count * s.k * s.n);
  check_lengths("gemm: bias", o.bias.size(), s.bias ? s.n : 0);
  check_lengths("gemm: c", o.c.size(), s.count * s.m * s.n);
}

template <class T>
void launch_gemm(const GemmShape& s, const GemmOperands<T>& o, cudaStream_t stream) {
  check(s, o);
  if (o.c.empty()) return;
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  const ProductExtents e = extents_of(s);
  const DenseFactor<T> left{o.a.device_address(), ta ? 1 : s.k, ta ? s.m : 1, s.m * s.k, e.m};
  const DenseFactor<T> right{o.b.device_address(), tb ? s.k : 1, tb ? 1 : s.n, s.k * s.n, e.n};
  const DenseResult<T> result{o.c.device_address(),
                              s.n,
                              s.m * s.n,
                              s.bias ? o.bias.device_address() : nullptr,
                              s.accumulate,
                              s.activation == Activation::relu};
  launch_product(left, right, result, e, o.scratch, stream);
}

}  // namespace

ProductExtents extents_of(const GemmShape& s) {
  return {static_cast<unsigned>(s.m), static_cast<unsigned>(s.n), static_cast<unsigned>(s.k),
          static_cast<unsigned>(s.count)};
}

void gemm(const GemmShape& s, const GemmOperands<float>& o, cudaStream_t stream) { launch_gemm(s, o, stream); }
void gemm(const GemmShape& s, const GemmOperands<Bf16>& o, cudaStream_t stream) { launch_gemm(s, o, stream); }
void gemm(const GemmShape& s, const GemmOperands<Fp16>& o, cudaStream_t stream) { launch_gemm(s, o, stream); }

void multiply(const MatrixProduct& p, DeviceSpan<float> scratch, cudaStream_t stream) {
  if (p.m == 0 || p.k == 0) return;
  const DenseFactor<float> left{p.a.first, p.a.row_stride, p.a.column_stride, 0, p.m};
  const DenseFactor<float> right{p.b.first, p.b.column_stride, p.b.row_stride, 0, p.n};
  const DenseResult<float> result{p.c.first, p.c.row_stride, 0, p.bias, p.accumulate, false};
  launch_product(left, right, result, {p.m, p.n, p.k, 1}, scratch, stream);
}

}  // namespace gradmeter::kernels::cuda
