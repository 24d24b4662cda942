// SPDX-License-Identifier: Apache-2.0
// The number of threads with which a rank computes. OpenMP keeps this number for each thread that starts parallel work,
// not for the process, so set it on the thread that will call the kernels.
#pragma once
#include <cstddef>
#include <functional>

namespace gradmeter::kernels {

/// Makes the calling thread's kernels use `threads` threads from now on (omp_set_num_threads, which oneDNN obeys as
/// well). Other threads keep theirs. A new std::thread starts with OMP_NUM_THREADS or, without it, with every core it
/// may use. A Gemm must run with the number that was set when it was made. Errors: UsageError when threads < 1.
void set_compute_threads(int threads);
int compute_threads();

/// Divides [0, n) into contiguous parts and calls part(first, count) for each, in parallel. There are at most
/// compute_threads() parts, and at most n / `grain`, but at least one if n is not 0. Parts start at multiples of 16
/// elements, so that no two write the same cache line of floats. `part` must not throw. A single part is one plain call
/// on this thread.
void split(std::size_t n, std::size_t grain, const std::function<void(std::size_t first, std::size_t count)>& part);

}  // namespace gradmeter::kernels
