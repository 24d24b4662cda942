// SPDX-License-Identifier: Apache-2.0
// Sparse times dense by cuSPARSE against the host's product.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/sparse/cusparse.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/stream.hpp"
#include "support/op_runner.hpp"

namespace gradmeter::kernels {
namespace {

using test::Floats;

TEST(DeviceSparse, HasTheHostsProduct) {
  runtime::CudaDevice device(0);
  test::OpRunner runner(device);
  for (const double sparsity : {0.0, 0.5, 0.9, 1.0})
    for (const std::size_t n : {1, 7, 64}) {
      const SparseMatrix a = random_sparse(33, 50, sparsity, SparseFormat::csr, 5);
      Floats b(50 * n), expected(33 * n);
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = 0.01F * static_cast<float>(i % 97) - 0.4F;
      sparse_multiply(a, b, n, expected);
      cuda::CusparseProduct product(a, n, device);
      const auto on_b = runner.upload(b), on_c = runner.upload(Floats(33 * n, 9));
      runner.queue().submit("sparse", {}, [&] { product.multiply(on_b.buffer, on_c.buffer, gpu::stream()); });
      EXPECT_LE(test::distance(runner.read(on_c.buffer), expected), 1e-5) << sparsity << " " << n;
      EXPECT_THROW(product.multiply(on_c.buffer, on_c.buffer, nullptr), std::invalid_argument);
    }
}

TEST(DeviceSparse, RefusesBlocks) {
  runtime::CudaDevice device(0);
  EXPECT_EQ(cuda::cusparse_refusal({.m = 1, .n = 1, .k = 1}), "");
  EXPECT_NE(cuda::cusparse_refusal({.m = 1, .n = 1, .k = 1, .format = SparseFormat::blocked}), "");
  const SparseMatrix a = random_sparse(32, 20, 0.5, SparseFormat::blocked, 5);
  EXPECT_THROW(cuda::CusparseProduct(a, 4, device), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::kernels
