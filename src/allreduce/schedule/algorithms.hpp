// SPDX-License-Identifier: Apache-2.0
// Our algorithms: their rows of the registry, and schedules that are parts of several algorithms. p is the number of
// ranks, and n the size of the buffer. "Any p" means that an algorithm serves every number of ranks.
#pragma once
#include "allreduce/request.hpp"
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// The first half of `ring`. The buffer has p blocks, and rank r ends with the finished sum of block r.
/// Cost:   p-1 rounds; (p-1)/p of the buffer sent by each rank.
/// Source: Patarasuk & Yuan, JPDC 2009, section 3.
SchedulePtr ring_reduce_scatter(std::uint32_t ranks);
/// The second half of `ring`.
/// Cost:   p-1 rounds; (p-1)/p of the buffer sent by each rank.
SchedulePtr ring_all_gather(std::uint32_t ranks);
/// The bandwidth-optimal ring: a reduce-scatter round the ring, then an all-gather round it. Any p. Each element is
/// summed once, in one order, and copied: all ranks hold equal bits.
/// Cost:   2(p-1) rounds; 2(p-1)/p of the buffer sent by each rank.
SchedulePtr ring(std::uint32_t ranks);
/// Serves all-reduce, reduce-scatter and all-gather.
extern const AlgorithmInfo ring_row;

/// Every rank sends its whole buffer to the next rank and gets the buffer of the rank before. Serves send-receive; a
/// single rank keeps its buffer.
/// Cost:   1 round of one message by each rank; n sent by each.
/// Source: MPI_Sendrecv round a ring, as nccl-tests' sendrecv does it.
extern const AlgorithmInfo neighbour_row;

/// In every round a binomial broadcast doubles the number of ranks that have the whole buffer, which is one block. Any
/// p, any root.
/// Cost:   ceil(log2 p) rounds, though the longest chain of messages has floor(log2 p); p-1 messages; the root sends
///         ceil(log2 p) buffers.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
SchedulePtr binomial_broadcast(std::uint32_t ranks, std::uint32_t root);
/// In every round a binomial reduction halves the number of ranks that still hold a part of the sum. Any p; rank 0 ends
/// with the finished sum. The buffer is one block. Sums are in rank order, since each addition joins the values of two
/// neighbouring ranges of ranks. This schedule is a part of others: alone it completes no collective.
/// Cost:   ceil(log2 p) rounds; p-1 messages; every rank except rank 0 sends its buffer once.
SchedulePtr binomial_reduce(std::uint32_t ranks);
/// Serves all-reduce (reduction to rank 0, then broadcast) and broadcast.
extern const AlgorithmInfo binomial_tree_row;

/// Two in-order binary trees; half of the slices go through each. Serves all-reduce, by two schedules. Above a tree's
/// root stands one more rank, its top: values go up to it, where the sum is finished, and down again. In the first tree
/// the top is rank 0. The second tree is the first one mirrored (even p: its top is rank p-1) or shifted by one rank
/// (odd p: its top is rank 1), so that inner ranks of one tree are leaves of the other. Any p.
/// Cost:   2·ceil(log2 p) rounds; 2(p-1) messages a tree. A tree carries half of the buffer; an inner rank sends this
/// half three times at most, a leaf once, so no rank sends more than 2 buffers (p = 3: 1.5; p = 2: 1).
/// Source: Sanders, Speck, Traeff, Parallel Computing 2009.
extern const AlgorithmInfo double_tree_row;

/// The butterfly exchange on which rabenseifner, bcube and direct are built: an all-reduce, a reduce-scatter or an
/// all-gather. Ranks are written as numbers of `levels` digits in `base`. On each level, all ranks that differ only in
/// that level's digit exchange with each other.
SchedulePtr butterfly(CollectiveKind, std::uint32_t base, std::uint32_t levels);
StatedCost butterfly_cost(CollectiveKind, std::uint32_t base, std::uint32_t levels);

/// Rabenseifner's all-reduce: recursive halving, then recursive doubling; few rounds and few bytes. Serves all-reduce
/// for any p. Let q be the largest power of two up to p. Then p-q ranks fold: each gives its buffer to a neighbour
/// before the exchange, takes no part in it, and gets the result from this neighbour at the end. Serves reduce-scatter
/// and all-gather for powers of two. Each element is summed once and copied, so bits are equal on all ranks.
/// Cost: 2·log2 q rounds (two more when p > q); a folded rank sends n, any other rank 2n(q-1)/q, and n more to a
/// neighbour that has folded into it.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
extern const AlgorithmInfo rabenseifner_row;

/// Recursive doubling: partners at distance 1, 2, 4 … exchange whole buffers: few rounds, many bytes. Any p;
/// if p is no power of two, ranks fold as in rabenseifner. Bits are equal on all ranks because a two-operand sum is the
/// same from both sides.
/// Cost:   log2 q rounds (two more when p > q); a folded rank sends one buffer, any other rank log2 q, and one more to
///         a neighbour that has folded into it.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
SchedulePtr recursive_doubling(std::uint32_t ranks);
extern const AlgorithmInfo recursive_doubling_row;

/// The all-reduce of gloo: it writes ranks as numbers in a base and makes one exchange for each digit. Serves
/// all-reduce, reduce-scatter and all-gather. Its parameter `base` is 2 or more. Where p is no power of the base, it
/// runs as `direct`, as gloo does.
/// Cost:   p = base^k: 2k rounds of base-1 messages by each rank; 2n(p-1)/p sent by each. Else the cost of direct.
/// Source: Facebook's gloo, gloo/allreduce.cc (allreduceAlgorithm bcube).
extern const AlgorithmInfo bcube_row;

/// Swing: recursive halving whose partners lie left and right in turn, near each other on a ring or torus. Serves
/// all-reduce for powers of two. In round s rank r exchanges with r ± (1 - (-2)^(s+1)) / 3, plus for even ranks, minus
/// for odd ones: distances 1, 1, 3, 5, 11 … instead of 1, 2, 4, 8, 16.
/// Blocks are numbered such that each message is one run of consecutive blocks. That is possible because, from
/// round s on, ranks exchange within disjoint sets (see butterfly.cpp).
/// Cost:   2·log2 p rounds of one message by each rank; 2n(p-1)/p sent by each.
/// Source: De Sensi, Bonato, Saam, Hoefler, NSDI 2024 (arXiv:2401.09356).
extern const AlgorithmInfo swing_row;

/// Direct exchange: every rank sends to every other, in as few rounds as possible. Serves all-reduce (every rank sends
/// each block to its owner, which adds up all p parts at once, in rank order; then all-gather), each of these two
/// phases alone (reduce-scatter, all-gather), broadcast (the root to all) and all-to-all. Any p.
/// Cost:   2 rounds of p-1 messages by each rank, 2n(p-1)/p sent by each; a single phase, like an all-to-all, takes
/// half of the rounds and bytes; a broadcast takes 1 round, n(p-1) sent by the root. Receivers get p-1 messages at once
/// (incast).
/// Source: Markov et al., CGX, Middleware 2022 (scatter-reduce-allgather, SRA).
extern const AlgorithmInfo direct_row;

/// One shot: every rank sends its whole buffer to every other, and adds up all buffers. There is one round for any
/// number of ranks: the least latency, the most bytes of all. With a codec, contributions are encoded once, and sums
/// are not encoded. Cost: 1 round of p-1 messages by each rank; n(p-1) sent by each; p·n added up by each. Source:
/// "one-shot" in TensorRT-LLM's custom all-reduce; Chan et al., 2007, section 4 (all-gather, then local sum).
extern const AlgorithmInfo one_shot_row;

/// All-to-all by swaps between pairs: a rank exchanges with one other at a time. In round k ranks a and b with a + b =
/// k (mod p) swap the blocks that each has for the other. The block received takes the memory of the block sent, so the
/// exchange also works in place, for any p.
/// Cost:   p rounds (p = 2: 1), in one of which a rank rests; n(p-1)/p sent by each rank.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4 (pairwise exchange, there with r XOR k).
extern const AlgorithmInfo pairwise_row;

/// Lane decomposition, in which every rank of a node sends to other nodes: a reduce-scatter inside each node, an
/// all-reduce of n/g between nodes, an all-gather inside each node. Serves all-reduce over nodes of g ranks each. On
/// one node, or with one rank per node, it is a ring.
/// Cost:   2(g + p/g - 2) rounds; 2n(p-1)/p sent by each rank, 2n(m-1)/(m·g) of it between the m nodes.
/// Source: Traeff and Hunold, CLUSTER 2020 (lane decomposition); UCC's split rail.
extern const AlgorithmInfo hierarchical_lane_row;

/// Rings along the rows and columns of a torus. Serves all-reduce on rows × columns = p ranks; rank r is in row r /
/// columns. Parameter rows: the number of rows; by convention 0 takes the most nearly square torus with both sides
/// above 1, and a p without such a torus (1 and primes) is refused.
/// Cost:   2(rows + columns - 2) rounds; 2n(p-1)/p sent by each rank.
/// Source: Mikami et al., arXiv:1811.05233 (2D-torus all-reduce); Ying et al., arXiv:1811.06992 (TPU pods).
extern const AlgorithmInfo torus2d_row;

/// Each node's first rank is its leader: a reduction to the leader, a ring between leaders, a broadcast inside each
/// node. Serves all-reduce over m nodes of g ranks each. Reduction and broadcast use binomial trees. On one node it
/// consists of these trees alone; with one rank per node it is a ring.
/// Cost:   2(m-1) rounds between nodes. Inside a node the reduction takes ceil(log2 g) rounds, and the broadcast
/// floor(log2 g), which is its longest chain of messages. 2m(m-1) + 2m(g-1) messages; a leader sends
/// 2n(m-1)/m between nodes and n·ceil(log2 g) inside.
/// Source: Luo et al., HAN, CLUSTER 2020 (Open MPI).
extern const AlgorithmInfo hierarchical_leader_row;

}  // namespace gradmeter::allreduce
