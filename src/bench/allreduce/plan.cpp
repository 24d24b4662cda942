// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "allreduce/selection/size_table.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
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

/// The number of elements for each size, each number once: sizes are rounded down to whole elements, for all-to-all to
/// whole blocks.
std::vector<std::size_t> counts_of(const CollectivePoint& p, const CollectiveOptions& options, const NodeMap& map) {
  std::vector<std::size_t> out;
  for (const std::size_t bytes : options.sizes) {
    std::size_t count = bytes / core::size_of(p.element);
    if (p.collective->collective_kind == CollectiveKind::all_to_all)
      count -= count % static_cast<std::size_t>(map.ranks());
    if ((count > 0 || bytes == 0) && std::ranges::count(out, count) == 0) out.push_back(count);
  }
  return out;
}

/// True if the algorithm sends messages from buffers outside the arena, which peers cannot map. Exchanges with a codec
/// copy the data first. So do gradmeter's algorithms on shared memory, which `auto` takes for all-reduces on one node.
bool sends_private_buffers(const CollectivePoint& p, const NodeMap& map) {
  if (p.buffers == BufferKind::arena || p.codec) return false;
  const allreduce::AlgorithmChoice& a = *p.algorithm;
  if (a.is_plain_auto()) {
    return p.collective->collective_kind != allreduce::CollectiveKind::all_reduce || map.nodes() > 1;
  }
  const auto request = a.request({});
  const auto sends = [](const auto& candidate) { return candidate->has_schedule(); };
  return a.has_schedule() || request.machine ||
         (request.table && std::ranges::any_of(request.table->candidates(), sends));
}

/// The transports of a point, each once, with `automatic` resolved; one empty value if the algorithm uses no transport.
std::vector<std::optional<TransportKind>> transports_of(const CollectivePoint& p, const CollectiveOptions& options,
                                                        const NodeMap& map) {
  if (!p.algorithm->uses_transport()) return {std::nullopt};
  std::vector<std::optional<TransportKind>> out;
  for (auto t : options.transports) {
    if (t == TransportKind::automatic) {
      const bool by_mpi = sends_private_buffers(p, map) &&
                          runtime::transport_refusal(TransportKind::mpi, map.ranks_as, options.device).empty();
      t = by_mpi ? TransportKind::mpi : map.nodes() == 1 ? TransportKind::shm : TransportKind::hybrid;
    }
    if (std::ranges::count(out, std::optional(t)) == 0) out.emplace_back(t);
  }
  return out;
}

/// The values of `accumulate_wide` for a point: only false where nothing is summed, and for fp32, whose sums are fp32.
std::vector<bool> accumulations_of(const CollectivePoint& p, const CollectiveOptions& options) {
  if (!p.collective->reduces || p.element == core::Element::f32) return {false};
  return options.accumulate_wide;
}

std::string why_unsupported(const CollectivePoint& p, const CollectiveOptions& options, const NodeMap& map) {
  const allreduce::RankShape shape = allreduce::shape_of(map.node_of);
  const allreduce::Arithmetic arithmetic{.element = p.element, .op = p.call_op(), .wide = p.accumulate_wide};
  auto why = p.codec
                 ? allreduce::codec_refusal(exchange_of(p, shape, p.bytes()), p.collective->collective_kind, arithmetic)
                 : p.algorithm->refusal(shape, p.collective->collective_kind, arithmetic);
  if (why.empty()) why = p.algorithm->fault_refusal(options.injection.messages);
  if (!why.empty()) return why;
  if (p.codec) {
    const allreduce::TensorPart whole_buffer{.offset = 0, .count = p.count};
    why = allreduce::tensor_layout_refusal(exchange_of(p, shape, p.bytes()), {&whole_buffer, 1});
    if (!why.empty()) return why;
  }
  if (p.buffers == BufferKind::registered) {
    if (why = runtime::nccl_registration_refusal(); !why.empty()) return why;
    if (p.codec || !p.algorithm->info().registers_buffers)
      return fmt::format("{} registers no buffers; take nccl, or buffers arena", p.algorithm->info().name);
  }
  if (p.graph_launches > 0 && (p.codec || !p.algorithm->info().on_device)) {
    return fmt::format(
        "{} needs the host between its parts, and cannot be captured; nccl, nccl-messages, gpu-direct, gpu-multimem "
        "and gpu-ring can",
        p.codec ? p.codec->label : p.algorithm->info().name);
  }
  if (p.grows() && static_cast<double>(p.calls) * std::log10(map.ranks()) > most_growth) {
    return fmt::format("{} calls in place make sums too large for fp32; take fewer, or -o avg", p.calls);
  }
  if (p.transport) {
    if (why = runtime::transport_refusal(*p.transport, map.ranks_as, options.device); !why.empty()) return why;
    if (why = p.algorithm->transport_refusal(*p.transport); !why.empty()) return why;
  }
  if (p.transport == TransportKind::shm && map.nodes() > 1) return "transport shm needs all ranks on one node";
  const bool shares_memory = p.transport == TransportKind::shm || p.transport == TransportKind::hybrid;
  if (p.transport && !shares_memory && p.algorithm->info().backend == Backend::shared) {
    return fmt::format("{} works on memory that all ranks share: it needs transport shm", p.algorithm->info().name);
  }
  // For such buffers `auto` takes MPI's collective, which ranks that are threads do not have.
  const bool takes_vendor = p.algorithm->is_plain_auto() && map.ranks_as == runtime::RanksAs::processes;
  if (shares_memory && sends_private_buffers(p, map) && !takes_vendor) {
    return fmt::format("peers cannot read {} buffers over {}; use transport mpi or buffers arena", name(p.buffers),
                       runtime::name(*p.transport));
  }
  if (p.overlap == OverlapLoad::gemm && p.calls > 1) return "overlap is measured for single calls";
  return {};
}

/// Replaces each point by one point for each value of a factor. values_of: returns the values for a point, in order.
/// set: sets a point's factor to a value.
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

std::string_view name(RankReduction r) {
  constexpr std::array<std::string_view, 5> names{"rank0", "avg", "min", "max", "span"};
  return names[static_cast<std::size_t>(r)];
}

std::span<const RankReduction> rank_reductions() {
  static constexpr std::array table{RankReduction::rank0, RankReduction::average, RankReduction::min,
                                    RankReduction::max, RankReduction::span};
  return table;
}

std::string_view name(BufferKind b) {
  constexpr std::array<std::string_view, 4> names{"arena", "plain", "malloc", "registered"};
  return names[static_cast<std::size_t>(b)];
}

std::span<const BufferKind> buffer_kinds() {
  static constexpr std::array table{BufferKind::arena, BufferKind::plain, BufferKind::malloc, BufferKind::registered};
  return table;
}
std::string_view name(OverlapLoad load) { return load == OverlapLoad::none ? "none" : "gemm"; }
std::span<const CollectiveInfo> collectives() { return collective_table; }

allreduce::ExchangeSpec exchange_of(const CollectivePoint& p, allreduce::RankShape shape, std::size_t max_bytes) {
  return {.placement = p.in_place ? allreduce::Placement::in_place : allreduce::Placement::out_of_place,
          .max_bytes = max_bytes,
          .private_buffers = p.buffers != BufferKind::arena,
          .algorithm = p.algorithm,
          .codec = p.codec,
          .shape = shape};
}

bool ranks_have_equal_work(const CollectivePoint& p, const allreduce::AlgorithmChoice& serving, const NodeMap& map) {
  if (p.collective->has_root || p.count < static_cast<std::size_t>(map.ranks())) return false;
  const auto shape = allreduce::shape_of(map.node_of);
  const auto is_equal = [&](const allreduce::AlgorithmChoice& a, CollectiveKind kind) {
    const Backend backend = a.info().backend;
    // Each rank has an equal share of the sums and copies.
    if (backend == Backend::shared || backend == Backend::device) return true;
    return backend == Backend::schedule && std::ranges::all_of(a.make(shape, kind), [&](const auto& schedule) {
             return allreduce::ranks_have_equal_work(*schedule, map.node_of);
           });
  };
  if (!p.codec) return is_equal(serving, p.collective->collective_kind);
  return std::ranges::all_of(allreduce::inner_calls_of(exchange_of(p, shape, p.bytes()), p.count, {}),
                             [&](const auto& part) { return is_equal(*part.algorithm, part.collective_kind); });
}

std::vector<CollectivePoint> plan_collectives(const CollectiveOptions& options, const NodeMap& map) {
  using Point = CollectivePoint;
  const auto same_for_all_points = [](const auto& values) { return [&values](const Point&) { return values; }; };
  std::vector<Point> points(1);
  points.front().calls = options.calls;
  cross(points, same_for_all_points(options.collectives), [](Point& p, const auto* v) { p.collective = v; });
  cross(points, same_for_all_points(options.elements), [](Point& p, auto v) { p.element = v; });
  const auto ops_of = [&](const Point& p) {
    return p.collective->reduces ? std::vector<std::optional<allreduce::Op>>(options.ops.begin(), options.ops.end())
                                 : std::vector<std::optional<allreduce::Op>>{std::nullopt};
  };
  cross(points, ops_of, [](Point& p, auto v) { p.op = v; });
  const auto roots_of = [&](const Point& p) { return p.collective->has_root ? options.roots : std::vector<int>{0}; };
  cross(points, roots_of, [](Point& p, int v) { p.root = v; });
  cross(points, same_for_all_points(options.overlaps), [&](Point& p, auto v) {
    p.overlap = v;
    p.threads = v == OverlapLoad::gemm ? options.threads : 0;
  });
  cross(points, same_for_all_points(options.cadences), [](Point& p, auto v) { p.cadence = v; });
  cross(points, same_for_all_points(options.reductions), [](Point& p, auto v) { p.reduction = v; });
  std::size_t groups = 0;
  cross(
      points, [&](const Point& p) { return counts_of(p, options, map); },
      [&](Point& p, std::size_t v) {
        p.count = v;
        p.group = groups++;
      });
  cross(points, same_for_all_points(options.algorithms), [](Point& p, const auto& v) { p.algorithm = v; });
  cross(points, same_for_all_points(options.codecs), [](Point& p, const auto& v) { p.codec = v; });
  cross(points, same_for_all_points(options.buffers), [](Point& p, auto v) { p.buffers = v; });
  cross(
      points, [&](const Point& p) { return transports_of(p, options, map); },
      [](Point& p, auto v) { p.transport = v; });
  cross(points, same_for_all_points(options.in_place), [](Point& p, bool v) { p.in_place = v; });
  cross(points, same_for_all_points(options.graph_launches), [](Point& p, std::size_t v) { p.graph_launches = v; });
  cross(
      points, [&](const Point& p) { return accumulations_of(p, options); },
      [](Point& p, bool v) { p.accumulate_wide = v; });
  const auto repeats = numbers_of_repeats(options.repeats);
  cross(points, same_for_all_points(repeats), [](Point& p, std::size_t v) { p.repeat = v; });
  if (points.empty()) {
    throw core::UsageError(
        "no size holds one element (to all_to_all: one for each rank), so there is nothing to measure; give --sizes, "
        "or "
        "-b and -e, of at least 8 bytes");
  }
  for (Point& p : points) p.unsupported = why_unsupported(p, options, map);
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

namespace {

/// The use for which `auto` chooses at this point. The point must have a transport.
allreduce::TableUse use_of(const CollectivePoint& p, const NodeMap& map) {
  auto spec = exchange_of(p, allreduce::shape_of(map.node_of), p.bytes());
  // A codec's inner calls, and its tensors that are not encoded, are exchanged in place in the arena.
  if (p.codec) spec.placement = allreduce::Placement::in_place, spec.private_buffers = false;
  return {.shape = spec.shape,
          .transport = *p.transport,
          .collective_kind = p.collective->collective_kind,
          .private_buffers = spec.private_buffers,
          .placement = spec.placement};
}

bool chooses_by_tables(const CollectivePoint& p) { return p.algorithm->is_plain_auto() && p.transport; }

}  // namespace

std::vector<WantedTable> tables_of(std::span<const CollectivePoint> points, const NodeMap& map) {
  std::vector<int> ranks(map.node_of.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<WantedTable> out;
  for (const CollectivePoint& p : points) {
    if (!p.unsupported.empty() || !chooses_by_tables(p)) continue;
    add_wanted_table(
        out, {.use = use_of(p, map),
              .ranks = ranks,
              .map = map,
              .least_bytes = p.bytes(),
              .most_bytes = p.bytes(),
              .pages = p.buffers == BufferKind::malloc ? runtime::Pages::ordinary : runtime::Pages::huge_if_granted});
  }
  return out;
}

core::Factors to_factors(const CollectivePoint& p, const NodeMap& map, const CollectiveOptions& options) {
  using core::Factor;
  core::Factors factors;
  fill_ranks(map, factors);
  if (!options.interconnect.empty()) factors[Factor::interconnect] = options.interconnect;
  if (options.injection.any()) factors[Factor::inject] = options.injection.text();
  factors[Factor::collective] = std::string(p.collective->name);
  factors[Factor::algorithm] = p.algorithm->name;
  factors[Factor::codec] = p.codec ? p.codec->name : "none";
  if (p.transport) factors[Factor::transport] = std::string(runtime::name(*p.transport));
  factors[Factor::device] = options.device;
  factors[Factor::size_bytes] = static_cast<std::int64_t>(p.bytes());
  factors[Factor::dtype] = std::string(core::info(p.element).name);
  if (p.op) {
    factors[Factor::op] = std::string(allreduce::name(*p.op));
    factors[Factor::accum_dtype] = std::string(p.accumulate_wide ? "fp32" : core::info(p.element).name);
  }
  factors[Factor::buffers] = std::string(name(p.buffers));
  factors[Factor::in_place] = p.in_place;
  factors[Factor::cadence] = std::string(name(p.cadence));
  factors[Factor::reduction] = std::string(name(p.reduction));
  factors[Factor::overlap] = std::string(name(p.overlap));
  if (p.threads > 0) factors[Factor::threads] = std::int64_t{p.threads};
  if (p.graph_launches > 0) factors[Factor::cudagraph] = static_cast<std::int64_t>(p.graph_launches);
  if (const auto problem = problem_text(p); !problem.empty()) factors[Factor::problem] = problem;
  if (p.repeat > 0) factors[Factor::repeat] = static_cast<std::int64_t>(p.repeat);
  if (chooses_by_tables(p)) fill_tuned(*p.algorithm, use_of(p, map), factors);
  return factors;
}

namespace {

/// The bytes that the busiest node sends to other nodes in an all-to-all, as a multiple of a rank's buffer. With r of R
/// ranks on a node, each of the r sends a block, which is an R-th of its buffer, to each of the R - r others. Nodes
/// with unlike numbers of ranks send unlike amounts.
double all_to_all_share(const NodeMap& map) {
  std::map<int, double> ranks_of;
  for (const int node : map.node_of) ++ranks_of[node];
  const double all = map.ranks();
  double most = 0;
  for (const auto& [node, ranks] : ranks_of) most = std::max(most, ranks * (all - ranks) / all);
  return most;
}

}  // namespace

double wire_bound(CollectiveKind collective_kind, double bytes, const NodeMap& map, const core::Machine& machine) {
  const int nodes = map.nodes();
  if (nodes < 2 || !(machine.node_port.bytes_per_s > 0)) return 0;
  const double others = static_cast<double>(nodes - 1) / nodes;
  const double share = collective_kind == CollectiveKind::all_reduce   ? 2 * others
                       : collective_kind == CollectiveKind::all_to_all ? all_to_all_share(map)
                       : collective_kind == CollectiveKind::broadcast || collective_kind == CollectiveKind::send_receive
                           ? 1
                           : others;
  return share * bytes / machine.node_port.bytes_per_s;
}

double wire_bound(const CollectivePoint& p, const NodeMap& map, const core::Machine& machine) {
  if (!p.codec) return wire_bound(p.collective->collective_kind, static_cast<double>(p.bytes()), map, machine);
  double sum = 0;
  for (const auto& part :
       allreduce::inner_calls_of(exchange_of(p, allreduce::shape_of(map.node_of), p.bytes()), p.count, {})) {
    const std::size_t bytes = part.codec ? part.codec->codec->wire_bytes(part.count) : part.count * part.element_bytes;
    if (!part.upper_bound) sum += wire_bound(part.collective_kind, static_cast<double>(bytes), map, machine);
  }
  return sum;
}

// The flags of the sweep, with nccl-tests' names where it has them.

namespace {

using core::UsageError;

std::vector<std::size_t> read_collective_sizes(const Flags& flags) {
  if (flags.has("set")) {
    check_one_of("--set", flags.text("set"), {"deepbench"});
    if (flags.has("sizes")) throw UsageError("give one of --set and --sizes");
    return deepbench_sizes();
  }
  if (flags.has("sizes")) {
    std::vector<std::size_t> out;
    for (const auto& item : split_list("--sizes", flags.text("sizes"))) out.push_back(parse_size("--sizes", item));
    return out;
  }
  const std::size_t step = flags.has("stepbytes") ? parse_size("--stepbytes", flags.text("stepbytes")) : 0;
  if (flags.has("stepbytes") && step == 0)
    throw UsageError("--stepbytes 0: the sweep would never end; give at least 1");
  return sweep_sizes(parse_size("--minbytes", flags.text("minbytes")), parse_size("--maxbytes", flags.text("maxbytes")),
                     step, parse_number("--stepfactor", flags.text("stepfactor"), 1, 1e6));
}

template <class T, class NameOf>
std::vector<T> choose_from(const std::string& flag, std::string_view what, const std::string& text,
                           std::span<const T> choices, NameOf name_of) {
  return choose<T>(flag, what, text, std::vector<T>(choices.begin(), choices.end()), name_of);
}

std::vector<const CollectiveInfo*> read_collectives(const Flags& flags) {
  std::vector<const CollectiveInfo*> choices;
  for (const auto& c : collectives()) choices.push_back(&c);
  return choose("--collective", "collective", flags.text("collective"), choices,
                [](const auto* c) { return std::string(c->name); });
}

std::vector<allreduce::Op> read_ops(const Flags& flags) {
  using enum allreduce::Op;
  return choose("--op", "operation", flags.text("op"), std::vector{sum, product, min, max, average},
                [](auto op) { return std::string(allreduce::name(op)); });
}

std::vector<core::Element> read_elements(const Flags& flags) {
  std::vector<core::Element> out;
  const auto add = [&](core::Element e) {
    if (std::find(out.begin(), out.end(), e) == out.end()) out.push_back(e);
  };
  for (const auto& item : split_list("--datatype", flags.text("datatype"))) {
    if (item == "all") {
      for (const auto& e : core::elements) add(e.element);
    } else {
      add(core::parse_element(item));
    }
  }
  return out;
}

std::vector<RankReduction> read_reductions(const Flags& flags) {
  constexpr std::array as_nccl{RankReduction::rank0, RankReduction::average, RankReduction::min, RankReduction::max};
  if (flags.has("reduction") && flags.has("average")) throw UsageError("give one of --average and --reduction");
  if (flags.has("average")) return {as_nccl.at(parse_count("--average", flags.text("average"), 0, 3))};
  if (!flags.has("reduction")) return {RankReduction::max};
  return choose_from("--reduction", "reduction", flags.text("reduction"), rank_reductions(),
                     [](auto r) { return std::string(name(r)); });
}

std::vector<bool> read_placements(const Flags& flags) {
  std::vector<bool> out;
  for (const auto& item : split_list("--in-place", flags.text("in-place"))) {
    if (item != "out" && item != "in" && item != "both" && item != "all") {
      core::refuse_unknown("in-place", item, std::vector<std::string>{"both", "in", "out"});
    }
    for (const bool in_place : {false, true}) {
      const bool wanted = item == "both" || item == "all" || (item == "in") == in_place;
      if (wanted && std::find(out.begin(), out.end(), in_place) == out.end()) out.push_back(in_place);
    }
  }
  return out;
}

std::vector<bool> read_accumulation(const Flags& flags) {
  const auto names = choose("--accum-dtype", "accumulation type", flags.text("accum-dtype"),
                            std::vector<std::string>{"same", "fp32"}, [](const auto& n) { return n; });
  std::vector<bool> out;
  for (const auto& n : names) out.push_back(n == "fp32");
  return out;
}

std::vector<int> read_roots(const Flags& flags, int ranks) {
  std::vector<int> out;
  const auto most = static_cast<std::uint64_t>(ranks - 1);
  if (flags.text("root") == "all") {
    for (int r = 0; r < ranks; ++r) out.push_back(r);
    return out;
  }
  for (const auto r : parse_counts("--root", flags.text("root"), 0, most)) out.push_back(static_cast<int>(r));
  return out;
}

core::Injection read_injection(const std::string& text, int ranks, const CollectiveOptions& options) {
  const auto injection = core::parse_injection(text);
  injection.check_ranks(ranks);
  injection.check_lasting();
  const bool clocks_matter = std::ranges::count(options.reductions, RankReduction::span) > 0 ||
                             std::ranges::count(options.cadences, runtime::Cadence::window) > 0;
  if (injection.drift && !clocks_matter) {
    throw UsageError("--inject drift: these points compare no clocks; take --reduction span or --cadence window");
  }
  return injection;
}

void refuse_overlap_on_a_device(const Flags& flags) {
  if (flags.text("device") != "cpu" && flags.text("overlap") != "none")
    throw UsageError(
        "--overlap: the product beside an exchange runs on the host; take --overlap none with --device cuda");
}

/// The kinds of buffers; "all" stands for those that the device can have.
std::vector<BufferKind> read_buffers(const Flags& flags) {
  const auto is_of_gpus = [](BufferKind b) { return b == BufferKind::registered; };
  std::vector<BufferKind> choices(buffer_kinds().begin(), buffer_kinds().end());
  if (flags.text("device") == "cpu" && flags.text("buffers") == "all") std::erase_if(choices, is_of_gpus);
  auto chosen =
      choose("--buffers", "buffers", flags.text("buffers"), choices, [](auto b) { return std::string(name(b)); });
  if (flags.text("device") == "cpu" && std::ranges::any_of(chosen, is_of_gpus))
    throw UsageError("--buffers registered: NCCL registers memory of a GPU; it needs --device cuda");
  return chosen;
}

/// The numbers of launches of a graph; 0: calls are not captured.
std::vector<std::size_t> read_cudagraphs(const Flags& flags) {
  std::vector<std::size_t> out;
  for (const auto& item : split_list("--cudagraph", flags.text("cudagraph"))) {
    const std::size_t launches = item == "none" ? 0 : parse_count("--cudagraph", item, 0, 1'000'000);
    if (std::ranges::count(out, launches) == 0) out.push_back(launches);
  }
  if (flags.given("cudagraph") && flags.text("device") == "cpu")
    throw UsageError("--cudagraph captures calls on a GPU: it needs --device cuda; leave it out");
  return out;
}

/// Reads the flags that hold lists: the factors that points are planned from.
CollectiveOptions read_factors(const Flags& flags, int ranks, int threads) {
  CollectiveOptions options;
  options.collectives = read_collectives(flags);
  options.algorithms = parse_algorithms(flags.text("algorithm"));
  options.codecs = compression::require_no_warm_up(
      naming_flag("--codec", [&] { return compression::find_codecs(flags.text("codec")); }));
  options.transports = parse_transports(flags.text("transport"));
  options.buffers = read_buffers(flags);
  options.in_place = read_placements(flags);
  options.sizes = read_collective_sizes(flags);
  options.elements = read_elements(flags);
  options.ops = read_ops(flags);
  options.accumulate_wide = read_accumulation(flags);
  options.cadences = parse_cadences(flags.text("cadence"));
  options.reductions = read_reductions(flags);
  options.overlaps =
      choose("--overlap", "overlap", flags.text("overlap"), std::vector{OverlapLoad::none, OverlapLoad::gemm},
             [](auto load) { return std::string(name(load)); });
  options.roots = read_roots(flags, ranks);
  options.graph_launches = read_cudagraphs(flags);
  options.repeats = read_repeats(flags);
  options.calls = parse_count("--agg_iters", flags.text("agg_iters"), 1, 1'000'000);
  options.threads = threads;
  options.device = flags.text("device");
  if (flags.has("interconnect")) options.interconnect = read_label(flags, "interconnect");
  return options;
}

}  // namespace

FlagList describe_allreduce() {
  FlagList list(heading_of_factors, 110);
  add_switch(list, "help,h", "this text");
  add_text(list, "minbytes,b", "8", "smallest buffer of a rank, in bytes");
  add_text(list, "maxbytes,e", "64M", "largest buffer");
  add_text(list, "stepbytes,i", "", "step between sizes, in bytes, instead of a factor");
  add_text(list, "stepfactor,f", "4", "factor between sizes");
  add_text(list, "sizes", "", "sizes of your own: 1M,3M");
  add_text(list, "set", "", "deepbench: the sizes of its all-reduce");
  add_text(list, "iters,n", "", "timed iterations; default: until --precision-goal is reached");
  add_text(list, "warmup_iters,w", "", "warm-up iterations; default: until times settle");
  add_text(list, "agg_iters,m", "1", "back-to-back calls in one timed iteration");
  add_text(list, "check,c", "1", "check results before, during and after timing; 0: never");
  add_text(list, "op,o", "sum", "sum, prod, min, max, avg");
  add_text(list, "datatype,d", "fp32", "element types: gradmeter's names or nccl-tests'");
  add_text(list, "root,r", "0", "root rank of broadcast");
  add_text(list, "average,a", "",
           "which of the ranks' times counts: 0 rank 0's, 1 their average, 2 min, 3 max (the default)");
  add_text(list, "reduction", "", "-a by name: rank0, avg, min, max; also span: last end - first start");
  add_text(list, "cudagraph,G", "none",
           "none, or N: capture an iteration's calls as a CUDA graph and launch that N times; needs --device cuda");
  add_repeats_flag(list);
  add_text(list, "collective", "allreduce", "allreduce, reduce_scatter, all_gather, broadcast, all_to_all, sendrecv");
  add_text(list, "algorithm", "mpi,auto,ring,direct", "see gradmeter list algorithms");
  add_text(list, "tune-auto", "", tune_help);
  add_text(list, "transport", "auto",
           "what moves the bytes of gradmeter's own algorithms: mpi, shm, hybrid (shm inside a node, mpi between), "
           "cuda-mpi; auto: shm or hybrid, but mpi for messages from buffers outside the arena");
  add_text(
      list, "buffers", "arena",
      "memory of the buffers: arena (in shared memory if the transport uses it), plain (private, on huge pages if the "
      "kernel grants them), malloc (private), registered (with nccl; needs --device cuda)");
  add_text(list, "in-place", "both", "out, in, both");
  add_text(list, "accum-dtype", "same", "type in which 16-bit and 8-bit floats are summed: same, fp32");
  add_text(list, "cadence", "barrier",
           "how ranks are synchronised between calls: barrier; none; window: all begin at an agreed time");
  add_text(list, "overlap", "none", "none; gemm: communicate beside a matrix product, by a progress thread");
  add_text(list, "codec", "none",
           "how the data are compressed: none, bf16, qsgd4:bucket=512, topk …; see gradmeter list codecs");
  add_text(list, "device", "cpu", "whose memory holds the buffers: cpu, cuda");
  add_text(list, "fake-nodes", "", "0,0,1,1: treat one host as several nodes, given by rank; the result records it");
  add_text(list, "interconnect", "", "your label for the network between the ranks, stored with every point");
  add_text(list, "seed", "1", "random seed of the data");
  add_stopping_flags(list, {.budget = "for all points together: 90s, 10m; default: at most 1 s a point",
                            .samples = "minimum number of iterations for each point"});
  add_rank_flags(list);
  add_text(list, "write-table", "",
           "write the fastest algorithm of each size to this file, for --algorithm auto:table=FILE");
  add_text(
      list, "inject", "",
      "faults to inject: slow:rank=1,factor=2 (its calls take twice as long), flip:call=40,rank=0 (from that call on "
      "one element of its results is wrong), omit:call=40,rank=0 (from that call on it contributes zeros), "
      "drop:p=0.01,timeout=200ms (messages are lost and resent), delay:time=1ms,jitter=200us (messages are late), "
      "cut:rank=1,at=5s,for=2s (its link is down), drift:ppm=20 (the last rank's clock is fast; with "
      "--reduction span or --cadence window)");
  add_switch(list, "per-rank",
             "add a table of ranks: the time of each one's calls, and of its own work without waiting");
  add_switch(list, "dry-run", "only list the points, with their time and memory; measure nothing");
  add_text(list, "goal", "",
           "with --dry-run: write the schedule of one collective to this file, in GOAL, for network simulators; here "
           "--thread-ranks may be up to 65536");
  add_text(list, "goal-sums", "10GB/s",
           "rate at which a rank adds up received bytes, for the computing times in --goal; 0: sums take no time");
  add_format_flags(list);
  add_output_flags(list);
  return list;
}

CollectiveOptions read_collective_options(const Flags& flags, int ranks, int threads) {
  refuse_overlap_on_a_device(flags);
  CollectiveOptions options = read_factors(flags, ranks, threads);
  constexpr std::uint64_t most = 10'000'000;
  if (flags.has("iters")) options.exact_samples = parse_count("--iters", flags.text("iters"), 1, most);
  if (flags.has("warmup_iters"))
    options.exact_warmup = parse_count("--warmup_iters", flags.text("warmup_iters"), 0, most);
  options.check = parse_count("--check", flags.text("check"), 0, 1) == 1;
  read_stopping(flags, options.rule, options.time_budget);
  options.seed = parse_count("--seed", flags.text("seed"), 0, UINT64_MAX);
  if (flags.has("inject")) options.injection = read_injection(flags.text("inject"), ranks, options);
  check_tune(flags, options.algorithms);
  return options;
}

}  // namespace gradmeter::bench
