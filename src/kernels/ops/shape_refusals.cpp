// What no backend of an operation takes, whatever the precision.
#include "kernels/ops/makers.hpp"

namespace gradmeter::kernels {

std::string gemm_shape_refusal(const Problem& p) {
  if (p.pass != Pass::forward) return "gemm has one pass; its backward is two products of other shapes";
  const auto& s = std::get<GemmShape>(p.shape);
  return s.m == 0 || s.n == 0 || s.k == 0 || s.count == 0 ? "gemm needs m, n, k and count of at least 1" : "";
}

std::string lns_shape_refusal(const Problem& p) {
  const auto& s = std::get<GemmShape>(p.shape);
  if (s.count > 1) return "lns16 has single products; leave count out";
  if (s.accumulate) return "lns16 has no accumulation; add its result";
  return s.packed ? "lns16 packs both operands in every call; leave packed out" : "";
}

std::string conv_shape_refusal(const Problem& p) {
  const auto& s = std::get<ConvShape>(p.shape);
  if (s.width * s.height * s.channels * s.batch * s.filters * s.filter_width * s.filter_height == 0)
    return "conv needs extents of at least 1";
  if (s.stride_width * s.stride_height == 0) return "conv needs strides of at least 1";
  if (s.width + 2 * s.pad_width < s.filter_width || s.height + 2 * s.pad_height < s.filter_height)
    return "conv needs a filter that fits into the padded input";
  return "";
}

std::string rnn_shape_refusal(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  if (s.hidden == 0 || s.batch == 0 || s.steps == 0) return "rnn needs hidden, batch and steps of at least 1";
  if (p.pass == Pass::backward_weights)
    return "all gradients of an rnn are computed in one backward pass: measured as backward-data";
  return "";
}

}  // namespace gradmeter::kernels
