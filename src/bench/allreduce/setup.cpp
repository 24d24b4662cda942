// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/setup.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <set>

#include "allreduce/gpu/stream_collective.hpp"
#include "allreduce/test_data.hpp"
#include "bench/engine/sweep.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"
#include "runtime/nccl/communicator.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::bench {

InjectedCollective::InjectedCollective(std::unique_ptr<allreduce::Collective> inner,
                                       allreduce::CollectiveKind collective_kind, InjectedFaults& faults,
                                       runtime::Queue* queue)
    : inner_(std::move(inner)), collective_kind_(collective_kind), faults_(faults), queue_(queue) {
  if (faults.injection.slow) slowdown_ = faults.injection.slow->of(faults.rank);
}

void InjectedCollective::start(const allreduce::Call& call) {
  const std::size_t bytes = call.out.bytes();
  if (slowdown_ > 1 && bytes == last_bytes_) {
    const double until = runtime::host_clock() + (slowdown_ - 1) * last_s_;
    while (runtime::host_clock() < until) {
    }
  }
  last_bytes_ = bytes;
  call_ = call;
  running_ = true;
  omit();
  begin_ = runtime::host_clock();
  inner_->start(call);
}

void InjectedCollective::omit() {
  const auto& wanted = faults_.injection.omit;
  const bool sums = collective_kind_ == allreduce::CollectiveKind::all_reduce ||
                    collective_kind_ == allreduce::CollectiveKind::reduce_scatter;
  if (!sums || !wanted || wanted->rank != faults_.rank || faults_.calls < wanted->call) return;
  on_host([this] {
    auto* const in = const_cast<std::byte*>(call_.in.address());
    const std::size_t bytes = call_.in.bytes();
    const auto element = call_.in.element();
    const runtime::Buffer written = call_.in.on_device()
                                        ? runtime::Buffer(element, runtime::DeviceSpan<std::byte>(in, bytes))
                                        : runtime::Buffer(element, std::span(in, bytes));
    std::memset(written.host(), 0, bytes);
  });
}

void InjectedCollective::on_host(const runtime::Work& work) { queue_ ? queue_->run_and_wait(work) : work(); }

bool InjectedCollective::advance() {
  if (!running_) return true;
  if (!inner_->advance()) return false;
  running_ = false;
  last_s_ = runtime::host_clock() - begin_;
  const std::uint64_t number = faults_.calls++;
  const auto& wanted = faults_.injection.flip;
  if (wanted && wanted->rank == faults_.rank && number >= wanted->call) flip();
  return true;
}

void InjectedCollective::flip() {
  const allreduce::KnownCollective whole{
      .collective_kind = collective_kind_,
      .data = {.element = call_.element(), .ranks = static_cast<std::size_t>(faults_.ranks)},
      .count = call_.count()};
  on_host([&] {
    allreduce::inject_error(whole, static_cast<std::size_t>(faults_.rank), {call_.out.host(), call_.out.bytes()});
  });
}

namespace {

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + runtime::page_bytes - 1) / runtime::page_bytes * runtime::page_bytes;
}

BindingKey key_of(const CollectivePoint& p) {
  return {p.transport ? std::string(runtime::name(*p.transport)) : "",
          p.algorithm->name,
          p.codec ? p.codec->name : "",
          p.in_place,
          p.collective->collective_kind,
          p.root,
          p.graph_launches,
          p.buffers == BufferKind::registered,
          p.buffers != BufferKind::arena,
          p.repeat};
}

std::size_t arena_bytes(const CollectivePoint& p, allreduce::RankShape shape, int rank, std::size_t max_bytes) {
  const auto r = static_cast<std::uint32_t>(rank);
  const allreduce::ExchangeSpec spec = exchange_of(p, shape, max_bytes);
  if (p.codec) return allreduce::coded_arena_bytes(spec, r);
  return p.algorithm->arena_bytes(shape, r, spec, p.collective->collective_kind);
}

}  // namespace

SetupNeeds SetupNeeds::of(std::span<const CollectivePoint> points, const NodeMap& map, int rank) {
  SetupNeeds needs;
  for (const auto& p : points) {
    if (!p.unsupported.empty()) continue;
    needs.max_bytes = std::max(needs.max_bytes, p.bytes());
    if (!needs.has(p.buffers)) needs.buffers.push_back(p.buffers);
    needs.out_of_place |= !p.in_place;
    if (p.transport &&
        std::find(needs.transports.begin(), needs.transports.end(), *p.transport) == needs.transports.end()) {
      needs.transports.push_back(*p.transport);
    }
  }
  if (needs.transports.empty()) {
    needs.transports = {map.nodes() == 1 ? runtime::TransportKind::shm : runtime::TransportKind::hybrid};
  }
  std::map<runtime::TransportKind, std::size_t> scratch;
  std::set<BindingKey> seen;
  for (const auto& p : points) {
    if (!p.unsupported.empty() || !seen.insert(key_of(p)).second) continue;
    scratch[p.transport.value_or(needs.transports.front())] +=
        runtime::page_bytes + arena_bytes(p, allreduce::shape_of(map.node_of), rank, needs.max_bytes);
  }
  for (const auto& [kind, bytes] : scratch) needs.scratch_bytes = std::max(needs.scratch_bytes, bytes);
  return needs;
}

bool SetupNeeds::has(BufferKind b) const { return std::count(buffers.begin(), buffers.end(), b) > 0; }

std::size_t SetupNeeds::buffer_bytes() const {
  const std::size_t buffer_bytes =
      whole_pages(max_bytes) + (CollectiveSetup::first_page_count + 1) * runtime::page_bytes;
  return (out_of_place ? 2 : 1) * buffer_bytes;
}

std::size_t SetupNeeds::resident_bytes() const {
  const bool arena = has(BufferKind::arena);
  const std::size_t network_bytes = (arena ? buffer_bytes() : 0) + scratch_bytes;
  return transports.size() * network_bytes + (buffers.size() - (arena ? 1 : 0)) * buffer_bytes();
}

std::size_t SetupNeeds::shared_bytes_on_node(int ranks_per_node, int ranks) const {
  const auto shared_transports = std::ranges::count_if(
      transports, [](auto t) { return t == runtime::TransportKind::shm || t == runtime::TransportKind::hybrid; });
  const std::size_t arena = (has(BufferKind::arena) ? buffer_bytes() : 0) + scratch_bytes + 2 * runtime::page_bytes;
  const std::size_t cells = runtime::shared_memory_cell_count(ranks_per_node, allreduce::most_lanes(ranks));
  return static_cast<std::size_t>(shared_transports) *
         (static_cast<std::size_t>(ranks_per_node) * arena + cells * sizeof(runtime::SharedMemoryCell));
}

struct CollectiveSetup::ConnectedNetwork {
  ConnectedNetwork(const runtime::Communicator& world, const runtime::NetworkOptions& o)
      : network(world, o), transport(network.connect(world, allreduce::most_lanes(world.size()))) {}
  runtime::Network network;
  std::unique_ptr<runtime::Transport> transport;
  CollectiveBuffers buffers;
};

CollectiveSetup::CollectiveSetup(Session& s, const NodeMap& map, const SetupNeeds& needs, InjectedFaults& faults)
    : session_(s), needs_(needs), faults_(faults), limit_faults_(faults), shape_(allreduce::shape_of(map.node_of)) {
  limit_faults_.injection.flip.reset();
  limit_faults_.injection.omit.reset();
  if (&s.device() != &runtime::host_device()) queue_ = s.device().make_queue();
  std::string refusal;  // thrown only at the end: until then, other ranks wait for this one in collective calls
  const auto note = [&](const std::string& why) { refusal = refusal.empty() ? why : refusal; };
  for (const auto kind : needs.buffers) {
    if (kind == BufferKind::arena) continue;
    const auto pages = kind == BufferKind::plain ? runtime::Pages::huge_if_granted : runtime::Pages::ordinary;
    private_buffers_[kind] = std::make_unique<PrivateBuffers>(needs.buffer_bytes(), pages);
    if (queue_) pinned_.push_back(s.device().pin(private_buffers_[kind]->arena.memory()));
    note(refusal_of([&] { private_buffers_[kind]->buffers = take(private_buffers_[kind]->arena, kind); }));
  }
  const bool arena = needs.has(BufferKind::arena);
  for (const auto kind : needs.transports) {
    auto network = std::make_unique<ConnectedNetwork>(
        world(), runtime::NetworkOptions{.transport = kind,
                                         .memory_bytes = (arena ? needs.buffer_bytes() : 0) + needs.scratch_bytes,
                                         .fake_nodes = map.fake ? map.node_of : std::vector<int>{},
                                         .faults = faults.injection.messages,
                                         .world_rank = faults.rank});
    if (queue_) std::ranges::move(network->network.pin(s.device()), std::back_inserter(pinned_));
    if (arena) note(refusal_of([&] { network->buffers = take(network->network.arena(), BufferKind::arena); }));
    networks_[kind] = std::move(network);
  }
  if (const auto why = refused_anywhere(world(), refusal); !why.empty()) throw core::Unavailable(why);
}

CollectiveSetup::~CollectiveSetup() = default;

/// Takes one set of buffers, for the largest point.
CollectiveBuffers CollectiveSetup::take(runtime::Arena& arena, BufferKind kind) {
  CollectiveBuffers b;
  const std::size_t bytes = needs_.max_bytes + (queue_ ? 0 : first_page_count * runtime::page_bytes);
  b.in = arena.take(bytes);
  b.out = needs_.out_of_place ? arena.take(bytes) : b.in;
  if (!queue_) return b;
  const auto device_buffer = [&](std::span<std::byte> memory) {
    runtime::Device& device = session_.device();
    device_buffers_.push_back(kind == BufferKind::registered
                                  ? runtime::allocate_registrable_beside(device, core::Element::i8, memory)
                                  : device.allocate_beside(core::Element::i8, memory));
    return device_buffers_.back().buffer;
  };
  b.device_in = device_buffer(b.in);
  b.device_out = needs_.out_of_place ? device_buffer(b.out) : b.device_in;
  return b;
}

CollectiveBuffers CollectiveBuffers::part(std::size_t first_page, std::size_t bytes, bool in_place) const {
  const std::size_t at = first_page * runtime::page_bytes;
  CollectiveBuffers b{.in = in.subspan(at, bytes), .out = (in_place ? in : out).subspan(at, bytes)};
  if (device_in.count() == 0) return b;
  b.device_in = device_in.part(at, bytes);
  b.device_out = in_place ? b.device_in : device_out.part(at, bytes);
  return b;
}

void CollectiveSetup::upload(const CollectiveBuffers& b) {
  if (!queue_) return;
  queue_->from_transport(b.device_in);
  queue_->from_transport(b.device_out);
  queue_->synchronise();
}

void CollectiveSetup::download(const CollectiveBuffers& b) {
  if (!queue_) return;
  queue_->to_transport(b.device_out);
  queue_->synchronise();
}

/// Stages a collective that takes host memory only, so that it exchanges the device's memory.
std::unique_ptr<allreduce::Collective> CollectiveSetup::staged_for_device(std::unique_ptr<allreduce::Collective> c) {
  if (!queue_ || c->takes_device_memory()) return c;
  return std::make_unique<allreduce::StagedCollective>(std::move(c), *queue_);
}

CollectiveSetup::ConnectedNetwork& CollectiveSetup::network_of(const CollectivePoint& p) {
  return *networks_.at(p.transport.value_or(needs_.transports.front()));
}

CollectiveBuffers CollectiveSetup::all_buffers(BufferKind kind) {
  return kind == BufferKind::arena ? networks_.at(needs_.transports.front())->buffers
                                   : private_buffers_.at(kind)->buffers;
}

CollectiveBuffers CollectiveSetup::buffers(const CollectivePoint& p, std::size_t first_page) {
  const auto& buffers =
      p.buffers == BufferKind::arena ? network_of(p).buffers : private_buffers_.at(p.buffers)->buffers;
  return buffers.part(first_page, p.bytes(), p.in_place);
}

std::unique_ptr<allreduce::Collective> CollectiveSetup::with_slow_fault(std::unique_ptr<allreduce::Collective> work) {
  if (!limit_faults_.concerns_calls()) return work;
  return std::make_unique<InjectedCollective>(std::move(work), allreduce::CollectiveKind::all_reduce, limit_faults_);
}

BoundCollective& CollectiveSetup::bound(const CollectivePoint& p) { return bound_.at(key_of(p)); }

CollectiveSetup::BindOutcome CollectiveSetup::bind_one(const CollectivePoint& p) {
  if (bound_.contains(key_of(p))) return {};
  if (p.graph_launches > 0) {
    if (auto why = allreduce::graph_refusal(world(), *queue_); !why.empty())
      return {core::Status::unsupported, std::move(why)};
  }
  auto& network = network_of(p);
  BoundCollective binding{
      .collective = nullptr,
      .transport = p.algorithm->uses_transport() ? &*network.transport : nullptr,
      .label = fmt::format("{} {}{}", p.collective->name, p.algorithm->name, p.codec ? " " + p.codec->label : "")};
  std::string mine;
  bool has_failed = false;
  try {
    const allreduce::GroupConnection connection{world(), network.network, *network.transport};
    allreduce::ExchangeSpec spec = exchange_of(p, shape_, needs_.max_bytes);
    // Other algorithms move the host's memory; `staged_for_device` copies the device's memory there and back.
    if (p.algorithm->works_on_devices()) spec.queue = queue_.get();
    binding.collective = p.codec ? allreduce::bind_coded(spec, connection)
                                 : p.algorithm->bind(connection, spec, p.collective->collective_kind,
                                                     static_cast<std::uint32_t>(p.root));
    binding.works_on_device_memory = binding.collective->works_on_device_memory();
    if (p.buffers == BufferKind::registered) {
      const CollectiveBuffers buffers = all_buffers(p.buffers);
      const std::array both{buffers.device_in, buffers.device_out};
      binding.collective->register_buffers(std::span(both).first(needs_.out_of_place ? 2 : 1));
    }
    if (p.graph_launches > 0) {
      auto graphs = allreduce::capture_calls(std::move(binding.collective), *queue_,
                                             {.calls = p.calls, .launches = p.graph_launches});
      binding.collective = std::move(graphs.one);
      binding.graph_of_iteration = std::move(graphs.iteration);
    }
    for (auto* const c : {&binding.collective, &binding.graph_of_iteration}) {
      if (*c && faults_.concerns_calls())
        *c = std::make_unique<InjectedCollective>(std::move(*c), p.collective->collective_kind, faults_, queue_.get());
    }
    binding.collective = staged_for_device(std::move(binding.collective));
  } catch (const core::Unavailable& e) {
    mine = e.what();
  } catch (const core::BackendError& e) {
    if (!runtime::lost_gpu().empty()) throw;
    mine = e.what();
    has_failed = true;
  }
  // All ranks must agree, and some may have succeeded: scratch differs between ranks (a tree's leaf needs none).
  if (auto why = runtime::first_report(world(), mine).text; !why.empty())
    return {world().any(has_failed) ? core::Status::failed : core::Status::unsupported, std::move(why)};
  bound_.emplace(key_of(p), std::move(binding));
  return {};
}

std::vector<CollectiveSetup::BindOutcome> CollectiveSetup::bind(std::span<CollectivePoint* const> points) {
  std::vector<BindOutcome> bound;
  for (const auto* p : points) bound.push_back(bind_one(*p));
  return bound;
}

}  // namespace gradmeter::bench
