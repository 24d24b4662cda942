// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/nccl/communicator.hpp"

namespace gradmeter::bench {
namespace {

using allreduce::Backend;
using allreduce::CollectiveKind;
using runtime::TransportKind;

// Source: NVIDIA, nccl-tests, doc/PERFORMANCE.md.
double twice_all_but_one(int p) { return 2.0 * (p - 1) / p; }
double all_but_one(int p) { return static_cast<double>(p - 1) / p; }
double once(int) { return 1; }

constexpr std::array collective_table{
    CollectiveInfo{"allreduce", CollectiveKind::all_reduce, true, false, twice_all_but_one},
    CollectiveInfo{"reduce_scatter", CollectiveKind::reduce_scatter, true, false, all_but_one},
    CollectiveInfo{"all_gather", CollectiveKind::all_gather, false, false, all_but_one},
    CollectiveInfo{"broadcast", CollectiveKind::broadcast, false, true, once},
    CollectiveInfo{"all_to_all", CollectiveKind::all_to_all, false, false, all_but_one},
    CollectiveInfo{"sendrecv", CollectiveKind::send_receive, false, false, once},
};

constexpr std::size_t most_sizes = 10000;

/// The elements of a point of each size, each number once: whole elements, and for all-to-all whole blocks.
std::vector<std::size_t> counts_of(const CollectivePoint& p, const CollectiveOptions& o, const NodeMap& map) {
  std::vector<std::size_t> out;
  for (const std::size_t bytes : o.sizes) {
    std::size_t count = bytes / core::size_of(p.element);
    if (p.collective->collective_kind == CollectiveKind::all_to_all)
      count -= count % static_cast<std::size_t>(map.ranks());
    if ((count > 0 || bytes == 0) && std::ranges::count(out, count) == 0) out.push_back(count);
  }
  return out;
}

/// Automatic is resolved; each once. Empty: the algorithm uses no transport.
std::vector<std::optional<TransportKind>> transports_of(const CollectivePoint& p, const CollectiveOptions& o,
                                                        const NodeMap& map) {
  if (!p.algorithm->uses_transport()) return {std::nullopt};
  std::vector<std::optional<TransportKind>> out;
  for (auto t : o.transports) {
    if (t == TransportKind::automatic) t = map.nodes() == 1 ? TransportKind::shm : TransportKind::hybrid;
    if (std::ranges::count(out, std::optional(t)) == 0) out.emplace_back(t);
  }
  return out;
}

/// Are sums kept in fp32? fp32 is its own accumulation type: one point.
std::vector<bool> accumulations_of(const CollectivePoint& p, const CollectiveOptions& o) {
  if (!p.collective->reduces || p.element == core::Element::f32) return {false};
  return o.accumulate_wide;
}

std::string why_unsupported(const CollectivePoint& p, const CollectiveOptions& o, const NodeMap& map) {
  const allreduce::Shape shape = allreduce::shape_of(map.node_of);
  const allreduce::Arithmetic arithmetic{.element = p.element, .op = p.call_op(), .wide = p.accumulate_wide};
  auto why = p.codec
                 ? allreduce::codec_refusal(exchange_of(p, shape, p.bytes()), p.collective->collective_kind, arithmetic)
                 : p.algorithm->refusal(shape, p.collective->collective_kind, arithmetic);
  if (why.empty()) why = p.algorithm->fault_refusal(o.injection.messages);
  if (!why.empty()) return why;
  if (p.codec) {
    const allreduce::TensorPart all{.offset = 0, .count = p.count};
    why = allreduce::tensor_layout_refusal(exchange_of(p, shape, p.bytes()), {&all, 1});
    if (!why.empty()) return why;
  }
  if (p.buffers == BufferKind::registered) {
    if (why = runtime::nccl_registration_refusal(); !why.empty()) return why;
    if (p.codec || !p.algorithm->info().registers_buffers)
      return fmt::format("{} registers no buffers; take nccl, or buffers arena", p.algorithm->info().name);
  }
  if (p.cudagraph > 0 && (p.codec || !p.algorithm->info().on_device)) {
    return fmt::format(
        "{} needs the host between its parts, and cannot be captured; nccl, nccl-messages, gpu-direct, gpu-multimem "
        "and gpu-ring can",
        p.codec ? p.codec->label : p.algorithm->info().name);
  }
  if (p.grows() && static_cast<double>(p.calls) * std::log10(map.ranks()) > most_growth) {
    return fmt::format("{} calls in place make sums too large for fp32; take fewer, or -o avg", p.calls);
  }
  if (p.transport) {
    if (why = runtime::transport_refusal(*p.transport, map.ranks_as, o.device); !why.empty()) return why;
    if (why = p.algorithm->transport_refusal(*p.transport); !why.empty()) return why;
  }
  if (p.transport == TransportKind::shm && map.nodes() > 1) return "transport shm needs all ranks on one node";
  const bool shares = p.transport == TransportKind::shm || p.transport == TransportKind::hybrid;
  if (p.transport && !shares && p.algorithm->info().backend == Backend::shared) {
    return fmt::format("{} works on memory that all ranks share: it needs transport shm", p.algorithm->info().name);
  }
  // Own code on shared memory may copy what it cannot map, and a codec does; the executor by itself does not.
  if (!p.codec && p.buffers != BufferKind::arena && shares && p.algorithm->has_schedule()) {
    return fmt::format("peers cannot read {} buffers over {}; use transport mpi or buffers arena", name(p.buffers),
                       runtime::name(*p.transport));
  }
  if (p.overlap == OverlapLoad::gemm && p.calls > 1) return "overlap is measured for single calls";
  return {};
}

/// Each point once for each of its values, in their order.
template <class ValuesOf, class Set>
void cross(std::vector<CollectivePoint>& points, const ValuesOf& values_of, const Set& set) {
  std::vector<CollectivePoint> out;
  for (const CollectivePoint& p : points) {
    for (const auto& value : values_of(p)) set(out.emplace_back(p), value);
  }
  points = std::move(out);
}

/// The parts of the problem that the sizes do not show: the root of a broadcast, the number of calls of an iteration.
std::string problem_text(const CollectivePoint& p) {
  std::string out;
  if (p.collective->has_root && p.root != 0) out = fmt::format("root={}", p.root);
  if (p.calls > 1) out += fmt::format("{}calls={}", out.empty() ? "" : ",", p.calls);
  return out;
}

}  // namespace

std::string_view name(Reduction r) {
  constexpr std::array<std::string_view, 5> names{"rank0", "avg", "min", "max", "span"};
  return names[static_cast<std::size_t>(r)];
}

std::span<const Reduction> reductions() {
  static constexpr std::array all{Reduction::rank0, Reduction::average, Reduction::min, Reduction::max,
                                  Reduction::span};
  return all;
}

std::string_view name(BufferKind b) {
  constexpr std::array<std::string_view, 4> names{"arena", "plain", "malloc", "registered"};
  return names[static_cast<std::size_t>(b)];
}

std::span<const BufferKind> buffer_kinds() {
  static constexpr std::array all{BufferKind::arena, BufferKind::plain, BufferKind::malloc, BufferKind::registered};
  return all;
}
std::string_view name(OverlapLoad u) { return u == OverlapLoad::none ? "none" : "gemm"; }
std::span<const CollectiveInfo> collectives() { return collective_table; }

allreduce::ExchangeSpec exchange_of(const CollectivePoint& p, allreduce::Shape shape, std::size_t max_bytes) {
  return {.placement = p.in_place ? allreduce::Placement::in_place : allreduce::Placement::out_of_place,
          .max_bytes = max_bytes,
          .algorithm = p.algorithm,
          .codec = p.codec,
          .shape = shape};
}

std::vector<CollectivePoint> plan_collectives(const CollectiveOptions& o, const NodeMap& map) {
  using Point = CollectivePoint;
  const auto all = [](const auto& values) { return [&values](const Point&) { return values; }; };
  std::vector<Point> points(1);
  points.front().calls = o.calls;
  cross(points, all(o.collectives), [](Point& p, const auto* v) { p.collective = v; });
  cross(points, all(o.elements), [](Point& p, auto v) { p.element = v; });
  const auto ops_of = [&](const Point& p) {
    return p.collective->reduces ? std::vector<std::optional<allreduce::Op>>(o.ops.begin(), o.ops.end())
                                 : std::vector<std::optional<allreduce::Op>>{std::nullopt};
  };
  cross(points, ops_of, [](Point& p, auto v) { p.op = v; });
  const auto roots_of = [&](const Point& p) { return p.collective->has_root ? o.roots : std::vector<int>{0}; };
  cross(points, roots_of, [](Point& p, int v) { p.root = v; });
  cross(points, all(o.overlaps), [&](Point& p, auto v) {
    p.overlap = v;
    p.threads = v == OverlapLoad::gemm ? o.threads : 0;
  });
  cross(points, all(o.cadences), [](Point& p, auto v) { p.cadence = v; });
  cross(points, all(o.reductions), [](Point& p, auto v) { p.reduction = v; });
  std::size_t groups = 0;
  cross(
      points, [&](const Point& p) { return counts_of(p, o, map); },
      [&](Point& p, std::size_t v) {
        p.count = v;
        p.group = groups++;
      });
  cross(points, all(o.algorithms), [](Point& p, const auto& v) { p.algorithm = v; });
  cross(points, all(o.codecs), [](Point& p, const auto& v) { p.codec = v; });
  cross(
      points, [&](const Point& p) { return transports_of(p, o, map); }, [](Point& p, auto v) { p.transport = v; });
  cross(points, all(o.buffers), [](Point& p, auto v) { p.buffers = v; });
  cross(points, all(o.in_place), [](Point& p, bool v) { p.in_place = v; });
  cross(points, all(o.cudagraphs), [](Point& p, std::size_t v) { p.cudagraph = v; });
  cross(
      points, [&](const Point& p) { return accumulations_of(p, o); }, [](Point& p, bool v) { p.accumulate_wide = v; });
  const auto repeats = numbers_of_repeats(o.repeats);
  cross(points, all(repeats), [](Point& p, std::size_t v) { p.repeat = v; });
  if (points.empty()) {
    throw core::UsageError(
        "no size holds one element (to all_to_all: one for each rank), so there is nothing to measure; give --sizes, "
        "or "
        "-b and -e, of at least 8 bytes");
  }
  for (Point& p : points) p.unsupported = why_unsupported(p, o, map);
  return points;
}

std::vector<std::size_t> sweep_sizes(std::size_t min, std::size_t max, std::size_t step, double factor) {
  if (min > max) throw core::UsageError("--minbytes is above --maxbytes; give -b at most -e");
  if (step == 0 && !(factor > 1)) throw core::UsageError("--stepfactor must be above 1, or the sweep would never end");
  if (step == 0 && min == 0) throw core::UsageError("--minbytes 0 cannot be multiplied; give --stepbytes, or --sizes");
  std::vector<std::size_t> out;
  for (std::size_t size = min; size <= max;) {
    out.push_back(size);
    if (out.size() > most_sizes) throw core::UsageError("these are over 10000 sizes; take a larger step");
    const double next =
        step ? static_cast<double>(size) + static_cast<double>(step) : static_cast<double>(size) * factor;
    if (next > static_cast<double>(max)) break;
    size = std::max(size + 1, static_cast<std::size_t>(next));
  }
  return out;
}

std::vector<std::size_t> deepbench_sizes() {
  constexpr std::array<std::size_t, 7> floats{100000, 3097600, 4194304, 6553600, 16777216, 38360000, 64500000};
  std::vector<std::size_t> out;
  for (const std::size_t n : floats) out.push_back(n * sizeof(float));
  return out;
}

core::Factors to_factors(const CollectivePoint& p, const NodeMap& map, const CollectiveOptions& all) {
  using core::Factor;
  core::Factors f;
  fill_ranks(map, f);
  if (!all.interconnect.empty()) f[Factor::interconnect] = all.interconnect;
  if (all.injection.any()) f[Factor::inject] = all.injection.text();
  f[Factor::collective] = std::string(p.collective->name);
  f[Factor::algorithm] = p.algorithm->name;
  f[Factor::codec] = p.codec ? p.codec->name : "none";
  if (p.transport) f[Factor::transport] = std::string(runtime::name(*p.transport));
  f[Factor::device] = all.device;
  f[Factor::size_bytes] = static_cast<std::int64_t>(p.bytes());
  f[Factor::dtype] = std::string(core::info(p.element).name);
  if (p.op) {
    f[Factor::op] = std::string(allreduce::name(*p.op));
    f[Factor::accum_dtype] = std::string(p.accumulate_wide ? "fp32" : core::info(p.element).name);
  }
  f[Factor::buffers] = std::string(name(p.buffers));
  f[Factor::in_place] = p.in_place;
  f[Factor::cadence] = std::string(name(p.cadence));
  f[Factor::reduction] = std::string(name(p.reduction));
  f[Factor::overlap] = std::string(name(p.overlap));
  if (p.threads > 0) f[Factor::threads] = std::int64_t{p.threads};
  if (p.cudagraph > 0) f[Factor::cudagraph] = static_cast<std::int64_t>(p.cudagraph);
  if (const auto problem = problem_text(p); !problem.empty()) f[Factor::problem] = problem;
  if (p.repeat > 0) f[Factor::repeat] = static_cast<std::int64_t>(p.repeat);
  return f;
}

double wire_bound(CollectiveKind collective_kind, double bytes, const NodeMap& map, const core::Machine& machine) {
  const int nodes = map.nodes();
  if (nodes < 2 || !(machine.node_port.bytes_per_s > 0)) return 0;
  const double others = static_cast<double>(nodes - 1) / nodes;
  const double ranks_of_a_node = static_cast<double>(map.ranks()) / nodes;
  const double share = collective_kind == CollectiveKind::all_reduce   ? 2 * others
                       : collective_kind == CollectiveKind::all_to_all ? ranks_of_a_node * others
                       : collective_kind == CollectiveKind::broadcast || collective_kind == CollectiveKind::send_receive
                           ? 1
                           : others;
  return share * bytes / machine.node_port.bytes_per_s;
}

double wire_bound(const CollectivePoint& p, const NodeMap& map, const core::Machine& machine) {
  if (!p.codec) return wire_bound(p.collective->collective_kind, static_cast<double>(p.bytes()), map, machine);
  double sum = 0;
  for (const auto& part :
       allreduce::coded_call_parts(exchange_of(p, allreduce::shape_of(map.node_of), p.bytes()), p.count, {})) {
    const std::size_t bytes = part.codec ? part.codec->codec->wire_bytes(part.count) : part.count * part.element_bytes;
    if (!part.most) sum += wire_bound(part.collective_kind, static_cast<double>(bytes), map, machine);
  }
  return sum;
}

}  // namespace gradmeter::bench
