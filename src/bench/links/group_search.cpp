// SPDX-License-Identifier: Apache-2.0
#include "bench/links/group_search.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/error.hpp"

namespace gradmeter::bench {
namespace {

/// Below this number of first groups, the shortest counts as usual; from it on one may be short by chance.
constexpr std::size_t few_groups = 8;

class GroupSearch {
 public:
  GroupSearch(const GroupSearchOptions& o, const MeasureGroups& measure) : options_(o), measure_(measure) {}

  GroupSearchResult run(std::vector<NodeGroup> groups) {
    auto suspects = suspects_of(groups);
    // Groups are too large for so many slow nodes where most groups are slow.
    while ((2 * suspects.size() > groups.size() || is_usual_unsure_) && groups.front().size() >= 4) {
      groups = halves_of(groups);
      known_.clear();
      suspects = suspects_of(groups);
    }
    suspects = confirmed(suspects);
    while (!suspects.empty()) suspects = halve(std::move(suspects));
    std::sort(result_.slow.begin(), result_.slow.end());
    return result_;
  }

 private:
  bool is_slow(double seconds) const { return seconds > options_.slow_ratio * result_.usual_s; }

  /// The groups that are slow; the others' nodes are known from now on.
  std::vector<NodeGroup> slow_of(const std::vector<NodeGroup>& groups, const std::vector<double>& times) {
    std::vector<NodeGroup> out;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (is_slow(times[i])) {
        out.push_back(groups[i]);
      } else {
        known_.insert(known_.end(), groups[i].begin(), groups[i].end());
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

  /// Both halves of every group; what is alone and slow is found.
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

  /// One of two halves must be slow.
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
      if (!is_slow(second[i]) && !is_slow(second[i + 1])) ++result_.lost;
    }
  }

  /// Measures as many at once as there are companions for.
  std::vector<double> measured(const std::vector<NodeGroup>& groups) {
    std::vector<double> out;
    for (std::size_t first = 0; first < groups.size();) {
      std::vector<NodeGroup> now;
      std::size_t companions = 0;
      for (std::size_t i = first; i < groups.size(); ++i) {
        if (groups[i].size() == 1 && companions == known_.size()) break;
        now.push_back(groups[i]);
        if (groups[i].size() == 1) now.back().push_back(known_[(used_ + companions++) % known_.size()]);
      }
      used_ += companions;  // another companion the next time: one of them may be slow after all
      const auto times = measure_(now);
      out.insert(out.end(), times.begin(), times.end());
      first += now.size();
      result_.tests += now.size();
      ++result_.rounds;
    }
    return out;
  }

  const GroupSearchOptions& options_;
  const MeasureGroups& measure_;
  std::vector<int> known_;  ///< nodes of groups that were not slow
  std::size_t used_ = 0;
  bool is_usual_unsure_ = false;  ///< a single group is shorter than all others
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
