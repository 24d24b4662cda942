#include "allreduce/slices.hpp"

#include <algorithm>

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t line_elements = 16;

std::uint64_t elements_sent(const Schedule& s, std::uint32_t rank, std::size_t n) {
  std::uint64_t sum = 0;
  Steps steps;
  for (std::uint32_t k = 0; k < s.rounds(); ++k) {
    steps.clear();
    s.steps(k, rank, steps);
    for (const Step& x : steps) {
      if (x.kind != StepKind::send) continue;
      sum += block_begin(n, s.blocks(), x.blocks.first + x.blocks.count) - block_begin(n, s.blocks(), x.blocks.first);
    }
  }
  return sum;
}

}  // namespace

Slices cut(std::size_t elements, std::size_t element_bytes, std::uint32_t blocks, std::size_t message_bytes) {
  const std::size_t wanted = std::max(message_bytes / element_bytes, line_elements) * blocks;
  const std::size_t count = std::max<std::size_t>(1, (elements + wanted - 1) / wanted);
  const std::size_t even = (elements + count - 1) / count;
  Slices s{.count = 1, .elements = (even + line_elements - 1) / line_elements * line_elements};
  if (s.elements > 0) s.count = std::max<std::size_t>(1, (elements + s.elements - 1) / s.elements);
  return s;
}

std::size_t block_begin(std::size_t n, std::uint32_t blocks, std::uint32_t b) {
  const std::size_t grain = n >= std::size_t{64} * blocks ? line_elements : 1;
  const std::size_t units = (n + grain - 1) / grain;
  return std::min(n, units * b / blocks * grain);
}

std::uint64_t payload_bytes(const Schedule& s, std::uint32_t rank, std::size_t elements, std::size_t element_bytes,
                            Slices slices) {
  if (elements == 0) return 0;
  const std::size_t last = slices.length(slices.count - 1, elements);
  std::uint64_t sum = elements_sent(s, rank, last);
  if (slices.count > 1) sum += (slices.count - 1) * elements_sent(s, rank, slices.elements);
  return sum * element_bytes;
}

}  // namespace gradmeter::allreduce
