#include "kernels/cuda/half_op.hpp"

#include <array>

#include "kernels/cuda/pack.hpp"

namespace gradmeter::kernels::cuda {
namespace {

/// f32 for an operand that is no half.
core::Element half_of(const Operand& o) {
  if (!o.format) return core::Element::f32;
  for (const core::Element e : {core::Element::f16, core::Element::bf16})
    if (*o.format == number_format(e)) return e;
  return core::Element::f32;
}
MatrixForm line(const Operand& o) {
  return {.count = 1, .rows = 1, .columns = o.elements, .stored_rows = 1, .stored_columns = o.elements};
}

}  // namespace

std::unique_ptr<Op> HalfOp::packing_floats(std::size_t input) const {
  const Operand& o = inputs()[input];
  const core::Element half = half_of(o);
  if (half == core::Element::f32) return DeviceOp::packing_floats(input);
  return make_conversion(
      as_plain_floats(o), o, "own", [half, f = line(o)](const std::byte* from, std::byte* to, cudaStream_t stream) {
        pack_halves(reinterpret_cast<const float*>(from), reinterpret_cast<std::uint16_t*>(to), half, f, stream);
      });
}

std::unique_ptr<Op> HalfOp::unpacking_floats(std::size_t output) const {
  const Operand& o = outputs()[output];
  const core::Element half = half_of(o);
  if (half == core::Element::f32) return DeviceOp::unpacking_floats(output);
  return make_conversion(
      o, as_plain_floats(o), "own", [half, f = line(o)](const std::byte* from, std::byte* to, cudaStream_t stream) {
        unpack_halves(reinterpret_cast<const std::uint16_t*>(from), reinterpret_cast<float*>(to), half, f, stream);
      });
}

Operand plain_operand(std::string_view name, core::Element element, std::size_t elements, bool added_to) {
  return {.name = name,
          .format = &number_format(element),
          .elements = elements,
          .stored_bytes = elements * core::size_of(element),
          .added_to = added_to};
}

}  // namespace gradmeter::kernels::cuda
