// SPDX-License-Identifier: Apache-2.0
// The adapter of gloo, PyTorch's collectives over TCP. In a program built without gloo, it refuses (gloo_refusal).
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "core/element.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

enum class GlooAlgorithm { ring, bcube };

/// The reason why this program has no gloo, and what to do about it; empty: it has gloo.
std::string gloo_refusal();
/// "gloo 0.5.0", from the headers that the program was built with; empty without gloo.
std::string gloo_version();
/// True if gloo has its own operators for this type: fp64, fp32, fp16, int64, int32 and int8.
bool gloo_has(core::Element);

/// A full mesh of TCP connections between the ranks: over loopback if all share a host, else over the interface to
/// which the host's name resolves. Addresses are exchanged over the communicator, so neither a file nor a server is
/// needed.
class GlooGroup {
 public:
  /// Collective. Errors: UsageError with gloo_refusal; BackendError with gloo's own text.
  explicit GlooGroup(const Communicator&);
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  /// Collective; blocks. in == out: in place. Errors: BackendError where gloo lacks the type, and with gloo's own text
  /// where its call fails.
  void all_reduce(const std::byte* in, std::byte* out, std::size_t count, core::Element, Combine, GlooAlgorithm);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradmeter::runtime
