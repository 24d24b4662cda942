// SPDX-License-Identifier: Apache-2.0
// The kernels that read their peers' memory, launched for all ranks at once on windows of one emulated device: in every
// number of ranks, in lengths that leave packs, and parts of packs, behind what a thread takes at once.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "allreduce/gpu/peer_kernels.hpp"
#include "allreduce/reduce.hpp"
#include "core/element.hpp"
#include "core/random.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"

#ifdef GRADMETER_CUDA_EMULATED
#include "support/cuda_emulator/emulator.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Element;
using test::on_device;
using test::read_back;
using Bytes = std::vector<std::byte>;

struct PeersCase {
  unsigned ranks;
  Element element = Element::f32;
  Op op = Op::sum;
  std::size_t count = 0;
  bool is_wide = false;   ///< small floats are summed in fp32
  std::size_t shift = 0;  ///< elements by which in- and output are off 16 bytes
  unsigned blocks = 1;
};

std::string text(const PeersCase& c) {
  return std::to_string(c.count) + " of " + std::string(core::info(c.element).name) + " on " + std::to_string(c.ranks) +
         " ranks, shift " + std::to_string(c.shift) + ", operation " + std::to_string(static_cast<int>(c.op));
}

Bytes given(const PeersCase& c, unsigned rank, unsigned call) {
  const core::Random random(5, 100 * call + rank);
  Bytes b(c.count * core::size_of(c.element));
  for (std::size_t i = 0; i < c.count; ++i)
    core::store(c.element, b.data() + i * core::size_of(c.element), static_cast<double>(random.below(i, 15)) - 6);
  return b;
}

using Launch = void (*)(Element, Element, Op, const cuda::PeerArguments&, const std::byte*, std::byte*, std::size_t,
                        cudaStream_t);

/// What each rank has after the second of two calls, which use the slots in turn.
std::vector<Bytes> results(const PeersCase& c, Launch launch) {
  const cuda_emulator::SharedDevice stands_for_all;
  const std::size_t size = core::size_of(c.element), bytes = c.count * size, skipped = c.shift * size;
  const cuda::PeerWindow window{.room = (bytes + 15) / 16 * 16, .places = 3};
  const Element accumulate = c.is_wide ? Element::f32 : c.element;
  std::vector<runtime::Stream> streams(c.ranks);
  std::vector<runtime::DeviceBuffer<std::byte>> windows, signals, in, out;
  for (unsigned r = 0; r < c.ranks; ++r) {
    windows.push_back(on_device<std::byte>(Bytes(window.bytes()), streams[r]));
    signals.push_back(on_device<std::byte>(Bytes(sizeof(cuda::PeerSignals)), streams[r]));
    in.push_back(on_device<std::byte>(Bytes(skipped + bytes + 1), streams[r]));
    out.push_back(on_device<std::byte>(Bytes(skipped + bytes + 1, std::byte{0xa5}), streams[r]));
  }
  for (const auto& s : streams) s.synchronize();
  for (unsigned call = 0; call < 2; ++call) {
    for (unsigned r = 0; r < c.ranks; ++r) {
      Bytes shifted(skipped);
      const Bytes values = given(c, r, call);
      shifted.insert(shifted.end(), values.begin(), values.end());
      shifted.push_back({});
      auto next = on_device<std::byte>(shifted, streams[r]);
      streams[r].synchronize();  // what it replaces is freed, for which no stream may have work
      in[r] = std::move(next);
    }
    for (const auto& s : streams) s.synchronize();
    for (unsigned r = 0; r < c.ranks; ++r) {
      cuda::PeerArguments peers{.windows = {},
                                .ranks = c.ranks,
                                .rank = r,
                                .window = window,
                                .most_thread_blocks = c.blocks,
                                .barriers_per_call = 2,
                                .signals = reinterpret_cast<cuda::PeerSignals*>(signals[r].span().device_address()),
                                .limit_ns = 60'000'000'000};
      for (unsigned k = 0; k < c.ranks; ++k) peers.windows[k] = windows[k].span().device_address();
      launch(c.element, accumulate, c.op, peers, in[r].span().device_address() + skipped,
             out[r].span().device_address() + skipped, c.count, streams[r].get());
    }
    for (const auto& s : streams) s.synchronize();
  }
  std::vector<Bytes> all;
  for (unsigned r = 0; r < c.ranks; ++r) {
    const Bytes whole = read_back<std::byte>(out[r].span(), streams[r]);
    for (std::size_t i = 0; i < skipped; ++i) EXPECT_EQ(whole[i], std::byte{0xa5}) << text(c);
    EXPECT_EQ(whole.back(), std::byte{0xa5}) << text(c);
    all.emplace_back(whole.begin() + static_cast<std::ptrdiff_t>(skipped), whole.end() - 1);
  }
  return all;
}

void expect_peers_sum_in_order(const PeersCase& c) {
  std::vector<Bytes> all;
  std::vector<const std::byte*> sources;
  for (unsigned r = 0; r < c.ranks; ++r) all.push_back(given(c, r, 1));
  for (const Bytes& b : all) sources.push_back(b.data());
  Bytes right = all.front();
  if (c.ranks > 1) reduce(c.element, c.is_wide ? Element::f32 : c.element, c.op, right.data(), sources, c.count);
  finish(c.element, c.op, right.data(), right.data(), c.count, static_cast<int>(c.ranks));
  for (const Launch launch : {cuda::reduce_peers_at_once, cuda::reduce_peers_by_blocks}) {
    const auto found = results(c, launch);
    for (unsigned r = 0; r < c.ranks; ++r)
      EXPECT_TRUE(found[r] == right) << text(c) << ", rank " << r
                                     << (launch == cuda::reduce_peers_at_once ? "" : ", by blocks");
  }
}

/// 512 threads of a block take 4 packs of 16 bytes at once: 8192 floats of each rank's block.
TEST(PeerKernels, SumInRankOrderOnEveryNumberOfRanks) {
  test::each_device_seed([] {
    for (unsigned ranks = 1; ranks <= 9; ++ranks)
      for (const std::size_t count : {std::size_t{7}, std::size_t{8195} * ranks + 1})
        expect_peers_sum_in_order({.ranks = ranks, .op = Op::average, .count = count});
  });
}

TEST(PeerKernels, HaveEveryTypeAndOperation) {
  for (const Element e : {Element::f64, Element::i64, Element::i32, Element::i8, Element::f16, Element::bf16,
                          Element::e4m3, Element::e5m2})
    for (const bool is_wide : {false, true}) {
      if (is_wide && !core::is_small_float(e)) continue;
      const std::size_t count = 3 * (4 * 512 * 16 / core::size_of(e)) + 129;
      expect_peers_sum_in_order({.ranks = 3, .element = e, .count = count, .is_wide = is_wide});
      expect_peers_sum_in_order({.ranks = 5, .element = e, .op = Op::max, .count = 1001, .is_wide = is_wide});
      expect_peers_sum_in_order({.ranks = 2, .element = e, .op = Op::product, .count = 1000, .is_wide = is_wide});
    }
}

/// Addresses off 16 bytes are copied by elements, and blocks of the grid share what they copy.
TEST(PeerKernels, TakeBuffersThatAreHardlyAligned) {
  for (const unsigned ranks : {2U, 4U, 9U})
    for (const std::size_t shift : {1U, 3U})
      expect_peers_sum_in_order({.ranks = ranks, .count = std::size_t{8200} * ranks + 3, .shift = shift, .blocks = 2});
  expect_peers_sum_in_order({.ranks = 4, .element = Element::bf16, .count = 70'001, .is_wide = true, .shift = 5});
}

}  // namespace
}  // namespace gradmeter::allreduce
#endif
