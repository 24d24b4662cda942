#include "kernels/onednn.hpp"

#include "kernels/library.hpp"
#include "kernels/quantization.hpp"

namespace gradmeter::kernels {
namespace onednn {
namespace {
/// The codes of instruction sets are sets of bits, each with those of the sets before it.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}
}  // namespace

std::string bf16_refusal() {
  return has_bf16_kernels() ? "" : "oneDNN has bf16 only on processors with AVX-512 (BW, DQ, VL)";
}

OperandTypes operand_types(Precision p) {
  if (p == Precision::bf16) return {Type::bf16, Type::bf16, Type::bf16};
  if (p == Precision::int8) return {Type::u8, Type::s8, Type::s32};
  return {Type::f32, Type::f32, Type::f32};
}

}  // namespace onednn

bool has_bf16_kernels() { return onednn::has(dnnl::cpu_isa::avx512_core); }

std::string how_multiplied(Precision p) {
  if (p != Precision::bf16) return {};
  if (!has_bf16_kernels()) return "the processor has no bf16: operands are converted to fp32 and results rounded";
  if (onednn::has(dnnl::cpu_isa::avx512_core_amx)) return "the processor multiplies bf16 in AMX tiles";
  if (onednn::has(dnnl::cpu_isa::avx512_core_bf16)) return "the processor multiplies bf16 by AVX-512 BF16";
  return "bf16 is emulated: the processor has no instruction that multiplies it";
}

double largest_int8_weight() {
  const bool exact = onednn::has(dnnl::cpu_isa::avx512_core_vnni) || onednn::has(dnnl::cpu_isa::avx2_vnni);
  return exact ? 127 : 63;
}

}  // namespace gradmeter::kernels
