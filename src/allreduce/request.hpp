// What is asked of an algorithm: which collective, over which ranks, with which parameters of its name.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/machine.hpp"
#include "core/name.hpp"

namespace gradmeter::allreduce {

class Chooser;

/// The operation on the numbers. wide: sums of 16-bit and 8-bit floats are kept in fp32 and rounded once.
struct Arithmetic {
  core::Element element = core::Element::f32;
  Op op = Op::sum;
  bool wide = false;
  core::Element accumulate() const { return wide ? core::Element::f32 : element; }
};

struct Request {
  Shape shape = {};
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  core::ParsedName name = {};                   ///< with every parameter written out
  std::uint32_t root = 0;                       ///< of a broadcast
  std::shared_ptr<const Chooser> chooser = {};  ///< of a selection; null: by the machine, or as shipped
  std::shared_ptr<const core::Machine> machine = {};
  Arithmetic arithmetic = {};
};

/// Empty when the request is for one of `kinds`; else "ring has no broadcast".
std::string only_collectives(const Request&, std::initializer_list<CollectiveKind> kinds);

/// Empty when the ranks are a power of two; else why not, and which algorithm to take.
std::string only_powers_of_two(const Request&, std::string_view instead);
/// Empty when every node holds the same number of ranks, one after another.
std::string only_even_nodes(const Request&);

/// A parameter's value. Errors: UsageError when it is no plain number of at least `least`.
std::uint32_t number(const Request&, std::string_view parameter, std::uint32_t least);

/// How ranks lie on nodes, as the schedules see it: equally many on each node, node after node.
/// `ranks_per_node` is 0 where nodes hold different numbers of ranks or a node's ranks are not consecutive.
Shape shape_of(std::span<const int> node_of);

}  // namespace gradmeter::allreduce
