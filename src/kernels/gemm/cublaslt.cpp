// SPDX-License-Identifier: Apache-2.0
// Dense products on a GPU by cuBLASLt: fp32; bf16 and fp16 with sums in fp32; fp8 with sums and results in fp32, and
// operands that are scaled by their largest number; int8 by int8 with sums in int32. Fast modes of fp32 (tf32) and of
// fp8 (sums in fewer bits) are precisions of their own.
// Operands in fp8 and int8 are packed: the library takes them with k contiguous in both, and with extents that are
// multiples of 16. The result of such a product is packed, too, if its extents had to be padded.
#include <span>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"
#include "kernels/backends.hpp"
#include "kernels/cuda/device_op.hpp"
#include "kernels/gemm/cublaslt_product.hpp"
#include "kernels/gemm/gpu_kernels.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using core::Element;

/// The types of the operands as the library reads and writes them, and its mode.
struct LtTypes {
  cudaDataType a, b, c, bias;
  bool is_narrow = false;  ///< 8 bits: operands are packed
  LtMode mode = LtMode::usual;

  bool is_fp8() const { return is_narrow && c == CUDA_R_32F; }
};
LtTypes types_of(Precision p) {
  switch (p) {
    case Precision::fp32:
      return {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F};
    case Precision::bf16:
      return {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF};
    case Precision::fp16:
      return {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F};
    case Precision::fp8_e4m3:
      return {CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_16BF, true};
    case Precision::fp8_e5m2:  // the library has no e5m2 by e5m2, so only `a` is e5m2, whose range gradients need
      return {CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_16BF, true};
    case Precision::tf32: {
      LtTypes t = types_of(Precision::fp32);
      t.mode = LtMode::tf32;
      return t;
    }
    case Precision::fp8_e4m3_fast:
    case Precision::fp8_e5m2_fast: {
      LtTypes t = types_of(p == Precision::fp8_e4m3_fast ? Precision::fp8_e4m3 : Precision::fp8_e5m2);
      t.mode = LtMode::fast_sums;
      return t;
    }
    case Precision::int8:
      return {CUDA_R_8I, CUDA_R_8I, CUDA_R_32I, CUDA_R_32F, true};
    default:
      throw std::logic_error("cuBLASLt was asked for a precision that it has not");
  }
}
Element element_of(cudaDataType t) {
  switch (t) {
    case CUDA_R_32F:
      return Element::f32;
    case CUDA_R_16BF:
      return Element::bf16;
    case CUDA_R_16F:
      return Element::f16;
    case CUDA_R_8F_E4M3:
      return Element::e4m3;
    case CUDA_R_8F_E5M2:
      return Element::e5m2;
    case CUDA_R_8I:
      return Element::i8;
    default:
      return Element::i32;
  }
}

std::size_t rounded_up(std::size_t n, std::size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// The shape that the library multiplies. 8-bit operands are stored as a [m x k] and b [n x k], with extents padded to
/// multiples of 16; for int8, m to a multiple of 32, since the library takes no fewer than 17 rows, and has been seen
/// to fail with 17 on sm_90 (pytorch issue 106840).
GemmShape stored_shape(const GemmShape& s, const LtTypes& t) {
  GemmShape stored = s;
  if (!t.is_narrow) return stored;
  stored.m = rounded_up(s.m, t.is_fp8() ? 16 : 32), stored.n = rounded_up(s.n, 16), stored.k = rounded_up(s.k, 16);
  stored.transpose_a = Transpose::no, stored.transpose_b = Transpose::yes;
  return stored;
}

struct Forms {
  MatrixForm a, b, c, bias;
};
Forms forms_of(const GemmShape& s, const GemmShape& stored, bool is_narrow) {
  if (!is_narrow) {
    const MatrixForm a{s.count, s.m, s.k, s.m, s.k}, b{s.count, s.k, s.n, s.k, s.n};
    return {a, b, {s.count, s.m, s.n, s.m, s.n}, {1, 1, s.n, 1, s.n}};
  }
  return {.a = {s.count, s.m, s.k, stored.m, stored.k, s.transpose_a == Transpose::yes},
          .b = {s.count, s.n, s.k, stored.n, stored.k, s.transpose_b == Transpose::no},
          .c = {s.count, s.m, s.n, stored.m, stored.n},
          .bias = {1, 1, s.n, 1, stored.n}};
}

class LtOp final : public DeviceOp {
 public:
  LtOp(const Problem& p, const OpOptions& o, const Forms& f, const GemmShape& stored, runtime::Device& device)
      : DeviceOp({inputs_of(p, f), {output_of(p, f)}}, {.flops = flops(p), .bytes = moved_bytes(p, f)}),
        types_(types_of(p.precision)),
        forms_(f),
        product_({stored, types_.a, types_.b, types_.c, types_.bias, types_.is_fp8(), types_.mode}, o.algorithm,
                 device) {
    if (o.quantization) quantize(*o.quantization, device);
  }

  std::size_t scratch_bytes() const override { return product_.workspace_bytes() + quanta_.buffer.bytes(); }
  std::string implementation() const override {
    const std::string_view mixed = types_.a == CUDA_R_8F_E5M2 ? ", e5m2 by e4m3" : "";
    const std::string_view mode = types_.mode == LtMode::tf32        ? ", tf32"
                                  : types_.mode == LtMode::fast_sums ? ", fast accumulation"
                                                                     : "";
    return fmt::format("cublaslt {}{}{}", product_.algorithm(), mixed, mode);
  }

  std::unique_ptr<Op> packing(std::size_t input) const override {
    const Operand& o = inputs()[input];
    if (!o.packed) return DeviceOp::packing(input);
    if (types_.a != CUDA_R_8I) return packing_from_fp32(input);
    return make_conversion(as_plain(o), o, [f = form(input)](const auto& from, const auto& to, cudaStream_t stream) {
      pack_int8(address_of<std::int8_t>(from), address_of<std::int8_t>(to), f, stream);
    });
  }
  std::unique_ptr<Op> unpacking(std::size_t output) const override {
    const Operand& o = outputs()[output];
    if (!o.packed) return DeviceOp::unpacking(output);
    if (types_.c != CUDA_R_32I) return make_conversion(o, as_plain(o), unpack_c<float>());
    return make_conversion(o, as_plain(o), unpack_c<std::int32_t>());
  }
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override {
    const Operand& o = inputs()[input];
    if (!o.packed) return DeviceOp::packing_from_fp32(input);
    return make_conversion(as_plain_floats(o), o, conversion_from_floats(input));
  }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override {
    const Operand& o = outputs()[output];
    if (types_.c == CUDA_R_32I) return make_conversion(o, as_plain_floats(o), conversion_of_sums());
    return o.packed ? unpacking(output) : DeviceOp::unpacking_to_fp32(output);
  }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override { product_.run(operands(in, out), stream); }
  void bind_buffers(Inputs in, Outputs out) override { product_.choose_for(operands(in, out)); }

 private:
  static Operand as_plain(Operand o) {
    o.stored_bytes = o.plain_bytes(), o.packed = false;
    return o;
  }

  static Operand operand(std::string_view name, cudaDataType stored, const MatrixForm& f, bool is_packed) {
    const Element element = element_of(stored);
    const bool is_fp8 = element == Element::e4m3 || element == Element::e5m2;
    const Element plain = is_fp8 || name == "bias" ? Element::f32 : element;
    return {.name = name,
            .format = &number_format(plain),
            .elements = f.plain_elements(),
            .stored_bytes = f.stored_elements() * core::size_of(element) + (is_fp8 ? sizeof(Fp8Scale) : 0),
            .packed = is_packed || plain != element};
  }
  static std::vector<Operand> inputs_of(const Problem& p, const Forms& f) {
    const LtTypes t = types_of(p.precision);
    std::vector<Operand> operands{operand("a", t.a, f.a, t.is_narrow), operand("b", t.b, f.b, t.is_narrow)};
    if (std::get<GemmShape>(p.shape).bias) operands.push_back(operand("bias", t.bias, f.bias, false));
    return operands;
  }
  static Operand output_of(const Problem& p, const Forms& f) {
    const bool is_larger = f.c.stored_elements() != f.c.plain_elements();
    Operand c = operand("c", types_of(p.precision).c, f.c, is_larger);
    c.is_added_to = std::get<GemmShape>(p.shape).accumulate;
    return c;
  }
  /// The bytes of all operands in their stored types, each once (an accumulated c twice), without padding.
  static double moved_bytes(const Problem& p, const Forms& f) {
    const LtTypes t = types_of(p.precision);
    const auto& s = std::get<GemmShape>(p.shape);
    const auto bytes = [](cudaDataType type, const MatrixForm& form) {
      return static_cast<double>(form.plain_elements() * core::size_of(element_of(type)));
    };
    return bytes(t.a, f.a) + bytes(t.b, f.b) + (s.bias ? bytes(t.bias, f.bias) : 0) +
           (s.accumulate ? 2 : 1) * bytes(t.c, f.c);
  }

  const MatrixForm& form(std::size_t input) const {
    return input == 0 ? forms_.a : input == 1 ? forms_.b : forms_.bias;
  }
  /// The address of an fp8 operand's scale, which lies behind its numbers.
  static const Fp8Scale* scale_of(const std::byte* stored, const MatrixForm& f) {
    return reinterpret_cast<const Fp8Scale*>(stored + f.stored_elements());
  }
  LtOperands operands(Inputs in, Outputs out) const {
    LtOperands o{.a = address_of(in[0]),
                 .b = address_of(in[1]),
                 .bias = in.size() > 2 ? address_of(in[2]) : nullptr,
                 .c = address_of(out[0])};
    if (!types_.is_fp8()) return o;
    o.a_scale = &scale_of(o.a, forms_.a)->factor, o.b_scale = &scale_of(o.b, forms_.b)->factor;
    return o;
  }

  /// Makes the conversion that unpacks c, whose type T stays as it is.
  template <class T>
  Conversion unpack_c() const {
    return [f = forms_.c](const auto& from, const auto& to, cudaStream_t stream) {
      unpack(address_of<T>(from), address_of<T>(to), f, stream);
    };
  }
  /// Makes the conversion of an fp32 input to its stored form: 8 bits, or 16 bits for the bias.
  Conversion conversion_from_floats(std::size_t input) const {
    const Element element = element_of(input == 0 ? types_.a : input == 1 ? types_.b : types_.bias);
    if (element == Element::i8) return int8_from_floats(input);
    if (core::size_of(element) == 2)
      return [element, f = form(input)](const auto& from, const auto& to, cudaStream_t stream) {
        pack_halves(address_of<float>(from), address_of<std::uint16_t>(to), element, f, stream);
      };
    return [element, f = form(input)](const auto& from, const auto& to, cudaStream_t stream) {
      auto* const scale = reinterpret_cast<Fp8Scale*>(address_of(to) + f.stored_elements());
      pack_fp8(address_of<float>(from), address_of<std::uint8_t>(to), scale, element, f, stream);
    };
  }
  /// Makes the conversion to signed 8-bit numbers. Their zero point is 128 less than the unsigned one of Quantization;
  /// what it adds to the sums of products is not subtracted.
  Conversion int8_from_floats(std::size_t input) const {
    Int8Quantum q;
    if (quanta_.memory && input == 0) q = {quantum_, zero_point_, nullptr};
    if (quanta_.memory && input == 1) q.row_quanta = device_quanta();
    return [q, f = form(input), quanta = quanta_](const auto& from, const auto& to, cudaStream_t stream) {
      pack_int8(address_of<float>(from), address_of<std::int8_t>(to), q, f, stream);
    };
  }
  Conversion conversion_of_sums() const {
    return [f = forms_.c, q = quantum_, columns = device_quanta(), quanta = quanta_](const auto& from, const auto& to,
                                                                                     cudaStream_t stream) {
      unpack_sums(address_of<std::int32_t>(from), address_of<float>(to), q, columns, f, stream);
    };
  }

  void quantize(const Quantization& q, runtime::Device& device) {
    if (q.weight_quanta.size() != forms_.b.rows)
      throw std::invalid_argument(
          fmt::format("{} quanta for the {} outputs of a product", q.weight_quanta.size(), forms_.b.rows));
    quantum_ = q.quantum;
    zero_point_ = static_cast<float>(q.zero_point - 128);
    quanta_ = device.allocate(Element::f32, q.weight_quanta.size());
    runtime::upload(quanta_.buffer.device(), std::as_bytes(std::span(q.weight_quanta)));
  }
  const float* device_quanta() const {
    if (!quanta_.memory) return nullptr;
    return address_of<float>(quanta_.buffer);
  }

  LtTypes types_;
  Forms forms_;
  LtProduct product_;
  float quantum_ = 1, zero_point_ = 0;
  runtime::OwnedBuffer quanta_;  ///< quantum of each column of b; no memory: whole numbers stand for themselves
};

std::string device_refusal(Precision p, int least_major, int least_minor) {
  const cudaDeviceProp properties = current_device();
  if (properties.major > least_major || (properties.major == least_major && properties.minor >= least_minor)) return {};
  return fmt::format("{} products need a GPU of compute capability {}.{}; this one has {}.{}", name(p), least_major,
                     least_minor, properties.major, properties.minor);
}

}  // namespace

std::string cublaslt_refusal(const Problem& p) {
  if (auto why = gemm_shape_refusal(p); !why.empty()) return why;
  const auto& s = std::get<GemmShape>(p.shape);
  const LtTypes t = types_of(p.precision);
  if (s.count > 1 && s.bias) return "products by the count have no bias";
  if (t.a == CUDA_R_8I && (s.bias || s.activation != Activation::none))
    return "int8 products on a GPU have neither bias nor activation: cuBLASLt has none for sums of int32";
  if (t.mode == LtMode::tf32) return device_refusal(p.precision, 8, 0);
  return t.is_fp8() ? device_refusal(p.precision, 8, 9) : "";
}

std::unique_ptr<Op> make_cublaslt_op(const Problem& p, const OpOptions& o, runtime::Device& device) {
  static_cast<runtime::CudaDevice&>(device).select();
  const LtTypes t = types_of(p.precision);
  const auto& s = std::get<GemmShape>(p.shape);
  const GemmShape stored = stored_shape(s, t);
  return std::make_unique<LtOp>(p, o, forms_of(s, stored, t.is_narrow), stored, device);
}

}  // namespace gradmeter::kernels::cuda
