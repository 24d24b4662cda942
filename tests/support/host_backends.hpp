// SPDX-License-Identifier: Apache-2.0
// The host's operations as those of a device whose memory it computes in.
#pragma once
#include <string_view>
#include <vector>

#include "kernels/op.hpp"

namespace gradmeter::test {

/// Before threads begin. device: runtime::Device::name. True, so that a program can do it before `main`.
inline bool host_computes_for(std::string_view device) {
  const auto rows = kernels::op_backends();
  const std::vector<kernels::OpBackend> all(rows.begin(), rows.end());
  for (kernels::OpBackend row : all) {
    row.device = device;
    kernels::add_op_backend(row);
  }
  return true;
}

}  // namespace gradmeter::test
