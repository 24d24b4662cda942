// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>
#include <type_traits>
#include <vector>

#include "kernels/backends.hpp"
#include "kernels/cuda/device_op.hpp"
#include "kernels/gemm/gpu_kernels.hpp"
#include "kernels/lns/gpu_kernels.hpp"
#include "kernels/lns/lns.hpp"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using runtime::DeviceBuffer;

/// Owns the tables on one device.
class Tables {
 public:
  explicit Tables(unsigned fraction_bits) {
    const LnsConversionTables& host_tables = lns_conversion(fraction_bits);
    const runtime::Stream stream;
    upload(doubled_, lns_tables(fraction_bits).doubled(), stream);
    upload(number_, host_tables.word_values, stream);
    upload(code_, host_tables.first_fraction, stream);
    upload(begin_, host_tables.first_mantissa, stream);
    const std::vector<std::uint16_t> exponential = lns_exponentials(fraction_bits);
    upload(exponential_, exponential, stream);
    stream.synchronize();  // after this, any stream may read the tables
    view_ = {.doubled_sums = doubled_.span(),
             .conversion = {number_.span().device_address(), code_.span().device_address(),
                            begin_.span().device_address(), fraction_bits},
             .exponential = exponential_.span()};
  }
  const DeviceLnsTables& view() const { return view_; }

 private:
  template <class T>
  static void upload(DeviceBuffer<T>& to, std::span<const std::type_identity_t<T>> from,
                     const runtime::Stream& stream) {
    to = DeviceBuffer<T>(from.size());
    runtime::copy<T>(to.span(), from, stream);
  }

  DeviceBuffer<std::int16_t> doubled_;
  DeviceBuffer<float> number_;
  DeviceBuffer<std::uint16_t> code_, exponential_;
  DeviceBuffer<std::uint32_t> begin_;
  DeviceLnsTables view_;
};

}  // namespace

const DeviceLnsTables& device_lns_tables(unsigned fraction_bits) {
  static std::mutex mutex;
  // Never freed, since streams may end after all static objects.
  static auto& tables = *new std::map<std::pair<int, unsigned>, Tables>;
  int device = 0;
  runtime::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  return tables.try_emplace({device, fraction_bits}, fraction_bits).first->second.view();
}

// Products in the logarithmic number system. Logarithmic sums have the bits of the host (lns/gemm.cpp); linear sums are
// in the order of gemm/product.cuh.

namespace {

Operand logarithmic_operand(unsigned fraction_bits, std::string_view name, std::size_t elements) {
  return {.name = name,
          .format = &lns_number_format(fraction_bits),
          .elements = elements,
          .stored_bytes = elements * sizeof(Lns16)};
}
std::vector<Operand> operands_of(const GemmShape& s, unsigned bits) {
  std::vector<Operand> operands{logarithmic_operand(bits, "a", s.m * s.k), logarithmic_operand(bits, "b", s.k * s.n)};
  if (s.bias) operands.push_back(logarithmic_operand(bits, "bias", s.n));
  return operands;
}
GemmShape product_alone(GemmShape s) {
  s.bias = false, s.activation = Activation::none;
  return s;
}

class OwnLns final : public DeviceOp {
 public:
  OwnLns(const GemmShape& s, const PrecisionInfo& p, runtime::Cost cost, runtime::Device& device)
      : DeviceOp({operands_of(s, p.logarithm_bits), {logarithmic_operand(p.logarithm_bits, "c", s.m * s.n)}}, cost),
        shape_(s),
        is_linear_(!p.logarithmic_sums),
        tables_(device_lns_tables(p.logarithm_bits)),
        decoded_(device, is_linear_ ? s.m * s.k + s.k * s.n + s.m * s.n : 0),
        scratch_(device, is_linear_ ? gemm_scratch(s) : 0) {}
  std::size_t scratch_bytes() const override { return decoded_.bytes() + scratch_.bytes(); }
  std::string implementation() const override { return is_linear_ ? "own tiles, lns linear" : "own tiles, lns exact"; }
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override {
    const Operand& o = inputs()[input];
    return make_conversion(as_plain_floats(o), o,
                           [&t = tables_](const auto& from, const auto& to, cudaStream_t stream) {
                             lns_encode(t.conversion, device_values<float>(from), device_values<Lns16>(to), stream);
                           });
  }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override {
    const Operand& o = outputs()[output];
    return make_conversion(o, as_plain_floats(o),
                           [&t = tables_](const auto& from, const auto& to, cudaStream_t stream) {
                             lns_decode(t.conversion, device_values<Lns16>(from), device_values<float>(to), stream);
                           });
  }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    const auto a = device_values<Lns16>(in[0]), b = device_values<Lns16>(in[1]);
    const auto c = device_values<Lns16>(out[0]);
    if (is_linear_) {
      multiply_floats(a, b, c, stream);
    } else {
      lns_gemm(product_alone(shape_), tables_.doubled_sums, a, b, c, stream);
    }
    if (shape_.bias) lns_add_bias(tables_.doubled_sums, device_values<Lns16>(in[2]), c, stream);
    if (shape_.activation == Activation::relu) lns_relu(c, stream);
  }

 private:
  void multiply_floats(DeviceSpan<const Lns16> a, DeviceSpan<const Lns16> b, DeviceSpan<Lns16> c,
                       cudaStream_t stream) const {
    const auto left = decoded_.span().first(a.size()), right = decoded_.span().subspan(a.size(), b.size()),
               result = decoded_.span().subspan(a.size() + b.size(), c.size());
    lns_decode(tables_.conversion, a, left, stream);
    lns_decode(tables_.conversion, b, right, stream);
    gemm(product_alone(shape_), GemmOperands<float>{left, right, {}, result, scratch_.span()}, stream);
    lns_encode(tables_.conversion, result, c, stream);
  }

  GemmShape shape_;
  bool is_linear_;
  const DeviceLnsTables& tables_;
  Scratch decoded_, scratch_;
};

}  // namespace

std::string own_lns_refusal(const Problem& p) {
  if (auto why = own_gemm_refusal(p); !why.empty()) return why;
  constexpr std::size_t most_rows = std::size_t{65535} * 16;  // the limit: 65535 tiles of 16 rows
  return std::get<GemmShape>(p.shape).m > most_rows ? "lns16 has 1,048,560 rows at most on a device"
                                                    : lns_shape_refusal(p);
}

std::unique_ptr<Op> make_own_lns(const Problem& p, const OpOptions&, runtime::Device& device) {
  return std::make_unique<OwnLns>(std::get<GemmShape>(p.shape), info(p.precision),
                                  runtime::Cost{.flops = flops(p), .bytes = bytes(p)}, device);
}

}  // namespace gradmeter::kernels::cuda
