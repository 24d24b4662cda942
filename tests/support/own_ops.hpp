// SPDX-License-Identifier: Apache-2.0
// The device's own operations, whatever library there is, on plain fp32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/element.hpp"
#include "core/random.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/op.hpp"
#include "runtime/cuda/device.hpp"
#include "support/op_runner.hpp"

namespace gradmeter::test {

/// Plain operands in fp32 to an operation and back.
class OwnOps {
 public:
  OwnOps() { kernels::add_cuda_ops(); }
  std::unique_ptr<Op> prepare(const Problem& p, const OpOptions& o = {}) {
    return kernels::prepare(p, {.training = o.training, .backend = "own"}, device_);
  }

  /// What `op` makes of these; `before` is in the outputs that it adds to.
  std::vector<Floats> outputs(Op& op, const std::vector<Floats>& inputs, const std::vector<Floats>& before = {}) {
    const auto out = runner_.call(op, runner_.stored(op, inputs), 1, before);
    std::vector<Floats> all;
    for (std::size_t i = 0; i < out.size(); ++i) all.push_back(runner_.plain(op, out[i], i));
    return all;
  }

 private:
  runtime::CudaDevice device_{0};
  test::OpRunner runner_{device_};
};

inline Floats drawn(std::size_t n, std::uint64_t stream) {
  const core::Random random(5, stream);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.gaussian(i));
  return x;
}

inline float rounded(float x, const core::SmallFormat& f) { return core::to_float(f, core::from_float(f, x)); }
inline Floats rounded(Floats x, const core::SmallFormat& f) {
  for (float& v : x) v = rounded(v, f);
  return x;
}

}  // namespace gradmeter::test
