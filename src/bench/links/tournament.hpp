// Every pair of ranks once, in rounds of disjoint pairs: the round-robin tournament (circle method).
#pragma once

namespace gradmeter::bench {

/// Rounds in which each of `ranks` meets every other once: ranks - 1, or ranks where their number is odd.
int tournament_rounds(int ranks);

/// Whom `rank` meets in a round, or -1 where it sits out (odd numbers only). Symmetric; over all rounds every other
/// rank once. Cost: O(1).
/// Source: Kirkman 1847; de Werra, "Scheduling in sports", 1981.
int tournament_partner(int ranks, int round, int rank);

/// The number of a rank's pair among the pairs of a round, from 0; equal for both ranks of the pair.
int tournament_pair(int ranks, int round, int rank);

}  // namespace gradmeter::bench
