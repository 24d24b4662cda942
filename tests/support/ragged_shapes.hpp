// SPDX-License-Identifier: Apache-2.0
// Shapes with extents that no tile or vector divides, for tests of several backends.
#pragma once
#include "kernels/problems/problem.hpp"

namespace gradmeter::test {

inline constexpr kernels::ConvShape ragged_convolutions[] = {
    {.width = 1, .height = 1, .channels = 1, .batch = 1, .filters = 1, .filter_width = 1, .filter_height = 1},
    {.width = 9,
     .height = 7,
     .channels = 5,
     .batch = 2,
     .filters = 19,
     .filter_width = 3,
     .filter_height = 2,
     .pad_width = 1},
    {.width = 11,
     .height = 13,
     .channels = 3,
     .batch = 3,
     .filters = 4,
     .filter_width = 5,
     .filter_height = 3,
     .pad_width = 2,
     .pad_height = 1,
     .stride_width = 3,
     .stride_height = 2},
    {.width = 5,
     .height = 4,
     .channels = 2,
     .batch = 1,
     .filters = 33,
     .filter_width = 2,
     .filter_height = 2,
     .pad_width = 3,
     .pad_height = 3,
     .stride_width = 2,
     .stride_height = 5},
    {.width = 40,
     .height = 20,
     .channels = 2,
     .batch = 2,
     .filters = 3,
     .filter_width = 3,
     .filter_height = 3,
     .pad_width = 1,
     .pad_height = 1},
};

}  // namespace gradmeter::test
