#include "allreduce/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"

namespace gradmeter::allreduce {
namespace {

template <class T>
class ReduceContract : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(ReduceContract, Types);

template <class T>
T one(Op op, T a, T b) {
  switch (op) {
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::product:
      return a * b;
    default:
      return a + b;
  }
}

TYPED_TEST(ReduceContract, EqualsTheLeftToRightLoopForAnyLengthAndNumberOfSources) {
  using T = TypeParam;
  for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
    for (const std::size_t n : {0u, 1u, 15u, 16u, 17u, 1000u, 5000u}) {
      for (const std::size_t sources : {2u, 3u, 5u}) {
        std::vector<std::vector<T>> values(sources, std::vector<T>(n));
        std::vector<const std::byte*> pointers;
        for (std::size_t s = 0; s < sources; ++s) {
          for (std::size_t i = 0; i < n; ++i)
            values[s][i] = static_cast<T>(static_cast<int>((i * 7 + s * 13) % 11) - 5);
          pointers.push_back(reinterpret_cast<const std::byte*>(values[s].data()));
        }
        std::vector<T> expected = values[0];
        for (std::size_t s = 1; s < sources; ++s) {
          for (std::size_t i = 0; i < n; ++i) expected[i] = one(op, expected[i], values[s][i]);
        }
        // The destination is the last source: it must not be overwritten before it is read.
        reduce(core::element_of<T>, op, reinterpret_cast<std::byte*>(values.back().data()), pointers, n);
        EXPECT_EQ(values.back(), expected) << name(op) << " n " << n << " sources " << sources;
      }
    }
  }
}

TEST(Reduce, AverageDividesOnceInFinish) {
  std::vector<float> v{3, 6, 9}, out(3);
  finish(core::Element::f32, Op::average, reinterpret_cast<std::byte*>(out.data()),
         reinterpret_cast<const std::byte*>(v.data()), 3, 3);
  for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(i + 1));
}

TEST(Reduce, FinishOfASumCopiesWhenThePlacesDiffer) {
  std::vector<double> v{1, 2}, out(2);
  finish(core::Element::f64, Op::sum, reinterpret_cast<std::byte*>(out.data()),
         reinterpret_cast<const std::byte*>(v.data()), 2, 7);
  EXPECT_EQ(out, v);
}

TEST(Reduce, AverageOfIntegersIsRefused) {
  EXPECT_THROW(check_supported(core::Element::i32, Op::average), core::UsageError);
  EXPECT_NO_THROW(check_supported(core::Element::i32, Op::sum));
}

}  // namespace
}  // namespace gradmeter::allreduce
