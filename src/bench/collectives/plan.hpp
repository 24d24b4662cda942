// Which points a collective sweep has: the factors that were asked for, in groups whose members take turns.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allreduce/compressed/compressed.hpp"
#include "bench/engine/node_map.hpp"
#include "core/machine.hpp"
#include "core/result.hpp"
#include "runtime/time/cadence.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::bench {

/// How the ranks' times of one iteration become one. span: last end − first start, in rank 0's clock.
enum class Reduction : std::uint8_t { rank0, average, min, max, span };
std::string_view name(Reduction);
std::span<const Reduction> reductions();

/// arena: memory that the transport moves best, shared by a node's ranks where it shares any. plain: private memory on
/// huge pages by advice. malloc: private memory as malloc gives it, which is what most MPI programs have.
/// registered: memory of a GPU that NCCL is told of before the calls (beside it, ordinary memory of the host).
enum class BufferKind : std::uint8_t { arena, plain, malloc, registered };
std::span<const BufferKind> buffer_kinds();
std::string_view name(BufferKind);

/// gemm: the exchange runs under a matrix product, moved by a progress thread.
enum class OverlapLoad : std::uint8_t { none, gemm };
std::string_view name(OverlapLoad);

/// A collective as users name it. `busbw_factor`: busbw = algbw × factor(ranks), as nccl-tests has it.
struct CollectiveInfo {
  std::string_view name;
  allreduce::CollectiveKind collective_kind;
  bool reduces, has_root;
  double (*busbw_factor)(int ranks);
};
std::span<const CollectiveInfo> collectives();

/// What the user asked for; each list is a factor.
struct CollectiveFactors {
  std::vector<const CollectiveInfo*> collectives;
  std::vector<allreduce::AlgorithmPtr> algorithms;
  std::vector<compression::CodecChoicePtr> codecs{nullptr};  ///< null: none
  std::vector<runtime::TransportKind> transports;
  std::vector<BufferKind> buffers;
  std::vector<bool> in_place;
  std::vector<std::size_t> sizes;  ///< bytes
  std::vector<core::Element> elements;
  std::vector<allreduce::Op> ops;
  std::vector<bool> accumulate_wide;  ///< sums of 16-bit and 8-bit floats kept in fp32
  std::vector<runtime::Cadence> cadences;
  std::vector<Reduction> reductions;
  std::vector<OverlapLoad> overlaps;
  std::vector<int> roots;
  std::size_t calls = 1;                   ///< back to back inside one timed iteration
  std::vector<std::size_t> cudagraphs{0};  ///< launches of a timed iteration's calls as a graph; 0: not captured
  int threads = 1;                         ///< of the matrix product that overlaps
  std::string device = "cpu";              ///< whose memory is exchanged
  std::string interconnect;
  std::string inject = {};                  ///< what is injected on purpose; empty: nothing
  core::MessageFaults message_faults = {};  ///< of that
};

struct CollectivePoint {
  const CollectiveInfo* collective = nullptr;
  allreduce::AlgorithmPtr algorithm = {};
  compression::CodecChoicePtr codec = {};                ///< null: none
  std::optional<runtime::TransportKind> transport = {};  ///< empty for a vendor's; never automatic
  BufferKind buffers = BufferKind::arena;
  bool in_place = false;
  std::size_t count = 0;  ///< elements
  core::Element element = core::Element::f32;
  std::optional<allreduce::Op> op = {};  ///< empty where nothing is reduced
  bool accumulate_wide = false;
  runtime::Cadence cadence = runtime::Cadence::barrier;
  Reduction reduction = Reduction::max;
  OverlapLoad overlap = OverlapLoad::none;
  int root = 0;
  std::size_t calls = 1;
  std::size_t cudagraph = 0;     ///< launches of `calls` as a graph, in one timed iteration; 0: not captured
  int threads = 0;               ///< of the product that overlaps; 0: there is none
  std::size_t group = 0;         ///< points of one group take turns
  std::string unsupported = {};  ///< why it cannot be had: a row `unsupported`
  std::size_t bytes() const { return count * core::size_of(element); }
  std::size_t calls_of_iteration() const { return calls * std::max<std::size_t>(1, cudagraph); }
  /// What a call is made with; a collective that reduces nothing is given the sum.
  allreduce::Op call_op() const { return op.value_or(allreduce::Op::sum); }
  /// In place, a sum's results are the next call's data: they grow by the ranks with every call.
  bool grows() const { return codec && in_place && op == allreduce::Op::sum; }
};

/// fp32 holds sums that have grown by so many powers of ten since they were drawn.
inline constexpr double most_growth = 30;

/// Sizes are rounded down to whole elements, and for all-to-all to whole blocks; equal ones count once.
std::vector<CollectivePoint> plan_collectives(const CollectiveFactors&, const NodeMap&);
/// min, min·factor … or min, min + step … up to max. Errors: UsageError when they would never end or are too many.
std::vector<std::size_t> sweep_sizes(std::size_t min, std::size_t max, std::size_t step, double factor);
/// The buffer sizes of DeepBench's all-reduce [bytes], fp32.
/// Source: Baidu Research, DeepBench, code/kernels/all_reduce_problems.h.
std::vector<std::size_t> deepbench_sizes();

/// The point's codec over its algorithm, for calls of up to so many bytes. Errors: a codec of none is a fault.
allreduce::CodedRequest coded_request(const CollectivePoint&, allreduce::Shape, std::size_t max_bytes);

/// What a row says of the point and of what all points share.
core::Factors to_factors(const CollectivePoint&, const NodeMap&, const CollectiveFactors&);

/// No implementation over several nodes can be faster: what a node must send at least, at the rate of its port [s]; 0:
/// there is one node, or the rate is not known. In an all-to-all each of its ranks has something for all others.
double wire_bound(allreduce::CollectiveKind, double bytes, const NodeMap&, const core::Machine&);
/// The same of a point; with a codec, of the calls that it comes down to, as encoded, but those whose length depends on
/// the data.
double wire_bound(const CollectivePoint&, const NodeMap&, const core::Machine&);

}  // namespace gradmeter::bench
