#include "kernels/onednn.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/random.hpp"
#include "core/small_float.hpp"
#include "kernels/cases/random_data.hpp"

namespace gradmeter::kernels::onednn {
namespace {

core::Element element_of(Type t) {
  switch (t) {
    case Type::f32:
      return core::Element::f32;
    case Type::bf16:
      return core::Element::bf16;
    case Type::s32:
      return core::Element::i32;
    case Type::s8:
      return core::Element::i8;
    default:
      throw core::BackendError("oneDNN", "data type", "a type that no kernel case uses");
  }
}

std::size_t elements_of(const dnnl::memory::desc& d) {
  std::size_t n = 1;
  for (const auto x : d.dims()) n *= static_cast<std::size_t>(x);
  return n;
}

void store(Type t, std::byte* to, double value) {
  if (t == Type::u8) {
    *to = static_cast<std::byte>(static_cast<std::uint8_t>(value));
  } else {
    core::store(element_of(t), to, value);
  }
}

double load(Type t, const std::byte* from) {
  return t == Type::u8 ? static_cast<double>(static_cast<std::uint8_t>(*from)) : core::load(element_of(t), from);
}

std::size_t width(Type t) { return dnnl::memory::data_type_size(t); }

dnnl::stream& stream_of(const dnnl::engine& engine, dnnl::stream& made) {
  made = dnnl::stream(engine);
  return made;
}

void execute_reorder(const dnnl::memory& from, dnnl::memory& to, const dnnl::primitive_attr& attributes = {}) {
  checked("reorder", [&] {
    dnnl::stream stream;
    dnnl::reorder(from, to, attributes)
        .execute(stream_of(from.get_engine(), stream), const_cast<dnnl::memory&>(from), to);
    stream.wait();
  });
}

}  // namespace

std::string bf16_refusal() {
  // The sets of bits that stand for instruction sets contain each other. oneDNN computes bf16 from this one on.
  constexpr auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  const auto here = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (here & needed) == needed ? "" : "oneDNN has bf16 only on processors with AVX-512 (BW, DQ, VL)";
}

Tensor::Tensor(const dnnl::memory::desc& d, const dnnl::engine& engine)
    : storage_(std::max<std::size_t>(d.get_size(), 1)), memory_(d, engine, storage_.data()), type_(d.data_type()) {}

void Tensor::fill(std::uint64_t seed, double scale) {
  const std::size_t n = elements(), w = width(type_);
  TablePlaces places(core::Random(seed, 0x7261).bits(0));
  const auto draws = gaussian_draws();
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = places.next();
    const double value = type_ == Type::u8   ? static_cast<double>(at % 256)
                         : type_ == Type::s8 ? (static_cast<double>(at % 255) - 127) * scale
                                             : draws[at] * scale;
    store(type_, storage_.data() + i * w, value);
  }
}

Tensor Tensor::dense(Tag tag) const {
  const auto d = memory_.get_desc();
  Tensor result({d.dims(), d.data_type(), tag}, memory_.get_engine());
  execute_reorder(memory_, result.memory_);
  return result;
}

std::size_t Tensor::elements() const { return elements_of(memory_.get_desc()); }

double Tensor::at(std::size_t index) const { return load(type_, storage_.data() + index * width(type_)); }

std::vector<float> Tensor::floats() const {
  std::vector<float> out(elements());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(at(i));
  return out;
}

std::vector<double> Tensor::values(Tag tag) const {
  const Tensor plain = dense(tag);
  std::vector<double> out(elements());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = plain.at(i);
  return out;
}

OperandTypes operand_types(Precision p) {
  if (p == Precision::bf16) return {Type::bf16, Type::bf16, Type::bf16};
  if (p == Precision::int8) return {Type::u8, Type::s8, Type::s32};
  return {Type::f32, Type::f32, Type::f32};
}

void reorder(Tensor& from, Tensor& to, const dnnl::primitive_attr& attributes) {
  execute_reorder(from.memory(), to.memory(), attributes);
}

namespace {
/// The codes of instruction sets are sets of bits, each with those of the sets before it.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}
}  // namespace

bool has_bf16() { return has(dnnl::cpu_isa::avx512_core); }
bool has_exact_int8() { return has(dnnl::cpu_isa::avx512_core_vnni) || has(dnnl::cpu_isa::avx2_vnni); }

void add_to_element(Tensor& tensor, std::size_t index, double by) {
  const Type t = tensor.type();
  std::byte* at = tensor.data() + index * width(t);
  store(t, at, load(t, at) + by);
}

}  // namespace gradmeter::kernels::onednn
