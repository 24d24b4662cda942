// SPDX-License-Identifier: Apache-2.0
#include "kernels/cases/op_case.hpp"

#include <algorithm>

#include "kernels/number_format.hpp"

namespace gradmeter::kernels {
OperandSet::OperandSet(const Op& op, runtime::Device& device) {
  const auto allocate = [&](const Operand& o) {
    return memory.emplace_back(device.allocate(core::Element::i8, o.stored_bytes)).buffer;
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

OpCase::OpCase(const Problem& p, std::size_t sets, const OpOptions& options, runtime::Device& device)
    : device_(device),
      on_host_(&device == &runtime::host_device()),
      op_(prepare(p, options, device)),
      queue_(device.make_queue()) {
  for (std::size_t i = 0; i < op_->inputs().size(); ++i)
    packing_.push_back(op_->inputs()[i].packed ? op_->packing(i) : nullptr);
  for (std::size_t i = 0; i < sets; ++i) sets_.emplace_back(*op_, device);
}

void OpCase::bind() {
  for (const OperandSet& s : sets_) queue_->submit("bind", {}, [&] { op_->bind(s.inputs, s.outputs); });
}

PlainNumbers OpCase::draw(std::string_view input, std::uint64_t seed, double scale) const {
  const Operand& o = op_->inputs()[index_of(op_->inputs(), input)];
  PlainNumbers numbers{std::vector<std::byte>(o.plain_bytes()), o.format};
  fill_random(numbers.bytes, *o.format, seed, scale * scale_for_random(*o.format));
  return numbers;
}

void OpCase::set_input(std::size_t set, std::string_view name, const PlainNumbers& numbers) {
  const std::size_t i = index_of(op_->inputs(), name);
  if (!packing_[i]) return upload(numbers.bytes, sets_[set].memory[i].buffer);
  runtime::ConstBuffer plain(core::Element::i8, std::span(numbers.bytes));
  const runtime::OwnedBuffer uploaded = plain_memory(numbers.bytes.size());
  if (!on_host_) queue_->copy("upload", plain, uploaded.buffer), plain = uploaded.buffer;
  packing_[i]->run(*queue_, "pack", {plain}, {sets_[set].memory[i].buffer});
  queue_->synchronise();
}

PlainNumbers OpCase::input(std::size_t set, std::string_view name) const {
  return {stored_input(set, name), op_->inputs()[index_of(op_->inputs(), name)].format};
}

PlainNumbers OpCase::output(std::size_t set, std::string_view name) {
  const std::size_t i = index_of(op_->outputs(), name);
  const Operand& o = op_->outputs()[i];
  if (!o.packed) return {stored_output(set, name), o.format};
  PlainNumbers numbers{std::vector<std::byte>(o.plain_bytes()), o.format};
  const runtime::Buffer plain(core::Element::i8, std::span(numbers.bytes));
  const runtime::OwnedBuffer unpacked = plain_memory(numbers.bytes.size());
  const auto unpacking = op_->unpacking(i);
  unpacking->run(*queue_, "unpack", {sets_[set].outputs[i]}, {on_host_ ? plain : unpacked.buffer});
  if (!on_host_) queue_->copy("download", unpacked.buffer, plain);
  queue_->synchronise();
  return numbers;
}

std::vector<std::byte> OpCase::stored_input(std::size_t set, std::string_view name) const {
  return download(input_buffer(set, name));
}
std::vector<std::byte> OpCase::stored_output(std::size_t set, std::string_view name) const {
  return download(output_buffer(set, name));
}
void OpCase::store_input(std::size_t set, std::string_view name, std::span<const std::byte> bytes) {
  upload(bytes, input_buffer(set, name));
}
void OpCase::store_output(std::size_t set, std::string_view name, std::span<const std::byte> bytes) {
  upload(bytes, output_buffer(set, name));
}

namespace {
/// The bytes that poison one element.
std::vector<std::byte> poison_of(const NumberFormat& f) { return std::vector<std::byte>(f.bytes, unwritten_byte(f)); }
}  // namespace

void OpCase::poison(std::size_t set, std::string_view name, std::span<const std::size_t> elements) {
  const Operand& o = op_->outputs()[index_of(op_->outputs(), name)];
  if (!o.format) return;
  const auto never = poison_of(*o.format);
  if (elements.empty() || !op_->stored_offset(o, elements.front()))
    return store_output(set, name, std::vector<std::byte>(o.stored_bytes, never.front()));
  const std::size_t stride = std::max<std::size_t>(1, elements.size() / enough_poisoned);
  for (std::size_t i = 0; i < elements.size(); i += stride)
    if (const auto at = op_->stored_offset(o, elements[i]))
      queue_->copy("poison", runtime::ConstBuffer(core::Element::i8, std::span(never)),
                   output_buffer(set, name).part(*at, never.size()));
  queue_->synchronise();
}

std::size_t OpCase::count_poisoned(std::size_t set, std::string_view name,
                                   std::span<const std::size_t> elements) const {
  const Operand& o = op_->outputs()[index_of(op_->outputs(), name)];
  if (!o.format) return 0;
  const auto never = poison_of(*o.format);
  return static_cast<std::size_t>(std::ranges::count_if(elements, [&](std::size_t element) {
    const auto at = op_->stored_offset(o, element);
    return at && download(output_buffer(set, name).part(*at, never.size())) == never;
  }));
}

void OpCase::take_input(std::size_t set, std::string_view name, const OpCase& from, std::string_view output) {
  from.queue_->synchronise();
  queue_->copy("take", from.output_buffer(0, output), input_buffer(set, name));
  queue_->synchronise();
}

const runtime::Buffer& OpCase::input_buffer(std::size_t set, std::string_view name) const {
  return sets_[set].memory[index_of(op_->inputs(), name)].buffer;
}
const runtime::Buffer& OpCase::output_buffer(std::size_t set, std::string_view name) const {
  return sets_[set].outputs[index_of(op_->outputs(), name)];
}

std::vector<std::byte> OpCase::download(const runtime::ConstBuffer& from) const {
  std::vector<std::byte> bytes(from.bytes());
  queue_->copy("download", from, runtime::Buffer(core::Element::i8, std::span(bytes)));
  queue_->synchronise();
  return bytes;
}
void OpCase::upload(std::span<const std::byte> bytes, const runtime::Buffer& to) {
  queue_->copy("upload", runtime::ConstBuffer(core::Element::i8, bytes), to);
  queue_->synchronise();
}

/// Device memory for an operand's plain form; none on the host, where the caller's memory serves.
runtime::OwnedBuffer OpCase::plain_memory(std::size_t bytes) const {
  return on_host_ ? runtime::OwnedBuffer{} : device_.allocate(core::Element::i8, bytes);
}

}  // namespace gradmeter::kernels
