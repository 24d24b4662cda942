// Problems by their texts, and along their batch dimension.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// "gemm:m=1760,n=16,k=1760,a=N,b=N": the operation and its shape. Equal texts mean equal shapes.
std::string problem_text(const ProblemShape&);

/// The shape that problem_text writes. What is left out is as in a CSV file without the column (a=N, pw=0, sw=1,
/// fused=yes); a batch that is left out is 1.
/// Errors: UsageError that says what the operation needs.
ProblemShape parse_shape(std::string_view text);

/// The shape with another mini-batch: n of a product and of a convolution, batch of a recurrent layer. Nothing where
/// there is no such dimension (pointwise).
std::optional<ProblemShape> with_batch(const ProblemShape&, std::size_t batch);

}  // namespace gradmeter::kernels
