#include "bench/links/tournament.hpp"

#include <algorithm>

namespace gradmeter::bench {
namespace {

/// One rank stands still, the others sit on a circle of so many places, which turns by one place a round.
int circle_of(int ranks) { return ranks % 2 == 0 ? ranks - 1 : ranks; }

}  // namespace

int tournament_rounds(int ranks) { return ranks < 2 ? 0 : circle_of(ranks); }

int tournament_partner(int ranks, int round, int rank) {
  const int circle = circle_of(ranks);
  const bool even = ranks % 2 == 0;
  // Those on the circle meet when their places add up to the round; the place that meets itself meets the one that
  // stands still.
  if (even && rank == circle) {
    for (const int r : {round, round + circle}) {
      if (r % 2 == 0 && r / 2 < circle) return r / 2;
    }
  }
  const int other = ((round - rank) % circle + circle) % circle;
  if (other != rank) return other;
  return even ? circle : -1;
}

int tournament_pair(int ranks, int round, int rank) {
  const int circle = circle_of(ranks);
  const int partner = tournament_partner(ranks, round, rank);
  if (partner < 0 || partner == circle || rank == circle) return 0;
  // The two places lie as far before as after the one that meets itself.
  const int twice = ((rank - partner) % circle + circle) % circle;
  const int apart = twice % 2 == 0 ? twice / 2 : (circle - twice) / 2;
  return ranks % 2 == 0 ? apart : apart - 1;
}

}  // namespace gradmeter::bench
