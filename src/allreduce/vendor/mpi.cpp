// SPDX-License-Identifier: Apache-2.0
// The MPI library's collectives as shipped, and Open MPI's own all-reduce algorithms, each forced.
#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/slices.hpp"
#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::allreduce {

namespace {

template <core::Element e, Op op>
void combine(const std::byte* in, std::byte* inout, std::size_t n) {
  const std::array<const std::byte*, 2> sources{in, inout};
  reduce(e, e, op, inout, sources, n);
}

template <core::Element e>
runtime::Reduction own_reduction(Op op) {
  if (op == Op::min) return runtime::Reduction(e, combine<e, Op::min>);
  if (op == Op::max) return runtime::Reduction(e, combine<e, Op::max>);
  if (op == Op::product) return runtime::Reduction(e, combine<e, Op::product>);
  return runtime::Reduction(e, combine<e, Op::sum>);
}

/// MPI's arguments for this type and operation: its own operator, or ours where it lacks the type. `average` is a sum.
/// Errors: UsageError where check_supported throws it.
runtime::Reduction mpi_reduction(core::Element e, Op op) {
  check_supported(e, op);
  if (e == core::Element::f16) return own_reduction<core::Element::f16>(op);
  if (e == core::Element::bf16) return own_reduction<core::Element::bf16>(op);
  if (e == core::Element::e4m3) return own_reduction<core::Element::e4m3>(op);
  if (e == core::Element::e5m2) return own_reduction<core::Element::e5m2>(op);
  return {e, combine_of(op)};
}

// The most elements of a piece: below INT_MAX, and a power of two so that pieces stay aligned.
constexpr std::size_t longest_piece = std::size_t{1} << 30;

/// True where a long buffer can go in pieces, each of which is the same collective.
bool goes_in_pieces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast ||
         kind == CollectiveKind::send_receive;
}
bool is_cut_into_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_gather;
}

}  // namespace

MpiCollective::MpiCollective(std::string name, runtime::Communicator c, MpiMode mode, CollectiveKind collective_kind,
                             std::uint32_t root)
    : name_(std::move(name)),
      communicator_(std::move(c)),
      mode_(mode),
      collective_kind_(collective_kind),
      root_(runtime::mpi_count(root)) {}

const runtime::Reduction& MpiCollective::reduction_for(core::Element e, Op op) {
  for (const KnownReduction& k : reductions_) {
    if (k.element == e && k.op == op) return k.reduction;
  }
  return reductions_.emplace_back(KnownReduction{e, op, mpi_reduction(e, op)}).reduction;
}

void MpiCollective::cut_into_blocks(std::size_t count) {
  if (cut_elements_ == count && !block_cuts_.counts.empty()) return;
  const auto ranks = static_cast<std::uint32_t>(communicator_.size());
  block_cuts_ = {};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const ElementRange block = block_range(count, ranks, r);
    block_cuts_.begins.push_back(runtime::mpi_count(block.begin));
    block_cuts_.counts.push_back(runtime::mpi_count(block.count));
  }
  cut_elements_ = count;
}

void MpiCollective::check(const Call& call) const {
  if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  check_supported(call.element(), call.op, call.accumulates_in());
  if (!goes_in_pieces(collective_kind_) && call.count() > INT_MAX) {
    throw core::BackendError("allreduce", name_,
                             fmt::format("{} elements are more than MPI's int counts, and a {} does not go in pieces; "
                                         "use at most {}",
                                         call.count(), allreduce::name(collective_kind_), INT_MAX));
  }
  if (collective_kind_ == CollectiveKind::all_to_all &&
      call.count() % static_cast<std::size_t>(communicator_.size()) != 0) {
    throw core::BackendError("allreduce", name_,
                             fmt::format("an all_to_all needs equal blocks: {} elements are no multiple of {} ranks",
                                         call.count(), communicator_.size()));
  }
}

void MpiCollective::start(const Call& call) {
  // Small calls take a quarter of a microsecond: what was checked for the last call is not checked again.
  const bool as_before = !running_ && call.element() == call_.element() && call.op == call_.op &&
                         call.count() == call_.count() && call.accumulate == call_.accumulate && !reductions_.empty();
  if (as_before && repeated_call_) return (*repeated_call_)(call.in.host(), call.out.host());
  if (!as_before) {
    repeated_call_.reset();
    check(call);
    const runtime::Reduction& reduction = reduction_for(call.element(), call.op);
    if (mode_ == MpiMode::blocking && collective_kind_ == CollectiveKind::all_reduce && call.op != Op::average &&
        call.count() <= longest_piece)
      repeated_call_.emplace(communicator_, reduction, call.count());
  }
  if (is_cut_into_blocks(collective_kind_)) cut_into_blocks(call.count());
  const std::size_t bytes = call.out.bytes();
  const bool in_place = call.in_place();
  if (collective_kind_ == CollectiveKind::broadcast && communicator_.rank() == root_ && !in_place && bytes > 0) {
    std::memcpy(call.out.host(), call.in.host(), bytes);
  }
  if (collective_kind_ == CollectiveKind::send_receive && mode_ == MpiMode::nonblocking && in_place &&
      landing_.size() < bytes) {
    landing_.resize(bytes);
  }
  call_ = call;
  posted_ = 0;
  running_ = true;
  if (mode_ == MpiMode::nonblocking) post();
}

void MpiCollective::post() {
  const std::size_t at = posted_ * core::size_of(call_.element());
  const std::size_t n =
      goes_in_pieces(collective_kind_) ? std::min(longest_piece, call_.count() - posted_) : call_.count();
  runtime::MpiBuffers buffers{call_.in.host() + at, call_.out.host() + at, n};
  if (collective_kind_ == CollectiveKind::send_receive && mode_ == MpiMode::nonblocking && buffers.in == buffers.out)
    buffers.out = landing_.data() + at;
  post(buffers);
  posted_ += n;
  under_way_ = true;
}

void MpiCollective::post(runtime::MpiBuffers buffers) {
  const runtime::Reduction& reduction = reduction_for(call_.element(), call_.op);
  runtime::MpiRequests* requests = mode_ == MpiMode::nonblocking ? &requests_ : nullptr;
  const bool equal =
      mode_ != MpiMode::any_lengths && buffers.count % static_cast<std::size_t>(communicator_.size()) == 0;
  switch (collective_kind_) {
    case CollectiveKind::all_reduce:
      return runtime::mpi_all_reduce(communicator_, buffers, reduction, requests);
    case CollectiveKind::reduce_scatter:
      return equal ? runtime::mpi_reduce_scatter(communicator_, buffers, reduction, requests)
                   : runtime::mpi_reduce_scatter(communicator_, buffers, block_cuts_, reduction, requests);
    case CollectiveKind::all_gather:
      return equal ? runtime::mpi_all_gather(communicator_, buffers, reduction, requests)
                   : runtime::mpi_all_gather(communicator_, buffers, block_cuts_, reduction, requests);
    case CollectiveKind::broadcast:
      return runtime::mpi_broadcast(communicator_, buffers, root_, reduction, requests);
    case CollectiveKind::all_to_all:
      return runtime::mpi_all_to_all(communicator_, buffers, reduction, requests);
    case CollectiveKind::send_receive:
      return runtime::mpi_send_receive(communicator_, buffers, reduction, requests);
  }
}

bool MpiCollective::advance() {
  if (!running_) return true;
  while (!under_way_ || requests_.done()) {
    if (under_way_ && posted_ >= call_.count()) {
      complete();
      return true;
    }
    post();
  }
  return false;
}

void MpiCollective::complete() {
  running_ = under_way_ = false;
  const std::size_t width = core::size_of(call_.element());
  const bool in_place = call_.in_place();
  if (collective_kind_ == CollectiveKind::send_receive && mode_ == MpiMode::nonblocking && in_place &&
      call_.count() > 0) {
    std::memcpy(call_.out.host(), landing_.data(), call_.count() * width);
  }
  if (!reduces(collective_kind_)) return;
  std::byte* result = call_.out.host();
  std::size_t n = call_.count();
  if (collective_kind_ == CollectiveKind::reduce_scatter) {
    const auto rank = static_cast<std::size_t>(communicator_.rank());
    result += static_cast<std::size_t>(block_cuts_.begins[rank]) * width;
    n = static_cast<std::size_t>(block_cuts_.counts[rank]);
    // In place, MPI leaves the block at the beginning of the buffer.
    if (in_place && n > 0) std::memmove(result, call_.out.host(), n * width);
  }
  finish(call_.element(), call_.op, result, result, n, communicator_.size());
}

std::unique_ptr<Collective> bind_mpi(const Request& r, const GroupConnection& connection, const ExchangeSpec&) {
  const std::string& row = r.name.base;
  const MpiMode mode = row == "mpi-nonblocking" ? MpiMode::nonblocking
                       : row == "mpi-v"         ? MpiMode::any_lengths
                                                : MpiMode::blocking;
  return std::make_unique<MpiCollective>(r.name.canonical(), connection.communicator.duplicate(), mode,
                                         r.collective_kind, r.root);
}

std::string mpi_refusal(const Request&) { return runtime::mpi_refusal(); }

std::string mpi_vector_refusal(const Request& r) {
  if (auto why = runtime::mpi_refusal(); !why.empty()) return why;
  return refusal_unless(r, {CollectiveKind::reduce_scatter, CollectiveKind::all_gather});
}

namespace {

using runtime::ForcedAllReduce;

ForcedAllReduce forced_algorithm(const Request& r) {
  constexpr std::array<std::pair<std::string_view, ForcedAllReduce>, 6> forced{{
      {"ompi-basic-linear", ForcedAllReduce::basic_linear},
      {"ompi-nonoverlapping", ForcedAllReduce::nonoverlapping},
      {"ompi-recursive-doubling", ForcedAllReduce::recursive_doubling},
      {"ompi-ring", ForcedAllReduce::ring},
      {"ompi-segmented-ring", ForcedAllReduce::segmented_ring},
      {"ompi-rabenseifner", ForcedAllReduce::rabenseifner},
  }};
  for (const auto& [name, algorithm] : forced) {
    if (name == r.name.base) return algorithm;
  }
  throw std::logic_error(r.name.base + " is no forced algorithm of Open MPI");
}

/// The most bytes of an element. Open MPI 4.1 divides by ranks · segment, with the segment in elements and the product
/// in an int. The product is 0, and the division fails, if the segment is shorter than an element, or if the product
/// wraps.
constexpr std::size_t longest_element = 8;

/// The segment [bytes]; 0 where the algorithm has none. Errors: UsageError for a segment with which Open MPI would
/// fail.
int segment_of(const Request& r) {
  const auto given = r.name.parameters.find("segment");
  if (given == r.name.parameters.end()) return 0;
  const std::size_t bytes = core::parse_bytes(given->second).value;
  if (bytes < longest_element || bytes > INT_MAX / std::max<std::size_t>(1, r.shape.ranks)) {
    throw core::UsageError(
        fmt::format("{}: segment={} must be from {} bytes to 2G over the ranks, as in segment=1M: "
                    "Open MPI divides by their product",
                    r.name.base, given->second, longest_element));
  }
  return static_cast<int>(bytes);
}

}  // namespace

std::string ompi_refusal(const Request& r) {
  (void)segment_of(r);
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (auto why = runtime::mpi_refusal(); !why.empty()) return why;
  return runtime::forced_all_reduce_refusal(forced_algorithm(r));
}

std::unique_ptr<Collective> bind_ompi(const Request& r, const GroupConnection& connection, const ExchangeSpec&) {
  return std::make_unique<MpiCollective>(
      r.name.canonical(), runtime::duplicate_forced(connection.communicator, forced_algorithm(r), segment_of(r)),
      MpiMode::blocking);
}

}  // namespace gradmeter::allreduce
