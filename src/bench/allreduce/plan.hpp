// SPDX-License-Identifier: Apache-2.0
// The flags of a collective sweep, and its points: the factors that were asked for, in groups whose members take turns.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allreduce/coded/coded.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/node_map.hpp"
#include "bench/engine/sweep.hpp"
#include "bench/engine/tuning.hpp"
#include "core/injection.hpp"
#include "core/machine.hpp"
#include "core/result.hpp"
#include "core/stopping_rule.hpp"
#include "core/units.hpp"
#include "runtime/clock.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::bench {

/// The rule by which the ranks' times of one iteration become one time. span: last end − first start, in rank 0's
/// clock.
enum class RankReduction : std::uint8_t { rank0, average, min, max, span };
std::string_view name(RankReduction);
std::span<const RankReduction> rank_reductions();

/// The memory of a call's buffers. arena: memory that the transport moves best, which a node's ranks share if the
/// transport shares memory. plain: private memory, on huge pages if granted. malloc: private memory as malloc gives it,
/// which is what most MPI programs have. registered: GPU memory that is registered with NCCL before the calls.
enum class BufferKind : std::uint8_t { arena, plain, malloc, registered };
std::span<const BufferKind> buffer_kinds();
std::string_view name(BufferKind);

/// What the rank computes during the exchange. gemm: a matrix product, while a progress thread moves the exchange.
enum class OverlapLoad : std::uint8_t { none, gemm };
std::string_view name(OverlapLoad);

/// A collective as users name it. Bus bandwidth is algorithm bandwidth × busbw_factor(ranks), as in nccl-tests.
struct CollectiveInfo {
  std::string_view name;
  allreduce::CollectiveKind collective_kind;
  bool reduces, has_root;
  double (*busbw_factor)(int ranks);
};
std::span<const CollectiveInfo> collectives();

/// The options that the user gave; each list has the values of a factor.
struct CollectiveOptions {
  std::vector<const CollectiveInfo*> collectives;
  std::vector<allreduce::AlgorithmPtr> algorithms;
  std::vector<compression::CodecChoicePtr> codecs{nullptr};  ///< null: no codec
  std::vector<runtime::TransportKind> transports;
  std::vector<BufferKind> buffers;
  std::vector<bool> in_place;
  std::vector<std::size_t> sizes;  ///< bytes
  std::vector<core::Element> elements;
  std::vector<allreduce::Op> ops;
  std::vector<bool> accumulate_wide;  ///< sums of 16-bit and 8-bit floats are kept in fp32
  std::vector<runtime::Cadence> cadences;
  std::vector<RankReduction> reductions;
  std::vector<OverlapLoad> overlaps;
  std::vector<int> roots;
  std::size_t calls = 1;  ///< number of calls in one timed iteration, back to back
  /// The numbers of times that a timed iteration launches a graph of `calls` calls; 0: calls are not captured.
  std::vector<std::size_t> graph_launches{0};
  std::size_t repeats = 1;     ///< number of measurements of the same work
  int threads = 1;             ///< threads of the matrix product that overlaps
  std::string device = "cpu";  ///< device whose memory is exchanged
  std::string interconnect;    ///< the user's label of the network; may be empty
  core::StoppingRule rule = {};
  std::size_t exact_samples = 0;                 ///< value of -n; 0: as many samples as the stopping rule takes
  std::optional<std::size_t> exact_warmup = {};  ///< value of -w
  std::optional<TimeBudget> time_budget = {};    ///< for all points together, shared out evenly; empty: 1 s a point
  bool check = true;
  core::Injection injection = {};  ///< faults to inject
  std::uint64_t seed = 1;
};

/// Lists the flags of the sweep and of its command.
FlagList describe_allreduce();
/// Reads the options from the flags, the same on every rank. threads: those of the matrix product that overlaps the
/// exchange. Errors: UsageError of one line.
CollectiveOptions read_collective_options(const Flags&, int ranks, int threads);

/// One point of the sweep with its row.
struct CollectivePoint : SweepPoint {
  const CollectiveInfo* collective = nullptr;
  allreduce::AlgorithmPtr algorithm = {};
  compression::CodecChoicePtr codec = {};                ///< null: no codec
  std::optional<runtime::TransportKind> transport = {};  ///< empty for a vendor's algorithm; never automatic
  BufferKind buffers = BufferKind::arena;
  bool in_place = false;
  std::size_t count = 0;  ///< elements
  core::Element element = core::Element::f32;
  std::optional<allreduce::Op> op = {};  ///< empty where nothing is reduced
  bool accumulate_wide = false;
  runtime::Cadence cadence = runtime::Cadence::barrier;
  RankReduction reduction = RankReduction::max;
  OverlapLoad overlap = OverlapLoad::none;
  int root = 0;
  std::size_t calls = 1;
  /// The number of times that a timed iteration launches a graph of `calls` calls; 0: calls are not captured.
  std::size_t graph_launches = 0;
  std::size_t repeat = 0;        ///< the number, from 1, of this measurement of the same work; 0: it is the only one
  int threads = 0;               ///< threads of the matrix product that overlaps; 0: there is none
  std::string unsupported = {};  ///< why the point cannot be measured; empty: it can be
  std::size_t bytes() const { return count * core::size_of(element); }
  std::size_t calls_of_iteration() const { return calls * std::max<std::size_t>(1, graph_launches); }
  /// The operation that a call is made with; a collective that reduces nothing is given the sum.
  allreduce::Op call_op() const { return op.value_or(allreduce::Op::sum); }
  /// True for sums in place with a codec, whose data must be written anew after some calls: each call sums the result
  /// of the call before, so the data would grow out of the range of fp32. Without a codec, growth does no harm
  /// (`fill_for_timing`).
  bool grows() const { return codec && in_place && op == allreduce::Op::sum; }
};

/// Data for which `grows` is true may grow to 10^most_growth times the drawn data, which fp32 can still hold, before
/// they are written anew.
inline constexpr double most_growth = 30;

/// The points with their groups; their rows are still empty. Sizes are rounded down to whole elements, for all-to-all
/// to whole blocks; sizes that are then equal count once.
std::vector<CollectivePoint> plan_collectives(const CollectiveOptions&, const NodeMap&);
/// The sizes from min up to max. If step is above 0, each is the one before plus step, else the one before times
/// factor. Errors: UsageError if min is above max, if the sizes would never reach max, or if there are over 10,000.
std::vector<std::size_t> sweep_sizes(std::size_t min, std::size_t max, std::size_t step, double factor);
/// The buffer sizes of DeepBench's all-reduce [bytes], fp32.
/// Source: Baidu Research, DeepBench, code/kernels/all_reduce_problems.h.
std::vector<std::size_t> deepbench_sizes();

/// The exchange spec of the point, for calls of up to `max_bytes` bytes.
allreduce::ExchangeSpec exchange_of(const CollectivePoint&, allreduce::RankShape, std::size_t max_bytes);

/// True where all ranks are known to have equal work in a call that `serving` serves, so that a rank whose calls take
/// longest is slow itself. It is not known of vendors' algorithms, and not the case in collectives with a root, in
/// trees and for buffers with fewer elements than ranks.
bool ranks_have_equal_work(const CollectivePoint&, const allreduce::AlgorithmChoice& serving, const NodeMap&);

/// The tables that --tune-auto makes for the points whose algorithm is plain `auto` (AlgorithmChoice::is_plain_auto).
std::vector<WantedTable> tables_of(std::span<const CollectivePoint>, const NodeMap&);

/// The factors in a point's row: its own, and those that all points of the sweep share.
core::Factors to_factors(const CollectivePoint&, const NodeMap&, const CollectiveOptions&);

/// The least time of any implementation over several nodes [s]: the bytes that a node must send, divided by the rate of
/// its port; by convention 0 if there is only one node or the rate is not known. bytes: the size of one rank's buffer.
/// In an all-to-all, every rank of a node sends a block to every rank of the other nodes; the busiest node counts.
double wire_bound(allreduce::CollectiveKind, double bytes, const NodeMap&, const core::Machine&);
/// The wire bound of a point. An exchange with a codec consists of inner calls, whose bounds are added up; calls whose
/// length depends on the data are left out.
double wire_bound(const CollectivePoint&, const NodeMap&, const core::Machine&);

}  // namespace gradmeter::bench
