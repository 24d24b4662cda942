// SPDX-License-Identifier: Apache-2.0
// A fully connected network without the registry, as most tests of models and strategies train it.
#pragma once
#include "model/network/network.hpp"
#include "model/registry.hpp"

namespace gradmeter::model {

class Mlp final : public Network {
 public:
  /// widths: of the whole network, whatever the part.
  explicit Mlp(const std::vector<std::size_t>& widths, const Part& part = {},
               kernels::Precision precision = kernels::Precision::fp32)
      : Network(mlp_name(widths), mlp_layers(widths, precision), part) {}
};

}  // namespace gradmeter::model
