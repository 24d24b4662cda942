// SPDX-License-Identifier: Apache-2.0
// Logs by the format strings of baidu-research/DeepBench, code/nvidia, code/amd and code/arm.
#include <gmock/gmock.h>

#include "importers/support.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using ::testing::HasSubstr;

TEST(DeepBench, ProductsOfNvidiasProgramSayTransposedByNumbers) {
  const auto log = read(log_file("deepbench_gemm_nvidia.txt"));
  ASSERT_EQ(log.run.points.size(), 2u);  // a third has a time of 0 µs, which says nothing
  const auto& p = log.run.points[1];
  EXPECT_EQ(p.experiment, "kernels");
  EXPECT_EQ(text(p, Factor::problem), "gemm:m=1760,n=7000,k=1760,a=T,b=N");
  EXPECT_EQ(text(p, Factor::pass), "forward");
  EXPECT_EQ(text(p, Factor::precision), "fp16");
  EXPECT_EQ(text(p, Factor::device), "null");  // the log does not say it
  EXPECT_NEAR(number(p, Metric::time_s), 2331e-6, 1e-12);
  EXPECT_NEAR(number(p, Metric::flops_per_s), 2.0 * 1760 * 7000 * 1760 / 2331e-6, 1e6);
  EXPECT_TRUE(core::is_null(p.metrics[Metric::wrong]));
  EXPECT_THAT(log.not_stated, HasSubstr("whether results were right"));
}

TEST(DeepBench, WhatItDoesNotSupportIsARowWithoutTimes) {
  const auto products = read(log_file("deepbench_gemm_int8_nvidia.txt"));
  ASSERT_EQ(products.run.points.size(), 2u);
  EXPECT_EQ(text(products.run.points[0], Factor::precision), "int8");
  EXPECT_EQ(products.run.points[1].status, core::Status::unsupported);
  const auto convolutions = read(log_file("deepbench_conv_nvidia.txt"));
  ASSERT_EQ(convolutions.run.points.size(), 6u);
  for (std::size_t pass = 3; pass < 6; ++pass) {  // backward times of such a row are those of the row before
    EXPECT_EQ(convolutions.run.points[pass].status, core::Status::unsupported);
    EXPECT_TRUE(core::is_null(convolutions.run.points[pass].metrics[Metric::time_s]));
  }
}

TEST(DeepBench, AConvolutionHasAPointForEachPass) {
  const auto points = read(log_file("deepbench_conv_nvidia.txt")).run.points;
  EXPECT_EQ(text(points[0], Factor::problem), "conv:w=700,h=161,c=1,n=4,k=32,fw=20,fh=5,pw=0,ph=0,sw=2,sh=2");
  EXPECT_EQ(text(points[1], Factor::pass), "backward-data");
  EXPECT_NEAR(number(points[0], Metric::time_s), 128e-6, 1e-12);
  EXPECT_NEAR(number(points[1], Metric::time_s), 301e-6, 1e-12);
  EXPECT_NEAR(number(points[2], Metric::time_s), 222e-6, 1e-12);
}

TEST(DeepBench, RecurrentLayersOfBothVendorsAreRead) {
  const auto nvidia = read(log_file("deepbench_rnn_nvidia.txt")).run.points;
  ASSERT_EQ(nvidia.size(), 6u);
  EXPECT_EQ(text(nvidia[3], Factor::problem), "rnn:cell=lstm,hidden=512,batch=32,steps=25");
  EXPECT_NEAR(number(nvidia[5], Metric::time_s), 210e-6, 1e-12);
  const auto amd = read(log_file("deepbench_rnn_amd.txt")).run.points;
  ASSERT_EQ(amd.size(), 3u);
  EXPECT_EQ(text(amd[0], Factor::problem), "rnn:cell=vanilla,hidden=1760,batch=16,steps=50");
  EXPECT_EQ(text(amd[0], Factor::precision), "null");
}

TEST(DeepBench, MillisecondsAndSparseProductsAreRead) {
  const auto arm = read(log_file("deepbench_gemm_arm.txt")).run.points.at(0);
  EXPECT_EQ(text(arm, Factor::problem), "gemm:m=5124,n=700,k=2048,a=N,b=T");
  EXPECT_NEAR(number(arm, Metric::time_s), 0.133401, 1e-9);
  const auto sparse = read(log_file("deepbench_sparse_nvidia.txt")).run.points;
  ASSERT_EQ(sparse.size(), 1u);  // the dense product's time is in another table
  EXPECT_EQ(text(sparse[0], Factor::problem), "sparse:m=7680,n=2,k=2560,sparsity=0.95,format=csr");
  EXPECT_NEAR(number(sparse[0], Metric::time_s), 71e-6, 1e-12);
}

TEST(DeepBench, AllReducesHaveTheSlowestRanksTime) {
  const auto mpi = read(log_file("deepbench_allreduce_mpi.txt")).run.points;
  ASSERT_EQ(mpi.size(), 2u);
  EXPECT_EQ(mpi[1].experiment, "allreduce");
  EXPECT_EQ(text(mpi[1], Factor::size_bytes), "12390400");
  EXPECT_EQ(text(mpi[1], Factor::ranks), "8");
  EXPECT_EQ(text(mpi[1], Factor::algorithm), "nccl");
  EXPECT_EQ(text(mpi[1], Factor::reduction), "max");
  EXPECT_NEAR(number(mpi[1], Metric::time_s), 0.6203e-3, 1e-12);
  const auto single = read(log_file("deepbench_allreduce_single.txt")).run.points.at(0);
  EXPECT_EQ(text(single, Factor::reduction), "null");
  EXPECT_NEAR(number(single, Metric::busbw_bytes_per_s), 1.5 * 400000 / 0.0389e-3, 1);
}

TEST(DeepBench, WhatItCouldNotTimeIsCounted) {
  EXPECT_EQ(read(log_file("deepbench_gemm_nvidia.txt")).faults, "left out: 1 row whose time or rate is 0 or less");
  const std::string log = log_file("deepbench_allreduce_mpi.txt");
  EXPECT_EQ(read(log).faults, "");
  EXPECT_EQ(read(replaced(log, "0.6203", "0.0   ")).faults, "left out: 1 row whose time or rate is 0 or less");
  EXPECT_EQ(read(replaced(log, "12390400", " 3097600")).run.points[1].reason,
            "its columns contradict each other: 3097600 floats are not 3097600 bytes");
  EXPECT_EQ(read(replaced(log, " 0.611", " 0.911")).faults, "mistrusted: 1 row whose columns contradict each other");
}

TEST(DeepBench, ABadRowIsNamedByItsLine) {
  const std::string log = log_file("deepbench_conv_nvidia.txt");
  EXPECT_THAT(refusal(log.substr(0, log.find("301")) + "\n"),
              HasSubstr("left out: line 6, the last row, which is cut"));
  EXPECT_THAT(read(replaced(log, "       2         2 ", "       0         2 ")).faults,
              HasSubstr("left out: 1 row that cannot be read (line 6: "));  // a stride of 0
  const std::string products = log_file("deepbench_gemm_nvidia.txt");
  EXPECT_THAT(read(replaced(products, "      half", "    double")).faults,
              HasSubstr("line 5: 'double' is no precision"));
  EXPECT_THAT(read(replaced(products, "   1760     16", "99999999999999999999     16")).faults,
              HasSubstr("is no count"));
}

}  // namespace
}  // namespace gradmeter::importers
