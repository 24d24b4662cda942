// SPDX-License-Identifier: Apache-2.0
// A collective on GPUs beside one of the host's memory, between the same ranks: equal bits.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/slices.hpp"
#include "allreduce/test_data.hpp"
#include "runtime/transport/network.hpp"
#include "support/collectives.hpp"
#include "support/gpu_ranks.hpp"
#include "support/run_to_end.hpp"

namespace gradmeter::test {

struct GpuAndHostOptions {
  std::string on_gpus, on_host;  ///< algorithms
  allreduce::CollectiveKind kind;
  allreduce::Placement placement;
  std::uint32_t root = 0;
  std::size_t max_bytes = 0;
  std::size_t message_bytes = 0;  ///< of schedules, on both
  runtime::TransportKind transport = runtime::TransportKind::shm;
  /// What GPUs send messages by, made of the host's; null: the same.
  std::unique_ptr<runtime::Transport> (*over)(runtime::Transport&) = nullptr;
};

class GpuAndHost {
 public:
  GpuAndHost(const GpuRank& r, const GpuAndHostOptions& o)
      : rank_(r),
        placement_(o.placement),
        network_(r.world, {.transport = o.transport, .memory_bytes = 6 * o.max_bytes + (8 << 20)}),
        link_(network_.connect(r.world, allreduce::most_lanes(r.world.size()))),
        memory_(network_.arena().take(2 * o.max_bytes)),
        pinned_(r.device.pin(network_.arena().memory())),
        in_(r.device.allocate_beside(core::Element::i8, network_.arena().take(o.max_bytes))),
        out_(r.device.allocate_beside(core::Element::i8, network_.arena().take(o.max_bytes))),
        over_(o.over ? o.over(*link_) : nullptr) {
    const allreduce::GroupConnection connection{r.world, network_, *link_};
    allreduce::ExchangeSpec e{.placement = o.placement, .max_bytes = o.max_bytes, .message_bytes = o.message_bytes};
    on_host_ = allreduce::find_algorithm(o.on_host)->bind(connection, e, o.kind, o.root);
    e.queue = &r.queue;
    on_gpus_ =
        allreduce::find_algorithm(o.on_gpus)->bind({r.world, network_, over_ ? *over_ : *link_}, e, o.kind, o.root);
    r.world.barrier();
  }

  /// Empty: right on this rank.
  std::string fault(const CollectiveCase& c) {
    const auto rank = static_cast<std::size_t>(rank_.world.rank());
    const auto of_host = run_known(*on_host_, c, rank, memory_, {20, 0});
    rank_.world.barrier();
    if (!of_host.fault.empty()) return "on the host: " + of_host.fault;
    const std::size_t bytes = c.known.count * core::size_of(c.known.data.element);
    const bool in_place = placement_ == allreduce::Placement::in_place;
    const std::span<const std::byte> right(memory_.data() + (in_place ? 0 : (bytes + 63) / 64 * 64), bytes);
    std::vector<std::byte> got;
    if (run_on_gpus(c, rank, got)) return describe(c) + ": the input was changed";
    if (check(c.known, rank, got).wrong > 0) return describe(c) + ": wrong";
    if (!same_bits(c.known, rank, got, right)) return describe(c) + ": other bits than the host's";
    if (!on_gpus_->sent()) return {};
    if (on_gpus_->sent()->bytes != on_gpus_->bytes_required()) return describe(c) + ": other bytes than due";
    if (on_gpus_->sent()->bytes != on_host_->sent()->bytes) return describe(c) + ": other bytes than the host's";
    return {};
  }

 private:
  /// Was the input changed that is not the result?
  bool run_on_gpus(const CollectiveCase& c, std::size_t rank, std::vector<std::byte>& got) {
    const std::size_t bytes = c.known.count * core::size_of(c.known.data.element);
    const auto typed = [&](const runtime::OwnedBuffer& b) {
      return runtime::Buffer(c.known.data.element, b.buffer.part(0, bytes).device());
    };
    const bool in_place = placement_ == allreduce::Placement::in_place;
    const runtime::Buffer in = typed(in_), out = in_place ? in : typed(out_);
    std::uint64_t before = 0, after = 0;
    const auto bytes_of = [](const runtime::Buffer& b) { return std::span(b.host(), b.bytes()); };
    rank_.queue.submit("give", {}, [&] {
      write_input(c.known, rank, bytes_of(in));
      before = allreduce::hash_of(bytes_of(in));
    });
    on_gpus_->start({.in = in, .out = out, .op = c.known.data.op});
    run_to_end(*on_gpus_);
    // On another queue: `advance` has said that the result is there.
    rank_.device.make_queue()->run_and_wait([&] {
      const auto result = bytes_of(out);
      got.assign(result.begin(), result.end());
      after = allreduce::hash_of(bytes_of(in));
    });
    return !in_place && before != after;
  }

  /// Of what this rank holds at the end.
  static bool same_bits(const allreduce::KnownCollective& k, std::size_t rank, std::span<const std::byte> a,
                        std::span<const std::byte> b) {
    const auto ranks = static_cast<std::uint32_t>(k.data.ranks), r = static_cast<std::uint32_t>(rank);
    const bool all = k.collective_kind != allreduce::CollectiveKind::reduce_scatter;
    const std::size_t width = core::size_of(k.data.element);
    const std::size_t first = all ? 0 : width * allreduce::block_begin(k.count, ranks, r);
    const std::size_t end = all ? a.size() : width * allreduce::block_begin(k.count, ranks, r + 1);
    return std::ranges::equal(a.subspan(first, end - first), b.subspan(first, end - first));
  }

  const GpuRank& rank_;
  allreduce::Placement placement_;
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> link_;
  std::span<std::byte> memory_;
  std::shared_ptr<void> pinned_;
  runtime::OwnedBuffer in_, out_;  ///< on the GPU
  std::unique_ptr<runtime::Transport> over_;
  std::unique_ptr<allreduce::Collective> on_host_, on_gpus_;
};

inline CollectiveCase random_case(allreduce::CollectiveKind kind, std::size_t ranks, allreduce::Placement placement,
                                  std::size_t root, TypeAndOp type, std::size_t count) {
  const bool random = type.element == core::Element::f32;
  const allreduce::KnownData data{.pattern = random ? allreduce::Pattern::random : allreduce::Pattern::exact,
                                  .element = type.element,
                                  .op = type.op,
                                  .ranks = ranks,
                                  .seed = 3 * count + ranks};
  return {{kind, data, count, root}, placement, false};
}

}  // namespace gradmeter::test
