#include "kernels/onednn.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/random.hpp"
#include "core/small_float.hpp"
#include "kernels/random_data.hpp"

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
      throw core::BackendError("oneDNN", "data type", "a type that no trial uses");
  }
}

Type type_of(const dnnl::memory& m) { return m.get_desc().data_type(); }

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

void execute_reorder(const dnnl::memory& from, dnnl::memory& to) {
  checked("reorder", [&] {
    dnnl::stream stream;
    dnnl::reorder(from, to).execute(stream_of(from.get_engine(), stream), const_cast<dnnl::memory&>(from), to);
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
    : storage_(std::max<std::size_t>(d.get_size(), 1)), memory_(d, engine, storage_.data()) {}

void Tensor::fill(std::uint64_t seed, double scale) {
  const Type t = type_of(memory_);
  const std::size_t n = elements_of(memory_.get_desc()), w = width(t);
  const core::Random random(seed, 0x7261);
  constexpr std::size_t table_size = TablePlaces::size;
  std::vector<std::byte> table(table_size * w);
  for (std::size_t i = 0; i < table_size; ++i) {
    const double value = t == Type::u8   ? static_cast<double>(random.below(i, 256))
                         : t == Type::s8 ? static_cast<double>(random.below(i, 255)) - 127
                                         : random.gaussian(i) * scale;
    store(t, table.data() + i * w, value);
  }
  TablePlaces places(random.bits(table_size));
  for (std::size_t i = 0; i < n; ++i) std::memcpy(storage_.data() + i * w, table.data() + places.next() * w, w);
}

std::vector<double> Tensor::values(Tag tag) const {
  const auto d = memory_.get_desc();
  Tensor dense({d.dims(), d.data_type(), tag}, memory_.get_engine());
  execute_reorder(memory_, dense.memory_);
  const Type t = type_of(memory_);
  std::vector<double> out(elements_of(d));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = load(t, dense.storage_.data() + i * width(t));
  return out;
}

void reorder(Tensor& from, Tensor& to) { execute_reorder(from.memory(), to.memory()); }

void add_to_element(Tensor& tensor, std::size_t index, double by) {
  const Type t = type_of(tensor.memory());
  std::byte* at = tensor.data() + index * width(t);
  store(t, at, load(t, at) + by);
}

}  // namespace gradmeter::kernels::onednn
