#include "bench/collectives/traffic.hpp"

#include <array>
#include <cstring>

#include "allreduce/reduce.hpp"

namespace gradmeter::bench {
namespace {

using allreduce::CollectiveKind;

void copy(const std::byte* in, std::byte* out, std::size_t bytes) {
  if (in != out) {
    std::memcpy(out, in, bytes);
    return;
  }
  const std::size_t half = bytes / 2;
  std::memcpy(out + half, in, half);
  std::memcpy(out, in + half, half);
}

}  // namespace

std::string_view name(Traffic t) {
  constexpr std::array<std::string_view, 4> names{"none", "memcpy", "write", "reduce"};
  return names[static_cast<std::size_t>(t)];
}

LeastTraffic least_traffic(CollectiveKind collective_kind, std::size_t count, std::size_t ranks, bool in_place,
                           bool is_root) {
  const std::size_t others = count - count / ranks;
  const LeastTraffic whole{Traffic::copy, count};
  if (count == 0 || (ranks == 1 && in_place)) return {};
  if (ranks == 1) return whole;
  switch (collective_kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::send_receive:
      return whole;
    case CollectiveKind::all_to_all:
      return in_place ? LeastTraffic{Traffic::copy, others} : whole;
    case CollectiveKind::reduce_scatter:
      return count < ranks ? LeastTraffic{} : LeastTraffic{Traffic::reduce, count};
    case CollectiveKind::all_gather:
      return {Traffic::write, in_place ? others : count};
    case CollectiveKind::broadcast:
      break;
  }
  return in_place && is_root ? LeastTraffic{} : LeastTraffic{Traffic::write, count};
}

void LeastWork::start(const allreduce::Call& call) {
  constexpr int normal_number = 0x3f;  // in every byte: a normal number in every float
  const std::size_t width = core::size_of(call.element()), bytes = traffic_.count * width;
  switch (traffic_.kind) {
    case Traffic::none:
      return;
    case Traffic::copy:
      return copy(call.in.host(), call.out.host(), bytes);
    case Traffic::write:
      std::memset(call.out.host(), normal_number, bytes);
      return;
    case Traffic::reduce:
      break;
  }
  const std::size_t block = traffic_.count / sources_.size();
  for (std::size_t b = 0; b < sources_.size(); ++b) sources_[b] = call.in.host() + b * block * width;
  allreduce::reduce(call.element(), call.accumulates_in(), call.op, call.out.host(), sources_, block);
}

}  // namespace gradmeter::bench
