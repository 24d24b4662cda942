// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/slices.hpp"

#include <algorithm>
#include <bit>

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t line_elements = 16;  // of fp32, in a cache line of 64 bytes

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// The most elements in a share of any block: `BlockCuts` makes parts at most two lines longer than equal ones.
constexpr std::size_t longest_share(std::size_t total, std::uint32_t blocks, std::size_t shares) {
  return divide_up(divide_up(total, blocks) + 2 * line_elements, shares) + 2 * line_elements;
}

}  // namespace

BlockCuts::BlockCuts(std::size_t n, std::uint32_t blocks, std::size_t grain) : n_(n), grain_(grain), blocks_(blocks) {
  const bool cuts_at_lines = n >= std::size_t{64} * blocks && n % blocks != 0;
  if (grain == 1 && cuts_at_lines) grain_ = line_elements;
  grains_ = divide_up(n, grain_);
  if (grains_ % blocks == 0) equal_ = grains_ / blocks;
}

SliceCut slice_cut_for(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::broadcast ? SliceCut::run
                                                                                 : SliceCut::share_of_each_block;
}

Extent Slice::extent(Blocks b) const {
  const std::size_t first = cuts.begin(b.first), last = cuts.begin(b.first + b.count);
  if (cut == SliceCut::run) return {begin + first, first, last - first};
  if (count == 1) return {first, first, last - first};
  const auto shares = static_cast<std::uint32_t>(count), share = static_cast<std::uint32_t>(number);
  const std::size_t from = block_begin(last - first, shares, share), to = block_begin(last - first, shares, share + 1);
  return {first + from, b.first * longest_share(total, blocks, count), to - from};
}

Slices::Slices(SliceCut cut, std::size_t elements, std::size_t element_bytes, std::uint32_t blocks,
               std::size_t message_bytes, bool whole, std::size_t grain)
    : cut_(cut),
      blocks_(blocks),
      total_(elements),
      grain_(grain),
      length_(elements),
      cuts_(elements, blocks, cut == SliceCut::run ? grain : 1) {
  if (whole || elements == 0) return;
  const std::size_t message_elements = std::max(message_bytes / element_bytes, line_elements);
  if (cut == SliceCut::share_of_each_block) {
    count_ = std::max<std::size_t>(1, divide_up(divide_up(elements, blocks), message_elements));
    return;
  }
  const std::size_t wanted = std::max<std::size_t>(1, divide_up(elements, message_elements * blocks));
  const std::size_t step = grain % line_elements == 0 ? grain : grain * line_elements;
  length_ = divide_up(divide_up(elements, wanted), step) * step;
  count_ = divide_up(elements, length_);
  cuts_ = BlockCuts(length_, blocks, grain);
}

Slice Slices::operator[](std::size_t number) const {
  Slice s{.cut = cut_,
          .blocks = blocks_,
          .total = total_,
          .number = number,
          .count = count_,
          .grain = grain_,
          .cuts = cuts_};
  if (cut_ == SliceCut::run) {
    s.begin = std::min(total_, number * length_);
    s.length = std::min(length_, total_ - s.begin);
    if (s.length < length_) s.cuts = BlockCuts(s.length, blocks_, grain_);
  }
  return s;
}

std::size_t Slices::scratch_elements() const {
  if (cut_ == SliceCut::run || count_ == 1) return count_ == 1 ? total_ : length_;
  return blocks_ * longest_share(total_, blocks_, count_);
}

int most_lanes(int ranks) {
  constexpr int least = 4, most = 16;
  return std::clamp(4 * static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1)), least, most);
}

std::size_t lanes_for(std::span<const SchedulePtr> schedules) {
  constexpr std::size_t least = 4;
  std::size_t rounds = 0;
  for (const auto& s : schedules) rounds += s->rounds();
  const auto most = static_cast<std::size_t>(most_lanes(static_cast<int>(schedules.front()->ranks())));
  return schedules.size() == 1 ? least : std::clamp(rounds, least, most);
}

std::size_t message_bytes_for(std::span<const SchedulePtr> schedules, std::size_t bytes, std::size_t message_bytes) {
  constexpr std::size_t least_bytes = std::size_t{128} << 10, slices_a_lane = 8;
  if (schedules.size() == 1) return message_bytes;
  return std::min(message_bytes, std::max(least_bytes, bytes / (slices_a_lane * lanes_for(schedules))));
}

std::uint64_t elements_sent(const Schedule& s, std::uint32_t rank, const Slice& slice) {
  std::uint64_t elements = 0;
  for_each_send(s, rank, [&](const Step& x) { elements += slice.extent(x.blocks).elements; });
  return elements;
}

std::uint64_t coded_bytes_sent(const Schedule& s, std::uint32_t rank, const Slice& slice,
                               const std::function<std::size_t(std::size_t)>& wire_bytes) {
  std::uint64_t bytes = 0;
  for_each_send(s, rank, [&](const Step& x) {
    for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
      bytes += wire_bytes(slice.extent({b, 1}).elements);
    }
  });
  return bytes;
}

std::vector<Turn> linearise(std::span<const SchedulePtr> schedules, std::size_t slices, std::size_t depth) {
  const auto rounds_of = [&](std::size_t slice) { return schedules[slice % schedules.size()]->rounds(); };
  // A wave has one round of each slice that is under way.
  std::vector<std::size_t> first, end;  // by slice: the wave of its first round, and the wave after its last
  std::size_t waves = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    first.push_back(std::max(i / schedules.size(), i < depth ? 0 : end[i - depth]));
    end.push_back(first[i] + rounds_of(i));
    waves = std::max(waves, end[i]);
  }
  std::vector<Turn> turns;
  for (std::size_t wave = 0, done = 0; wave < waves; ++wave) {
    for (std::size_t i = done; i < slices && first[i] <= wave; ++i) {
      if (wave < end[i]) turns.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(wave - first[i])});
    }
    while (done < slices && end[done] <= wave + 1) ++done;
  }
  return turns;
}

}  // namespace gradmeter::allreduce
