// Where an encoding kernel's numbers come from: a tensor, or the sum of encoded tensors.
#pragma once
#include <cstddef>
#include <cstdint>

#include "compression/cuda/bucketed.hpp"
#include "compression/cuda/wire_access.cuh"
#include "compression/cuda/wire_shape.hpp"

namespace gradmeter::compression::cuda {

/// What a lane holds of a piece: quad s begins 128·s + 4·lane elements behind the piece's first.
struct Piece {
  Quad quads[steps];
};

struct FromFloats {
  const float* x;
  bool aligned;

  __device__ Piece piece(std::size_t, std::size_t first, std::size_t end) const {
    Piece p;
    for (std::size_t s = 0; s < steps; ++s) p.quads[s] = read_quad(x, aligned, first + s * step_elements, end);
    return p;
  }
  __device__ float one(std::size_t, std::size_t i) const { return x[i]; }
};

/// Sums in the order of the wires, as Reducer's: the first is decoded, the others are added.
template <class Rule>
struct FromWires {
  Wires wires;
  std::size_t scale_bytes;

  __device__ typename Rule::Decoder decoder(unsigned w, std::size_t bucket) const {
    using Scale = typename Rule::Scale;
    return typename Rule::Decoder(load_at<Scale>(wires.of[w] + bucket * sizeof(Scale)));
  }

  __device__ Piece piece(std::size_t bucket, std::size_t first, std::size_t end) const {
    Piece p{};
    for (unsigned w = 0; w < wires.count; ++w) {
      const auto rule = decoder(w, bucket);
      for (std::size_t s = 0; s < steps; ++s) {
        const std::size_t i = first + s * step_elements;
        if (i >= end) break;
        const std::uint32_t word = read_codes<Rule::bits>(wires.of[w] + scale_bytes, i);
        for (unsigned c = 0; c < 4; ++c) {
          const float value = rule.value(word >> (c * Rule::bits) & ((1u << Rule::bits) - 1));
          float& sum = p.quads[s].v[c];
          sum = i + c >= end ? 0.0f : w == 0 ? value : sum + value;
        }
      }
    }
    return p;
  }
  __device__ float one(std::size_t bucket, std::size_t i) const {
    float sum = 0;
    for (unsigned w = 0; w < wires.count; ++w) {
      const std::uint32_t word = read_codes<Rule::bits>(wires.of[w] + scale_bytes, i / 4 * 4);
      const float value = decoder(w, bucket).value(word >> (i % 4 * Rule::bits) & ((1u << Rule::bits) - 1));
      sum = w == 0 ? value : sum + value;
    }
    return sum;
  }
};

}  // namespace gradmeter::compression::cuda
