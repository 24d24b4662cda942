// SPDX-License-Identifier: Apache-2.0
// How the gradients of each codec are exchanged, where the executor alone cannot do it.
#pragma once
#include "allreduce/coded/coded.hpp"

namespace gradmeter::allreduce {

/// All-gather of encoded tensors: every rank decodes all contributions and adds them in rank order, so each is encoded
/// once for any number of ranks. It sends less than a sum of fp32 with fewer ranks than 64 / (wire bits of an element).
///
/// All tensors of a call are gathered at once, by the algorithm's own all-gather, or by a ring where the algorithm is a
/// selection. Where lengths depend on the data, they are gathered first, and all ranks send as many bytes of a tensor
/// as the longest encoding has.
/// Where a sparse codec's ranks together would send more than a sum of fp32 (ranks × density at least 1), each rank
/// decodes its own tensor, and these are summed dense. Cost: (p-1)·wire_bytes sent by each rank; p·n decoded by each.
extern const CodedExchange gathered_exchange;

/// True where the lengths of encodings are known beforehand, so that a GPU's exchange need not wait for the host. It is
/// false for DGC, which keeps momentum on the host, and where decoded tensors are summed as fp32.
bool gathers_on_gpu(const ExchangeSpec&);

/// As gathered_exchange, but encoded and decoded by kernels in the stream of a GPU's queue, with the same bits, for
/// codecs whose lengths are known beforehand. `gatherer` gathers. `slots`, from the network's arena, holds all ranks'
/// encodings of a call. Cost: as gathered_exchange.
std::unique_ptr<Collective> gather_on_gpu(const ExchangeSpec&, const Site&, const AlgorithmChoice& gatherer,
                                          std::span<std::byte> slots);

/// The exchange of a gathered codec with `warmup` steps, whose density decreases over its first calls. It has one
/// gathered collective for each density, and each hands the codec's state to the next. Each call on a pack is one step
/// of that pack, which is identified by the offset of its first tensor. `parts` gives the calls at the final density;
/// those of the first steps follow from compression::warm_up_phases.
extern const CodedExchange warm_up_exchange;

/// random-k: all ranks draw the same places, so any all-reduce can sum the values on their way.
/// Cost: an all-reduce of density·n values; n written by each rank.
extern const CodedExchange random_k_exchange;

/// TernGrad as a sum of integers: all ranks quantise with the largest of their scales, so that codes add up. Each
/// contribution is rounded once, and the sum is exact. Any all-reduce of int8 serves, also a vendor's.
/// Cost: an all-reduce of one fp32 (max), then one of n int8 (sum).
/// It sends 8 bits an element where `terngrad:exchange=gather` sends 2, but its bytes do not grow with the number of
/// ranks: from 9 ranks on they are fewer. Refused beyond 127 ranks, since int8 may not hold their sum.
extern const CodedExchange tern_grad_exchange;

/// PowerSGD: a gradient is treated as a matrix M and compressed to two thin factors P and Q, which any all-reduce sums
/// one after the other. Q is kept for each tensor from call to call (warm start); the first Q is drawn from a seed that
/// all ranks share. A tensor without rows and columns counts as a nearly square matrix. Each rank adds to its residual
/// the loss of its own share of the sum. Tensors that would shrink less than 2x are exchanged as fp32: up to 1 MiB of
/// them together with the first factors of their bucket.
/// Cost: 2 all-reduces for all tensors of a call, of rank·rows and rank·columns of each; 3·rank·n multiply-adds by each
/// rank.
extern const CodedExchange power_sgd_exchange;

}  // namespace gradmeter::allreduce
