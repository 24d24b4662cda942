// Messages by MPI point to point: between nodes, or between any buffers.
#pragma once
#include <vector>

#include "runtime/mpi/mpi.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// A channel is a tag. `node_of[r]` tells which node rank r is on (for the count of bytes that leave the node).
/// Cost: one MPI_Isend or MPI_Irecv a message; one MPI_Testsome a pass over all that are under way.
class MpiTransport final : public Transport {
 public:
  /// Collective over the parent, which is duplicated.
  MpiTransport(MPI_Comm parent, int channels, std::vector<int> node_of);
  /// Receives that nothing came for are cancelled; a send under way is an error of the caller.
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int channels() const override { return channels_; }
  bool zero_copy_from(int) const override { return false; }
  std::size_t message_bytes() const override;
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle& t) override { return completed(t); }
  const std::byte* try_receive(MessageHandle& t) override;
  void progress() override;

 private:
  MessageHandle track(MPI_Request, void* place);
  bool completed(MessageHandle&);

  Handle<CommunicatorTraits> comm_;
  int rank_ = 0, size_ = 0, channels_;
  std::vector<int> node_of_;
  bool one_node_;
  // Slot i of the three belongs to one message; ids are slot + 1, so that a default ticket is none of them.
  std::vector<MPI_Request> requests_;
  std::vector<char> done_;
  std::vector<std::size_t> free_;
  std::vector<int> indices_;
};

}  // namespace gradmeter::runtime
