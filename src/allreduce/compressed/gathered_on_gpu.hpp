// All-gather of tensors that are encoded and decoded by kernels in the stream of a GPU's queue.
#pragma once
#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// As bind_gathered's for codecs whose encodings are as long as their tensors say, with its bits. `gatherer` gathers,
/// `slots` is of the network's arena: all ranks' encodings of a call. Cost: as bind_gathered.
std::unique_ptr<Collective> gather_on_gpu(const CodedRequest&, const Site&, const AlgorithmChoice& gatherer,
                                          std::span<std::byte> slots);

}  // namespace gradmeter::allreduce
