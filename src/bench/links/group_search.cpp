// SPDX-License-Identifier: Apache-2.0
#include "bench/links/group_search.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/error.hpp"

namespace gradmeter::bench {
namespace {

/// With fewer first groups than this, the shortest time is the usual one. With so many or more it is the second
/// shortest, since the shortest may be short by chance.
constexpr std::size_t few_groups = 8;

class GroupSearch {
 public:
  GroupSearch(const GroupSearchOptions& o, const MeasureGroups& measure) : options_(o), measure_(measure) {}

  GroupSearchResult run(std::vector<NodeGroup> groups) {
    auto suspects = suspects_of(groups);
    // If most groups are slow, they are too large for so many slow nodes.
    while ((2 * suspects.size() > groups.size() || is_usual_unsure_) &&
           std::ranges::any_of(groups, can_be_two_groups)) {
      groups = split_large(groups);
      fast_nodes_.clear();
      suspects = suspects_of(groups);
    }
    suspects = confirmed(suspects);
    while (!suspects.empty()) suspects = halve(std::move(suspects));
    std::sort(result_.slow.begin(), result_.slow.end());
    return result_;
  }

 private:
  bool is_slow(double seconds) const { return seconds > options_.slow_ratio * result_.usual_s; }

  /// Returns the slow groups. The nodes of the other groups may be partners of single nodes from now on.
  std::vector<NodeGroup> slow_of(const std::vector<NodeGroup>& groups, const std::vector<double>& times) {
    std::vector<NodeGroup> out;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (is_slow(times[i])) {
        out.push_back(groups[i]);
      } else {
        fast_nodes_.insert(fast_nodes_.end(), groups[i].begin(), groups[i].end());
      }
    }
    return out;
  }

  std::vector<NodeGroup> suspects_of(const std::vector<NodeGroup>& groups) {
    const auto times = measured(groups);
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    result_.usual_s = sorted[sorted.size() >= few_groups ? 1 : 0];
    is_usual_unsure_ = is_slow(sorted[1]) || result_.usual_s > options_.slow_ratio * sorted[0];
    return slow_of(groups, times);
  }

  /// The halves of a group are groups themselves, with two nodes or more.
  static bool can_be_two_groups(const NodeGroup& g) { return g.size() >= 4; }

  /// Halves the groups whose halves have two nodes or more. Smaller groups stay whole, since a single node needs a fast
  /// node as its partner, and none is known yet.
  static std::vector<NodeGroup> split_large(const std::vector<NodeGroup>& groups) {
    std::vector<NodeGroup> out;
    for (const NodeGroup& g : groups) {
      const auto parts = can_be_two_groups(g) ? halves_of({g}) : std::vector<NodeGroup>{g};
      out.insert(out.end(), parts.begin(), parts.end());
    }
    return out;
  }

  static std::vector<NodeGroup> halves_of(const std::vector<NodeGroup>& groups) {
    std::vector<NodeGroup> halves;
    for (const NodeGroup& g : groups) {
      const auto middle = g.begin() + static_cast<std::ptrdiff_t>((g.size() + 1) / 2);
      halves.emplace_back(g.begin(), middle);
      halves.emplace_back(middle, g.end());
    }
    return halves;
  }

  std::vector<NodeGroup> confirmed(const std::vector<NodeGroup>& suspects) {
    return slow_of(suspects, measured(suspects));
  }

  /// Halves every group, and returns the halves that are slow. A group of a single node is a slow node that is found.
  std::vector<NodeGroup> halve(std::vector<NodeGroup> suspects) {
    std::erase_if(suspects, [this](const NodeGroup& g) {
      if (g.size() == 1) result_.slow.push_back(g.front());
      return g.size() == 1;
    });
    const auto halves = halves_of(suspects);
    auto times = measured(halves);
    measure_contradictions_again(halves, times);
    return confirmed(slow_of(halves, times));
  }

  /// Measures both halves of a group again if neither was slow, since the group was. If still neither is, it counts as
  /// lost.
  void measure_contradictions_again(const std::vector<NodeGroup>& halves, std::vector<double>& times) {
    std::vector<NodeGroup> again;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < halves.size(); i += 2) {
      if (is_slow(times[i]) || is_slow(times[i + 1])) continue;
      for (const std::size_t half : {i, i + 1}) {
        again.push_back(halves[half]);
        places.push_back(half);
      }
    }
    const auto second = measured(again);
    for (std::size_t i = 0; i < places.size(); i += 2) {
      times[places[i]] = second[i];
      times[places[i + 1]] = second[i + 1];
      if (!is_slow(second[i]) && !is_slow(second[i + 1])) ++result_.disturbed_groups;
    }
  }

  /// The times of the groups [s]. A single node is measured with a fast node as its partner; as many groups are
  /// measured at once as there are partners for.
  std::vector<double> measured(const std::vector<NodeGroup>& groups) {
    std::vector<double> out;
    for (std::size_t first = 0; first < groups.size();) {
      std::vector<NodeGroup> round_groups;
      std::size_t partners = 0;
      for (std::size_t i = first; i < groups.size(); ++i) {
        if (groups[i].size() == 1 && partners == fast_nodes_.size()) break;
        round_groups.push_back(groups[i]);
        if (groups[i].size() == 1)
          round_groups.back().push_back(fast_nodes_[(partners_used_ + partners++) % fast_nodes_.size()]);
      }
      partners_used_ += partners;  // other partners the next time, since one of these may be slow after all
      const auto times = measure_(round_groups);
      out.insert(out.end(), times.begin(), times.end());
      first += round_groups.size();
      result_.tests += round_groups.size();
      ++result_.rounds;
    }
    return out;
  }

  const GroupSearchOptions& options_;
  const MeasureGroups& measure_;
  std::vector<int> fast_nodes_;    ///< nodes of groups that were not slow
  std::size_t partners_used_ = 0;  ///< number of partners used so far
  bool is_usual_unsure_ = false;   ///< one group is faster than all others by more than slow_ratio
  GroupSearchResult result_;
};

}  // namespace

GroupSearchResult find_slow_nodes(int nodes, const GroupSearchOptions& o, unsigned seed, const MeasureGroups& measure) {
  if (nodes < 4) {
    throw core::UsageError(
        "a search by groups compares groups of two: it needs four ranks; measure every pair instead");
  }
  std::vector<int> order(static_cast<std::size_t>(nodes));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 draw(seed);
  std::shuffle(order.begin(), order.end(), draw);
  const int wanted = o.first_groups > 0 ? o.first_groups : 16;
  const auto count = static_cast<std::size_t>(std::clamp(wanted, 1, nodes / 2));
  std::vector<NodeGroup> groups(count);
  for (std::size_t i = 0; i < order.size(); ++i) groups[i % count].push_back(order[i]);
  return GroupSearch(o, measure).run(std::move(groups));
}

}  // namespace gradmeter::bench
