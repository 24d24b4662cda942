// What a part of a model needs of the ranks that hold the other parts: sums over those that share its layers, messages
// to those that hold the layers before and after. The implementation knows who they are and how to reach them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/queue.hpp"

namespace gradmeter::model {

/// Which stage of the pipeline: the one with the layers before or with those after, or the first or last of all.
enum class Neighbour : std::uint8_t { previous, next, first, last };

/// A message under way. Its memory must not be used until `wait` returns.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait() = 0;
};
using TransferPtr = std::unique_ptr<Transfer>;

/// All ranks of one replica of a model make matching calls in the same order. Buffers given to a call must come from
/// `memory`. Errors: those of the fabric below.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual std::size_t tensor_rank() const = 0;
  virtual std::size_t tensor_ranks() const = 0;
  virtual std::size_t stage() const = 0;
  virtual std::size_t stages() const = 0;

  /// In place, over the tensor ranks of this stage; equal bits on all of them. Returns when it is done.
  virtual void sum(runtime::Buffer) = 0;
  /// To and from the same tensor rank of another stage, in order. A receive that is posted long before its
  /// message is sent saves the transport a copy. What is sent is what the work submitted so far leaves; `ready`: after
  /// which the memory may be overwritten, null: at once.
  virtual TransferPtr send(Neighbour, runtime::ConstBuffer) = 0;
  virtual TransferPtr receive(Neighbour, runtime::Buffer, runtime::EventPtr ready) = 0;

  /// Zeroed memory that peers can read, never given back.
  virtual runtime::Buffer memory(std::size_t floats) = 0;
};

/// What one rank's part of a model asks of its peers.
struct PeerNeeds {
  std::size_t memory_bytes = 0;       ///< taken from `memory`, once
  std::size_t largest_sum_bytes = 0;  ///< the longest buffer that it will sum
};

/// What one rank's part of a model exchanges in one pass, or in one forward pass alone.
struct PeerTraffic {
  std::vector<std::size_t> sums = {};  ///< floats of each sum over the tensor ranks, in order
  std::size_t messages = 0;            ///< to other stages
  std::size_t floats_sent = 0;         ///< in those messages
};

}  // namespace gradmeter::model
