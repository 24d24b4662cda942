// SPDX-License-Identifier: Apache-2.0
// Graphs: the work of streams that record instead of running.
#pragma once
#include <thread>

#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator {

struct Node {
  StreamWork work;
  std::vector<std::size_t> after;
};
struct Graph {
  std::vector<Node> nodes = {};
  // While it is recorded:
  Stream* origin = nullptr;
  std::thread::id thread = {};
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool is_lost = false;  ///< something was called that cannot be recorded
};

/// After the stream's tips; it is their only tip from now on.
void add_node(Capture&, StreamWork);
/// The stream records too from now on, after what the event's stream had recorded.
cudaError_t join_capture(Stream&, const Capture& event);
void lose_capture(const Capture&);
/// May this thread make a call that could wait for a stream that records? If not, what is recorded is lost.
bool may_wait();

}  // namespace cuda_emulator
