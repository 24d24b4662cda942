// Stochastic gradient push: instead of an average over all ranks, each step has one message to one peer.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Each rank holds a numerator x and a weight (push-sum). A step takes the gradient at z = x / weight, applies it to x,
/// sends half of (x, weight) to one peer, keeps the other half and adds what another rank sent it. The weight travels
/// behind x in the same message. graph=exponential: at step t (from 0) to rank + 2^(t mod ceil(log2 P)); graph=ring:
/// always to rank + 1; graph=random: to any other rank, drawn anew for each step and rank, so that some receive nothing
/// and some several messages: here weights differ. overlap=1: what was sent in a step is received in the next, under
/// its computation (the paper's OSGP with a delay of 1).
/// Bytes: M + 64 sent by each rank in each step. Memory: 2M, with graph=random 3M. Time: with graph=random O(P) a step
/// to draw everybody's peers.
/// The evaluation weights: the mean of all x, each with the messages on their way to it, to which all z converge.
/// (Weights are 1 on average; where they differ, the mean of z is another.)
/// Source: Assran et al., "Stochastic gradient push for distributed deep learning", ICML 2019, algorithm 1; random:
/// Kempe, Dobra and Gehrke, "Gossip-based computation of aggregate information", FOCS 2003.
std::unique_ptr<Strategy> make_gossip(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
