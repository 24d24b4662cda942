// SPDX-License-Identifier: Apache-2.0
// The same test on each instruction set that this processor has, and with one and two threads.
#pragma once
#include "kernels/host/threads.hpp"
#include "support/every_target.hpp"

namespace gradmeter::tests {

inline void on_every_target(const std::function<void()>& body) {
  test::on_every_target([&] {
    for (const int threads : {1, 2}) {
      kernels::set_compute_threads(threads);
      body();
    }
  });
  kernels::set_compute_threads(1);
}

}  // namespace gradmeter::tests
