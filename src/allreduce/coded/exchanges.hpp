// SPDX-License-Identifier: Apache-2.0
// The exchanges of gradients with those codecs for which the executor alone does not suffice.
#pragma once
#include "allreduce/coded/coded.hpp"

namespace gradmeter::allreduce {

/// All-gather of encoded tensors: every rank decodes all contributions and adds them in rank order, so each
/// contribution is encoded only once, however many ranks there are. It sends less than an all-reduce of fp32 if there
/// are fewer ranks than 64 / (wire bits of an element).
///
/// All tensors of a call are gathered at once, by the algorithm's own all-gather, or by a ring where the algorithm is a
/// selection. If the lengths of encodings depend on the data, these lengths are gathered first; then every rank sends
/// as many bytes for a tensor as the longest encoding of that tensor has. If ranks × density of a sparse codec is at
/// least 1, a gather would send more than an all-reduce of fp32: then each rank decodes its own encodings, and the
/// decoded tensors are summed as fp32. Cost: (p-1)·wire_bytes sent by each rank; p·n decoded by each.
extern const CodedExchange gathered_exchange;

/// True where the lengths of encodings are known beforehand, so that an exchange on a GPU need not wait for the host.
/// False for DGC, which keeps momentum on the host, and where decoded tensors are summed as fp32.
bool gathers_on_gpu(const ExchangeSpec&);

/// Does what gathered_exchange does, with the same bits, but kernels in the stream of a GPU's queue encode and decode.
/// Requires `gathers_on_gpu`. gatherer: the algorithm of the all-gather. slots: memory of the network's arena for all
/// ranks' encodings of a call. Cost: as gathered_exchange.
std::unique_ptr<Collective> gather_on_gpu(const ExchangeSpec&, const GroupConnection&, const AlgorithmChoice& gatherer,
                                          std::span<std::byte> slots);

/// The exchange of a gathered codec whose parameter `warmup` lets the density decrease over the first training steps.
/// There is one gathered collective for each density, which hands the codec's state to the next one. Steps are counted
/// for each pack (coded.hpp): a call on a pack is one step. A pack is recognised by the offset of its first tensor.
/// CodedExchange::parts lists the inner calls of a pack at the final density; compression::warm_up_phases tells the
/// densities of the first steps.
extern const CodedExchange warm_up_exchange;

/// random-k: all ranks draw the same indices, so any all-reduce can sum the values at these indices.
/// Cost: an all-reduce of density·n values; n elements written by each rank.
extern const CodedExchange random_k_exchange;

/// TernGrad as a sum of integers: all ranks quantise with the largest of their scales, so that their integer codes can
/// be summed. Each contribution is rounded once, and the sum of the codes is exact. Any all-reduce of int8 serves, also
/// a vendor's.
/// Cost: an all-reduce of one fp32 (max), then one of n int8 (sum).
/// A code takes 8 bits, and only 2 with `terngrad:exchange=gather`. But a rank sends each code at most about twice in
/// an all-reduce, and p-1 times in a gather, so from 9 ranks on this exchange sends fewer bytes. More than 127 ranks
/// are refused, since int8 may not hold the sum of their codes.
extern const CodedExchange tern_grad_exchange;

/// PowerSGD: a gradient is treated as a matrix M and compressed to two thin factors, P and Q. Any all-reduce can sum
/// them, first P, then Q. Q is kept for each tensor from call to call (warm start); the first Q is drawn from a seed
/// that all ranks share. A tensor without rows and columns counts as a nearly square matrix. A rank's residual becomes
/// what it contributed minus its share (1/p) of the decoded sum. Tensors that would shrink less than 2x are exchanged
/// as fp32, in batches of up to 1 MiB. The first batch of a call's buffer travels together with the factors P of the
/// first pack, in one all-reduce; each further batch has an all-reduce of its own.
/// Cost: with r the rank of the factors, 2 all-reduces for each pack, of r·rows and r·columns numbers for each tensor;
/// 3·r·n multiply-adds by each rank.
extern const CodedExchange power_sgd_exchange;

}  // namespace gradmeter::allreduce
