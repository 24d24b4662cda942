// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives in the stream of a GPU's queue.
#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "allreduce/binding.hpp"
#include "allreduce/schedule/slices.hpp"
#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "allreduce/gpu/reduce.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::allreduce {
namespace {

/// An algorithm of NCCL, and whether it serves all-reduce, reduce-scatter and all-gather, and broadcast.
struct NcclAlgorithm {
  std::string_view name;
  bool reduces_all, scatters_or_gathers, broadcasts;
};
constexpr std::array nccl_algorithms{
    NcclAlgorithm{"collnetchain", true, false, false}, NcclAlgorithm{"collnetdirect", true, true, false},
    NcclAlgorithm{"nvls", true, true, false},          NcclAlgorithm{"nvlstree", true, false, false},
    NcclAlgorithm{"pat", false, true, false},          NcclAlgorithm{"ring", true, true, true},
    NcclAlgorithm{"tree", true, false, false}};
constexpr std::array<std::string_view, 3> nccl_protocols{"ll", "ll128", "simple"};
constexpr std::string_view nccls_choice = "any";

bool nccl_serves(const NcclAlgorithm& a, CollectiveKind k) {
  using enum CollectiveKind;
  if (k == all_reduce) return a.reduces_all;
  if (k == reduce_scatter || k == all_gather) return a.scatters_or_gathers;
  return k == broadcast && a.broadcasts;
}

std::string nccl_parameter(const Request& r, const char* parameter) {
  const auto given = r.name.parameters.find(parameter);
  return given == r.name.parameters.end() ? std::string(nccls_choice) : given->second;
}

/// The algorithm that the request forces; null: NCCL's choice.
const NcclAlgorithm* forced_nccl_algorithm(const Request& r) {
  const std::string name = nccl_parameter(r, "algorithm");
  if (name == nccls_choice) return nullptr;
  std::string names;
  for (const NcclAlgorithm& a : nccl_algorithms) {
    if (a.name == name) return &a;
    names += fmt::format(", {}", a.name);
  }
  throw core::UsageError(fmt::format("nccl has no algorithm '{}'; it has any{}", name, names));
}

/// The protocol that the request forces; empty: NCCL's choice.
std::string forced_nccl_protocol(const Request& r) {
  std::string name = nccl_parameter(r, "protocol");
  if (name == nccls_choice) return {};
  if (std::ranges::count(nccl_protocols, name) > 0) return name;
  throw core::UsageError(
      fmt::format("nccl has no protocol '{}'; it has any, {}", name, fmt::join(nccl_protocols, ", ")));
}

const char* nccl_call_name(CollectiveKind k) {
  constexpr std::array<const char*, 6> by_kind{"ncclAllReduce", "ncclReduceScatter",     "ncclAllGather",
                                               "ncclBroadcast", "ncclSend and ncclRecv", "ncclSend and ncclRecv"};
  return by_kind[static_cast<std::size_t>(k)];
}

bool goes_by_messages(CollectiveKind k) { return k == CollectiveKind::all_to_all || k == CollectiveKind::send_receive; }

}  // namespace

NcclCollective::NcclCollective(std::string name, const runtime::Communicator& c, runtime::NcclOptions options,
                               CollectiveKind collective_kind, std::uint32_t root, runtime::Queue& queue,
                               std::size_t landing_bytes)
    : name_(std::move(name)),
      queue_(queue),
      collective_kind_(collective_kind),
      root_(static_cast<int>(root)),
      landing_(landing_on_all_ranks(c, landing_bytes)),
      nccl_(c, std::move(options)) {}

/// Takes the landing memory before the communicator is made: a rank that found too little memory only then would leave
/// the others in NCCL.
runtime::OwnedBuffer NcclCollective::landing_on_all_ranks(const runtime::Communicator& c, std::size_t bytes) {
  runtime::OwnedBuffer landing;
  if (bytes == 0) return landing;  // on all ranks
  on_all_ranks(c, name_, [&] { landing = queue_.device().allocate(core::Element::i8, bytes); });
  return landing;
}

NcclCollective::~NcclCollective() {
  if (!running_) return;
  nccl_.abort();
  drain_before_free(queue_);
}

/// Must not be called while calls are under way: an allocation may wait for the GPU's kernels, which may wait for a
/// peer that waits for this rank.
void NcclCollective::reserve_landing(std::size_t bytes) {
  if (bytes > landing_.buffer.bytes()) landing_ = queue_.device().allocate(core::Element::i8, bytes);
}

void NcclCollective::check_call(const Call& call) const {
  if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  check_supported(call.element(), call.op, call.accumulates_in());
  const char* const call_name = nccl_call_name(collective_kind_);
  if (!call.in.on_device() || !call.out.on_device()) {
    throw core::BackendError("NCCL", call_name, "it was given memory of the host, and moves memory of a GPU alone");
  }
  if (call.accumulates_in() != call.element()) {
    throw core::BackendError("NCCL", call_name, "it rounds sums on the way, as their type does");
  }
  const auto ranks = static_cast<std::size_t>(nccl_.size());
  if (collective_kind_ == CollectiveKind::all_to_all && call.count() % ranks != 0) {
    throw core::BackendError(
        "NCCL", call_name,
        fmt::format("an all_to_all needs equal blocks: {} elements are no multiple of {} ranks", call.count(), ranks));
  }
  if (!reduces(collective_kind_)) return;
  if (const auto why = runtime::nccl_sum_refusal(call.element()); !why.empty()) {
    throw core::BackendError("NCCL", call_name, why);
  }
}

void NcclCollective::start(const Call& call) {
  check_call(call);
  running_ = true;  // also if the call fails half way, since the stream may still use the buffers
  submit(call);
  done_ = queue_.record();
}

void NcclCollective::enqueue(const Call& call) {
  check_call(call);
  submit(call);
  nccl_.note_completion();
}

void NcclCollective::register_buffers(std::span<const runtime::Buffer> buffers) {
  for (const runtime::Buffer& b : buffers) nccl_.register_memory(b.device().device_address(), b.bytes());
}

void NcclCollective::before_launch() { nccl_.begin(nccl_call_name(collective_kind_)); }

void NcclCollective::submit(const Call& call) {
  call_ = call;
  if (receives_in_scratch()) reserve_landing(call.out.bytes());
  const auto bytes = static_cast<double>(call.out.bytes());
  queue_.submit("nccl", {.flops = 0, .bytes = 2 * bytes}, [this] { issue(); });
  submit_work_after_nccl();
}

void NcclCollective::issue() {
#ifdef GRADMETER_HAS_CUDA
  nccl_.issue(nccl_call_name(collective_kind_), gpu::stream(), [this](const runtime::NcclCalls& calls) {
    const auto [n, element, combine] = std::tuple(call_.count(), call_.element(), combine_of(call_.op));
    if (n == 0) return;
    switch (collective_kind_) {
      case CollectiveKind::all_reduce:
        return calls.all_reduce(in(0), out(0), n, element, combine);
      case CollectiveKind::reduce_scatter:
        return reduce_scatter(calls);
      case CollectiveKind::all_gather:
        return all_gather(calls);
      case CollectiveKind::broadcast:
        return calls.broadcast(in(0), out(0), n, element, root_);
      case CollectiveKind::all_to_all:
        return all_to_all(calls);
      case CollectiveKind::send_receive:
        return send_receive(calls);
    }
  });
#endif
}

void NcclCollective::reduce_scatter(const runtime::NcclCalls& calls) const {
  const core::Element e = call_.element();
  const runtime::Combine combine = combine_of(call_.op);
  if (blocks_are_equal()) {
    const auto [begin, count] = block(nccl_.rank());
    return calls.reduce_scatter(in(0), out(begin), count, e, combine);
  }
  for (int r = 0; r < nccl_.size(); ++r) {
    const auto [begin, count] = block(r);
    if (count > 0) calls.reduce(in(begin), out(begin), count, e, combine, r);
  }
}

void NcclCollective::all_gather(const runtime::NcclCalls& calls) const {
  if (blocks_are_equal()) {
    const auto [begin, count] = block(nccl_.rank());
    return calls.all_gather(in(begin), out(0), count, call_.element());
  }
  for (int r = 0; r < nccl_.size(); ++r) {
    const auto [begin, count] = block(r);
    if (count > 0) calls.broadcast(in(begin), out(begin), count, call_.element(), r);
  }
}

void NcclCollective::all_to_all(const runtime::NcclCalls& calls) const {
  for (int r = 0; r < nccl_.size(); ++r) {
    const auto [begin, count] = block(r);
    calls.send(in(begin), count, call_.element(), r);
    calls.receive(landing_or_out(begin), count, call_.element(), r);
  }
}

void NcclCollective::send_receive(const runtime::NcclCalls& calls) const {
  const int ranks = nccl_.size(), rank = nccl_.rank();
  calls.send(in(0), call_.count(), call_.element(), (rank + 1) % ranks);
  calls.receive(landing_or_out(0), call_.count(), call_.element(), (rank + ranks - 1) % ranks);
}

bool NcclCollective::advance() {
  if (running_) running_ = !poll_completion(done_);
  return !running_;
}

/// Submits the work that follows NCCL's calls: the copy from scratch, and the division of an average.
void NcclCollective::submit_work_after_nccl() {
  if (receives_in_scratch()) {
    const std::size_t bytes = call_.out.bytes();
    const runtime::Buffer out(core::Element::i8, call_.out.device());
    queue_.copy("nccl.land", landing_.buffer.part(0, bytes), out);
  }
  if (call_.op == Op::average && reduces(collective_kind_)) finish_average();
}

void NcclCollective::finish_average() {
  const auto [begin, count] =
      collective_kind_ == CollectiveKind::reduce_scatter ? block(nccl_.rank()) : ElementRange{0, call_.count()};
  std::byte* const at = out(begin);
  const double bytes = 2.0 * static_cast<double>(count * core::size_of(call_.element()));
  queue_.submit("nccl.finish", {.flops = static_cast<double>(count), .bytes = bytes}, [this, at, n = count] {
#ifdef GRADMETER_HAS_CUDA
    cuda::finish(call_.element(), call_.op, at, at, n, nccl_.size(), gpu::stream());
#else
                  (void)this, (void)at, (void)n;
#endif
  });
}

ElementRange NcclCollective::block(int rank) const {
  return block_range(call_.count(), static_cast<std::uint32_t>(nccl_.size()), static_cast<std::uint32_t>(rank));
}
bool NcclCollective::blocks_are_equal() const { return call_.count() % static_cast<std::size_t>(nccl_.size()) == 0; }
bool NcclCollective::receives_in_scratch() const {
  return goes_by_messages(collective_kind_) && call_.in_place() && call_.count() > 0;
}
const std::byte* NcclCollective::in(std::size_t element) const {
  return call_.in.device().device_address() + element * core::size_of(call_.element());
}
std::byte* NcclCollective::out(std::size_t element) const {
  return call_.out.device().device_address() + element * core::size_of(call_.element());
}
std::byte* NcclCollective::landing_or_out(std::size_t element) const {
  if (!receives_in_scratch()) return out(element);
  return landing_.buffer.device().device_address() + element * core::size_of(call_.element());
}

std::string ring_instead_refusal(std::string_view algorithm, CollectiveKind kind, std::optional<int> version) {
  // The first version that disables the ring for collectives other than an all-reduce where another algorithm is
  // forced. Source: NCCL up to 2.23, src/graph/tuning.cc, "Never disable ring for non-allreduce operations"
  constexpr int first_to_disable_ring = 22400;
  if (algorithm == "ring" || kind == CollectiveKind::all_reduce || version.value_or(0) >= first_to_disable_ring)
    return {};
  return fmt::format(
      "NCCL before 2.24 may serve a {} by ring although {} is forced, and the row would not show it; this is {}: use "
      "nccl, or a newer library",
      name(kind), algorithm, version ? runtime::nccl_library() : "an NCCL of unknown version");
}

namespace {

std::string nccl_row_refusal(const Request& r) {
  const NcclAlgorithm* const algorithm = forced_nccl_algorithm(r);
  const std::string protocol = forced_nccl_protocol(r);
  if (goes_by_messages(r.collective_kind) && (algorithm || !protocol.empty())) {
    return fmt::format("NCCL moves {} by sends and receives, which have no algorithm to force; use nccl",
                       allreduce::name(r.collective_kind));
  }
  if (algorithm && !nccl_serves(*algorithm, r.collective_kind)) {
    return fmt::format("NCCL has no {} by {}", allreduce::name(r.collective_kind), algorithm->name);
  }
  if (auto why = runtime::nccl_refusal(); !why.empty() || !algorithm) return why;
  return ring_instead_refusal(algorithm->name, r.collective_kind, runtime::running_nccl_version());
}

std::unique_ptr<Collective> bind_nccl(const Request& r, const GroupConnection& connection, const ExchangeSpec& spec) {
  if (!spec.queue || spec.queue->device().name() != "cuda") {
    throw core::BackendError("NCCL", "init",
                             "it moves memory of a GPU, and buffers are the host's: use mpi, or --device cuda");
  }
  const NcclAlgorithm* const algorithm = forced_nccl_algorithm(r);
  runtime::NcclOptions forced{.algorithm = algorithm ? std::string(algorithm->name) : std::string(),
                              .protocol = forced_nccl_protocol(r)};
  const bool lands = goes_by_messages(r.collective_kind) && spec.placement == Placement::in_place;
  return std::make_unique<NcclCollective>(r.name.canonical(), connection.communicator, std::move(forced),
                                          r.collective_kind, r.root, *spec.queue, lands ? spec.max_bytes : 0);
}

}  // namespace

constinit const AlgorithmInfo nccl_row{.name = "nccl",
                                       .parameters = "algorithm=any,protocol=any",
                                       .cost_text = "the library's own choice, or as named; between GPUs",
                                       .source = "NCCL 2.18 or later",
                                       .backend = Backend::vendor,
                                       .on_device = true,
                                       .registers_buffers = true,
                                       .refusal = nccl_row_refusal,
                                       .bind = bind_nccl};

}  // namespace gradmeter::allreduce
