// SPDX-License-Identifier: Apache-2.0
// Sparse products in 2:4 by cuSPARSELt: over the emulated runtime its calls alone, with a library of our own. Where the
// library is not built in, that its rows say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/cuda/backends.hpp"
#include "runtime/cuda/device.hpp"
#include "support/device_seeds.hpp"
#include "support/kernel_cases.hpp"
#ifdef GRADMETER_HAS_CUSPARSELT
#include "core/element.hpp"
#include "kernels/sparse/cusparselt.hpp"
#include "kernels/sparse/sparse.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/device.hpp"
#endif

namespace gradmeter::kernels {
namespace {

using enum Precision;
using ::testing::HasSubstr;

SparseShape two_of_four(std::size_t m, std::size_t n, std::size_t k) {
  return {.m = m, .n = n, .k = k, .sparsity = 0.5, .format = SparseFormat::two_of_four};
}

class DeviceTwoOfFour : public testing::Test {
 protected:
  static void SetUpTestSuite() { add_cuda_ops(); }
  std::string refusal(const SparseShape& s, Precision p) {
    return kernel_case_refusal({.shape = s, .precision = p}, device_);
  }

  runtime::CudaDevice device_{0};
};

TEST_F(DeviceTwoOfFour, IsNotInFp32) { EXPECT_NE(refusal(two_of_four(32, 16, 64), fp32), ""); }

#ifndef GRADMETER_HAS_CUSPARSELT

TEST_F(DeviceTwoOfFour, SaysWhatIsMissing) {
  for (const Precision p : {bf16, fp16, fp8_e4m3, int8})
    EXPECT_THAT(refusal(two_of_four(32, 16, 64), p), HasSubstr("scripts/cusparselt.sh")) << name(p);
}
TEST_F(DeviceTwoOfFour, IsMultiplied) { GTEST_SKIP() << "built without cuSPARSELt: scripts/cusparselt.sh installs it"; }

#else

TEST_F(DeviceTwoOfFour, HasTheReferencesProductAndFindsOneWrongElement) {
  test::each_device_seed([&] {
    for (const Precision p : {bf16, fp16, fp8_e4m3, int8})
      for (const SparseShape& s : {two_of_four(32, 16, 64), two_of_four(64, 48, 32), two_of_four(96, 16, 160)}) {
        if (!refusal(s, p).empty()) continue;  // of a real GPU that is too old
        tests::expect_right_and_error_found({.shape = s, .precision = p}, 1e9, device_);
      }
  });
}

TEST_F(DeviceTwoOfFour, TakesTheAlgorithmThatASearchFinds) {
  const Problem p{.shape = two_of_four(64, 32, 96), .precision = bf16};
  if (const auto why = kernel_case_refusal(p, device_); !why.empty()) GTEST_SKIP() << why;
  test::each_device_seed([&] {
    const auto estimated = make_kernel_case(p, {.device = &device_});
    const auto searched = make_kernel_case(p, {.sets = 2, .device = &device_, .search = AlgorithmSearch::exhaustive});
    EXPECT_THAT(estimated->implementation(), testing::StartsWith("cusparselt algorithm "));
    if (device_.is_emulated()) {
      EXPECT_EQ(estimated->implementation(), "cusparselt algorithm 0, split-k 1, mode 1");
      EXPECT_EQ(searched->implementation(), "cusparselt algorithm 2, split-k 2, mode 1");
    }
    searched->run(1);
    EXPECT_TRUE(searched->check(1e9, false).right());
    EXPECT_FALSE(searched->check(1e9, true).right());
  });
}

TEST_F(DeviceTwoOfFour, IsRefusedWithTheReason) {
  EXPECT_EQ(refusal(two_of_four(32, 8, 64), bf16), "");
  EXPECT_THAT(refusal(two_of_four(24, 8, 64), bf16), HasSubstr("multiples of 16"));
  EXPECT_THAT(refusal(two_of_four(32, 8, 40), fp16), HasSubstr("multiples of 16"));
  EXPECT_THAT(refusal(two_of_four(32, 1, 64), bf16), HasSubstr("n of 8"));
  EXPECT_THAT(refusal(two_of_four(48, 16, 64), int8), HasSubstr("multiples of 32"));
  EXPECT_THAT(refusal(two_of_four(32, 8, 64), int8), HasSubstr("n of 16"));
  EXPECT_THAT(refusal({.m = 32, .n = 8, .k = 64, .sparsity = 0.5}, bf16), HasSubstr("2:4 alone"));
  EXPECT_THAT(refusal(two_of_four(32, 8, 64), lns16), HasSubstr("no backend"));
}

TEST_F(DeviceTwoOfFour, HoldsCompressedOperandsOnly) {
  // 2048 numbers of which 1024 are kept, with two bits each; B and C.
  EXPECT_EQ(kernel_case_bytes({.shape = two_of_four(32, 16, 64), .precision = bf16}, device_),
            1024u * 2 + 256 + 64 * 16 * 2 + 32 * 16 * 2);
  EXPECT_EQ(kernel_case_bytes({.shape = two_of_four(32, 16, 64), .precision = int8}, device_),
            1024u + 256 + 64 * 16 + 32 * 16 * 4);
}

TEST_F(DeviceTwoOfFour, FindsAMatrixThatIsDenser) {
  const SparseShape s = two_of_four(32, 16, 64);
  cuda::SparseLtProduct product(s, bf16, device_);
  const auto queue = device_.make_queue();
  const auto found_in = [&](const std::vector<float>& numbers) {
    std::vector<std::byte> stored(2 * numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) core::store(core::Element::bf16, &stored[2 * i], numbers[i]);
    const auto dense = device_.allocate(core::Element::i8, stored.size());
    const auto found = device_.allocate(core::Element::i32, 1);
    std::vector<std::int32_t> on_host(1, -1);
    queue->copy("upload", runtime::ConstBuffer(core::Element::i8, std::span(std::as_const(stored))), dense.buffer);
    queue->submit("check", {}, [&] { product.check_pruned(dense.buffer, found.buffer, gpu::stream()); });
    queue->copy("download", found.buffer,
                runtime::Buffer(core::Element::i8, std::as_writable_bytes(std::span(on_host))));
    queue->synchronise();
    return on_host[0];
  };
  std::vector<float> a = to_dense(random_sparse(32, 64, 0.5, SparseFormat::two_of_four, 3));
  EXPECT_EQ(found_in(a), 0);
  std::fill(a.end() - 4, a.end() - 1, 1.0F);
  EXPECT_NE(found_in(a), 0);
}

TEST_F(DeviceTwoOfFour, RefusesBuffersOfTheWrongLength) {
  cuda::SparseLtProduct product(two_of_four(32, 16, 64), bf16, device_);
  const auto small = device_.allocate(core::Element::i8, 8);
  EXPECT_THROW(product.multiply(small.buffer, small.buffer, small.buffer, nullptr), std::invalid_argument);
  EXPECT_THROW(product.compress(small.buffer, small.buffer, small.buffer, nullptr), std::invalid_argument);
  EXPECT_THROW(product.check_pruned(small.buffer, small.buffer, nullptr), std::invalid_argument);
  EXPECT_THROW(cuda::SparseLtProduct(two_of_four(32, 16, 36), bf16, device_), core::BackendError);
}

#endif

}  // namespace
}  // namespace gradmeter::kernels
