#include "compression/cuda/bucketed_launch.cuh"
#include "compression/detail/qsgd_rule.hpp"

namespace gradmeter::compression::cuda {
namespace {

using detail::QsgdRule, detail::Rounding;

template <std::size_t bits>
const BucketedKernels& rounded(Rounding rounding) {
  return rounding == Rounding::nearest ? BucketedLaunch<QsgdRule<bits, Rounding::nearest>>::kernels
                                       : BucketedLaunch<QsgdRule<bits, Rounding::stochastic>>::kernels;
}

}  // namespace

const BucketedKernels& qsgd_kernels(std::size_t bits, Rounding rounding) {
  if (bits == 8) return rounded<8>(rounding);
  if (bits == 4) return rounded<4>(rounding);
  return rounded<2>(rounding);
}

}  // namespace gradmeter::compression::cuda
