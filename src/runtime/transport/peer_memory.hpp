// SPDX-License-Identifier: Apache-2.0
// Reads and writes the private memory of other processes of this host (process_vm_readv and process_vm_writev,
// "cross-memory attach"). A transfer is one copy, and would be two through shared memory.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// A process whose private memory this one can reach. Addresses are those of the other process, and must be mapped
/// there. While this process reads or writes such memory, the other process must not write to it.
/// Cost: one system call for each read or write.
/// Errors: BackendError, for example once the process has ended.
class PeerMemory {
 public:
  explicit PeerMemory(pid_t process) : process_(process) {}
  /// True if the rank is a thread of this process, so that its addresses are valid here too.
  bool is_here() const;
  void read(const std::byte* from, std::span<std::byte> to) const;
  void write(std::span<const std::byte> from, std::byte* to) const;

 private:
  pid_t process_;
};

/// The memory of every rank of `c`, by rank. Empty on all ranks if some rank cannot reach another's memory, because the
/// two are on different hosts, or have different users or process namespaces, or the kernel forbids it (Yama's
/// ptrace_scope, a container's filter). Collective. If ranks are processes, each one tries to read and to write a word
/// of every other.
std::vector<PeerMemory> reach_peer_memory(const Communicator& c);

}  // namespace gradmeter::runtime
