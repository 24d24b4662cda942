#include "kernels/cases/op_case.hpp"

#include <algorithm>

#include "kernels/quantization.hpp"

namespace gradmeter::kernels {
namespace {

std::span<std::byte> bytes_of(const runtime::OwnedBuffer& b) { return {b.buffer.host(), b.buffer.bytes()}; }

}  // namespace

OperandSet::OperandSet(const Op& op) {
  const auto allocate = [&](const Operand& o) {
    return memory.emplace_back(runtime::host_device().allocate(core::Element::i8, o.stored_bytes)).buffer;
  };
  for (const Operand& o : op.inputs()) inputs.emplace_back(allocate(o));
  for (const Operand& o : op.outputs()) outputs.push_back(allocate(o));
}

std::vector<float> PlainNumbers::floats() const {
  std::vector<float> out(size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(at(i));
  return out;
}

void PlainNumbers::add(std::size_t i, double by) { format->store(bytes.data() + i * format->bytes, at(i) + by); }

OpCase::OpCase(const Problem& p, std::size_t sets, const OpOptions& options) : op_(prepare(p, options)) {
  for (std::size_t i = 0; i < op_->inputs().size(); ++i)
    packing_.push_back(op_->inputs()[i].packed ? op_->packing(i) : nullptr);
  for (std::size_t i = 0; i < sets; ++i) sets_.emplace_back(*op_);
}

void OpCase::bind() {
  for (const OperandSet& s : sets_) queue_.submit("bind", {}, [&] { op_->bind(s.inputs, s.outputs); });
}

double random_range(Precision precision) {
  return precision == Precision::int8 && largest_int8_weight() < 127 ? 0.5 : 1;
}

PlainNumbers OpCase::draw(std::string_view input, std::uint64_t seed, double scale) const {
  const Operand& o = op_->inputs()[index_of(op_->inputs(), input)];
  PlainNumbers numbers{std::vector<std::byte>(o.plain_bytes()), o.format};
  fill_random(numbers.bytes, *o.format, seed, scale);
  return numbers;
}

void OpCase::set_input(std::size_t set, std::string_view name, const PlainNumbers& numbers) {
  const std::size_t i = index_of(op_->inputs(), name);
  if (packing_[i]) {
    const runtime::ConstBuffer plain(core::Element::i8, std::span(numbers.bytes));
    packing_[i]->run(queue_, "pack", {plain}, {sets_[set].memory[i].buffer});
  } else {
    std::ranges::copy(numbers.bytes, input_memory(set, name).begin());
  }
}

PlainNumbers OpCase::input(std::size_t set, std::string_view name) const {
  const std::size_t i = index_of(op_->inputs(), name);
  const auto memory = bytes_of(sets_[set].memory[i]);
  return {{memory.begin(), memory.end()}, op_->inputs()[i].format};
}

PlainNumbers OpCase::output(std::size_t set, std::string_view name) {
  const std::size_t i = index_of(op_->outputs(), name);
  const Operand& o = op_->outputs()[i];
  const auto memory = output_memory(set, name);
  if (!o.packed) return {{memory.begin(), memory.end()}, o.format};
  PlainNumbers numbers{std::vector<std::byte>(o.plain_bytes()), o.format};
  const runtime::Buffer plain(core::Element::i8, std::span(numbers.bytes));
  op_->unpacking(i)->run(queue_, "unpack", {sets_[set].outputs[i]}, {plain});
  return numbers;
}

std::span<std::byte> OpCase::input_memory(std::size_t set, std::string_view name) {
  return bytes_of(sets_[set].memory[index_of(op_->inputs(), name)]);
}
std::span<std::byte> OpCase::output_memory(std::size_t set, std::string_view name) {
  return bytes_of(sets_[set].memory[op_->inputs().size() + index_of(op_->outputs(), name)]);
}

}  // namespace gradmeter::kernels
