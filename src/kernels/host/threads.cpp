// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/threads.hpp"

#include <omp.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::kernels {
namespace {
thread_local int chosen = 0;  // 0: OpenMP decides
}

void set_compute_threads(int threads) {
  if (threads < 1) throw core::UsageError(fmt::format("threads must be at least 1, not {}", threads));
  omp_set_num_threads(threads);
  chosen = threads;
}

int compute_threads() { return chosen > 0 ? chosen : omp_get_max_threads(); }

void split(std::size_t n, std::size_t grain, const std::function<void(std::size_t, std::size_t)>& part) {
  constexpr std::size_t line_elements = 16;  // floats in 64 bytes
  const std::size_t wanted = std::min(static_cast<std::size_t>(compute_threads()), n / std::max<std::size_t>(grain, 1));
  if (wanted <= 1) {
    if (n != 0) part(0, n);
    return;
  }
  const std::size_t line_count = (n + line_elements - 1) / line_elements;
  const std::size_t part_elements = (line_count + wanted - 1) / wanted * line_elements;
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(wanted))
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::size_t first = i * part_elements;
    if (first < n) part(first, std::min(part_elements, n - first));
  }
}

}  // namespace gradmeter::kernels
