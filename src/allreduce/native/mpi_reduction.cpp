#include "allreduce/native/mpi_reduction.hpp"

#include <array>

#include "allreduce/native/combine.hpp"

namespace gradmeter::allreduce {

namespace {

template <core::Element e, Op op>
void combine(const std::byte* in, std::byte* inout, std::size_t n) {
  const std::array<const std::byte*, 2> sources{in, inout};
  reduce(e, e, op, inout, sources, n);
}

template <core::Element e>
runtime::Reduction own_reduction(Op op) {
  switch (op) {
    case Op::min:
      return runtime::Reduction(e, combine<e, Op::min>);
    case Op::max:
      return runtime::Reduction(e, combine<e, Op::max>);
    case Op::product:
      return runtime::Reduction(e, combine<e, Op::product>);
    case Op::sum:
    case Op::average:
      break;
  }
  return runtime::Reduction(e, combine<e, Op::sum>);
}

}  // namespace

runtime::Reduction mpi_reduction(core::Element e, Op op) {
  check_supported(e, op);
  switch (e) {
    case core::Element::f16:
      return own_reduction<core::Element::f16>(op);
    case core::Element::bf16:
      return own_reduction<core::Element::bf16>(op);
    case core::Element::e4m3:
      return own_reduction<core::Element::e4m3>(op);
    case core::Element::e5m2:
      return own_reduction<core::Element::e5m2>(op);
    default:
      return {e, combine_of(op)};
  }
}

}  // namespace gradmeter::allreduce
