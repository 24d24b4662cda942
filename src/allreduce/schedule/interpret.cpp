// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/interpret.hpp"

#include <algorithm>
#include <stdexcept>

namespace gradmeter::allreduce {
namespace {

struct NumberAlgebra {
  using Value = std::vector<float>;
  Op op;
  int ranks;

  Value reduce(const std::vector<Operand<Value>>& operands) const {
    Value out(operands.front().value->size());
    std::vector<const std::byte*> sources;
    for (const auto& o : operands) sources.push_back(reinterpret_cast<const std::byte*>(o.value->data()));
    allreduce::reduce(core::Element::f32, core::Element::f32, op, reinterpret_cast<std::byte*>(out.data()), sources,
                      out.size());
    return out;
  }
  Value finish(Value v) const {
    auto* bytes = reinterpret_cast<std::byte*>(v.data());
    allreduce::finish(core::Element::f32, op, bytes, bytes, v.size(), ranks);
    return v;
  }
};

std::vector<std::uint64_t> interpret_slice(const Schedule& s, std::span<const std::span<float>> buffers, Op op) {
  const std::size_t n = buffers.front().size();
  std::vector<std::vector<float>> values;
  for (const auto& buffer : buffers) {
    for (std::uint32_t b = 0; b < s.blocks(); ++b) {
      const auto [begin, count] = block_range(n, s.blocks(), b);
      const std::span<float> block = buffer.subspan(begin, count);
      values.emplace_back(block.begin(), block.end());
    }
  }
  NumberAlgebra algebra{op, static_cast<int>(s.ranks())};
  const std::string fault = Player<NumberAlgebra>(s, algebra, values).play();
  if (!fault.empty()) throw std::logic_error("unsound schedule: " + fault);
  for (std::size_t r = 0; r < buffers.size(); ++r) {
    for (std::uint32_t b = 0; b < s.blocks(); ++b) {
      std::ranges::copy(values[r * s.blocks() + b], buffers[r].subspan(block_begin(n, s.blocks(), b)).begin());
    }
  }
  std::vector<std::uint64_t> bytes;
  const Slice whole = Slices(SliceCut::run, n, sizeof(float), s.blocks(), 0, true)[0];
  for (std::uint32_t r = 0; r < s.ranks(); ++r) bytes.push_back(elements_sent(s, r, whole) * sizeof(float));
  return bytes;
}

}  // namespace

std::vector<std::uint64_t> interpret(std::span<const SchedulePtr> schedules, const Slices& slices,
                                     std::span<const std::span<float>> buffers, Op op) {
  std::vector<std::uint64_t> bytes(buffers.size(), 0);
  for (std::size_t i = 0; i < slices.count(); ++i) {
    const Slice slice = slices[i];
    std::vector<std::span<float>> parts(buffers.begin(), buffers.end());
    if (slice.cut == SliceCut::run) {
      for (auto& p : parts) p = p.subspan(slice.begin, slice.length);
    } else if (slice.count > 1) {
      throw std::logic_error("shares of blocks are not interpreted one by one; cut the buffer into one slice");
    }
    const auto sent = interpret_slice(*schedules[i % schedules.size()], parts, op);
    for (std::size_t r = 0; r < bytes.size(); ++r) bytes[r] += sent[r];
  }
  return bytes;
}

}  // namespace gradmeter::allreduce
