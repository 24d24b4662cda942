// The least memory traffic of a rank in a collective, made by all ranks at once: the lower bound on one node.
#pragma once
#include <string>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::bench {

/// copy: reads so many elements and writes them. write: writes so many; what is read is the same for all ranks, or
/// little, and may come from a cache that they share. reduce: reads so many and writes a share of each rank's.
enum class Traffic : std::uint8_t { none, copy, write, reduce };
/// As the metric `limit` has it: "memcpy", "write", "reduce".
std::string_view name(Traffic);

struct LeastTraffic {
  Traffic kind = Traffic::none;
  std::size_t count = 0;  ///< elements
  bool operator==(const LeastTraffic&) const = default;
};

/// Of `rank`, for a collective on buffers of `count` elements:
///   all-reduce, send-receive   a copy: all inputs are read once, and a result of count is written on each rank
///   all-to-all                 a copy of what moves: in place the rank's own block does not
///   reduce-scatter             reads count (its block of every rank's input), writes a block
///   all-gather, broadcast      writes what it did not hold: out of place count; in place all but its own block, and a
///                              root nothing
/// One rank alone has nothing to do in place, and copies out of place.
LeastTraffic least_traffic(allreduce::CollectiveKind, std::size_t count, std::size_t ranks, bool in_place,
                           bool is_root);

/// Causes just that traffic, with the call's buffers, type and operation. `out` holds no useful result, but its floats
/// are normal numbers. In place, a copy goes from one half to the other and back.
class LeastWork final : public allreduce::Collective {
 public:
  LeastWork(LeastTraffic t, std::size_t ranks) : traffic_(t), name_(bench::name(t.kind)), sources_(ranks) {}
  const std::string& name() const override { return name_; }
  void start(const allreduce::Call&) override;
  bool advance() override { return true; }

 private:
  LeastTraffic traffic_;
  std::string name_;
  std::vector<const std::byte*> sources_;
};

}  // namespace gradmeter::bench
