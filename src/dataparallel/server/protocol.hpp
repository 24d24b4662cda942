// SPDX-License-Identifier: Apache-2.0
// The messages between workers and servers, the split of the weights among servers, and the encoding of numbers.
//
// The weights are cut into chunks (Sharding). Each chunk is handled by itself: it has a version, and for each worker a
// clock (the number of the worker's updates, see consistency.hpp); and it is received, applied and answered while other
// chunks are on their way.
// - `push`: a worker sends the change of one chunk. The server acknowledges the chunk when it has received it (`ack`).
//   Only a few chunks of a worker may be unacknowledged at a server; otherwise workers could exhaust the server's
//   memory, as they can in ps-lite.
// - A push whose `sequence` is not 0 also requests the chunk's weights, which the server sends when it has applied the
//   change. `pull` requests the weights of all chunks of a server.
// - `weights`: a server sends the weights of one chunk. If the codec encodes weights, what is sent is the change since
//   the server's last answer to this worker; otherwise, and for evaluation, the weights themselves. A server on the
//   worker's node writes them directly to the worker's memory if the push says where (`answer_place`); the payload is
//   then there before the message arrives.
// - `disconnect`: the worker has finished.
// - `rest`: the worker waits for other workers between its training steps, so a server must not wait for the worker's
//   changes before it makes a step of the weights.
// - `evaluate`: a pull between steps. The pulls of all workers are answered when all have asked, so that all workers
//   get the same weights.
//
// The fields of the headers:
// | operation  | clock                 | version             | sequence             | first, count | value         |
// | push       | earlier pushes        | of the weights used | of the request, or 0 | the chunk    | step size     |
// | ack        | as in the push        | -                   | -                    | as in push   | -             |
// | pull       | of the read           | own updates needed  | of the request       | -            | -             |
// | evaluate   | -                     | -                   | of the request       | -            | -             |
// | weights    | of the slowest worker | of these weights    | of the request       | the chunk    | waited [s]    |
// | disconnect | -                     | -                   | 1: acknowledge it    | -            | -             |
// | rest       | -                     | -                   | -                    | -            | -             |
// Clock of a push: how many pushes the worker made before. Version of a pull: how many of the worker's own updates the
// weights must include. Clock of weights: how many updates the server has of the slowest training worker. Value of
// weights: how long the request waited at the server. Requests are numbered from 1.
//
// Every message arrives once, and those of one sender in order, so an `ack` is for the oldest unacknowledged chunk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/server/chunk_codec.hpp"
#include "dataparallel/server/consistency.hpp"

namespace gradmeter::dataparallel {

enum class Opcode : std::uint8_t { push = 1, ack, pull, evaluate, weights, disconnect, rest };

/// Cuts the flat buffer into chunks of equal length (only the last may be shorter), one for each message, and deals
/// them to the servers in turn. A backward pass completes tensors in the order of the buffer, so all servers get work
/// from the beginning on. Chunks start at multiples of 16 floats. If there are fewer chunks than servers, some servers
/// have none.
class Sharding {
 public:
  /// grain: the length of all chunks but the last is a multiple of this [elements]. longest_bytes: the most bytes of
  /// a chunk in fp32, unless the grain is longer.
  Sharding(std::size_t elements, std::uint32_t servers, std::size_t grain,
           std::size_t longest_bytes = most_payload_bytes);
  std::size_t elements() const { return elements_; }
  std::uint32_t servers() const { return servers_; }
  std::size_t chunks(std::uint32_t server) const;
  Range chunk(std::uint32_t server, std::size_t i) const;
  /// The index, among its server's chunks, of the chunk that begins at that element.
  std::size_t index_of(std::size_t first) const { return first / chunk_elements_ / servers_; }
  /// The bytes of the longest chunk in fp32.
  std::size_t payload_bytes() const { return chunk(0, 0).count * sizeof(float); }
  static constexpr std::size_t most_payload_bytes = std::size_t{1} << 20;
  /// The most bytes of a chunk if there is no codec. A server answers while later chunks still arrive. So its network
  /// port is idle in one direction only for the time of the first and the last chunks, which should be short.
  static constexpr std::size_t dense_payload_bytes = std::size_t{1} << 18;

 private:
  std::size_t elements_, chunk_elements_;
  std::uint32_t servers_;
};

/// Decides how chunks are sent. A chunk of n numbers is encoded if it is long enough for the codec and becomes shorter;
/// otherwise it is sent as fp32. The decision depends on n alone, so both sides know it.
class Coding {
 public:
  /// codec: null if all chunks are sent as fp32. min_elements: shorter chunks are not encoded.
  explicit Coding(ChunkCodecPtr codec = {}, std::size_t min_elements = 0)
      : codec_(std::move(codec)), min_elements_(min_elements) {}
  /// The coding of workers' changes. senders: the number of workers that send changes of the same chunk.
  static Coding of_changes(const compression::CodecChoicePtr&, std::size_t senders);
  /// The coding of weights, which a server sends as their change since its last answer to the worker. What one encoding
  /// loses is part of the next change, whatever the codec's parameter `ef` (error feedback) says, since the server
  /// computes this change from the weights that the worker has decoded.
  static Coding of_weights(const compression::CodecChoicePtr&);
  /// The reason why a server sends weights as fp32 although changes are encoded; empty: weights are encoded too.
  static std::string why_dense_weights(const compression::CodecChoice&);
  /// The reason why chunks cannot be sent by this codec; empty: they can be.
  static std::string refusal(const compression::CodecChoicePtr&);

  bool encodes(std::size_t n) const;
  /// True if the length of an encoded chunk of n numbers depends on the numbers.
  bool variable(std::size_t n) const { return encodes(n) && codec_->variable(); }
  /// True if `variable` holds for at least one chunk of the server.
  bool variable(const Sharding&, std::uint32_t server) const;
  /// The bytes that are sent for a chunk of n numbers; if `variable`, an upper bound.
  std::size_t wire_bytes(std::size_t n) const { return encodes(n) ? codec_->wire_bytes(n) : n * sizeof(float); }
  /// The sum of `wire_bytes` over all chunks of the server.
  std::size_t wire_bytes(const Sharding&, std::uint32_t server) const;
  /// The grain for Sharding: that of the codec, or 1 if the codec's grain is longer than the longest chunk (as for
  /// codecs of whole tensors), since the codec then works on whole chunks.
  std::size_t grain() const;
  /// The encoder of a chunk of n numbers; if they are sent as fp32, it only copies them. This object must outlive it.
  ChunkEncoder encoder(std::size_t n) const;
  /// Decodes the payload of a message. Errors: logic_error if its length does not fit `out`.
  void decode(std::span<const std::byte> wire, std::span<float> out, const compression::RandomDraw&) const;
  /// Returns the n numbers of a message. Numbers that are sent as fp32 are read where they lie in the message; others
  /// are decoded to `decoded`, which has room for n. label: for the kernel that decodes.
  std::span<const float> numbers(ExecutionContext&, std::string_view label, std::span<const std::byte> wire,
                                 std::size_t n, std::span<float> decoded, const compression::RandomDraw&) const;
  /// Runs a function that encodes or decodes a chunk of n numbers to or from `bytes` bytes, and waits until it is done.
  /// If chunks of this length are encoded, it runs as a kernel with a label and a cost; otherwise it is only a copy,
  /// which counts as part of the exchange.
  void work(ExecutionContext&, std::string_view label, std::size_t n, std::size_t bytes,
            const std::function<void()>&) const;

 private:
  void check_length(std::size_t bytes, std::size_t n) const;

  ChunkCodecPtr codec_;
  std::size_t min_elements_;
};

/// The options with which a strategy makes the servers of an axis.
struct ServiceOptions {
  /// The number of ranks at the end of the axis that only serve. By convention 0 means that every rank is worker and
  /// server.
  int servers = 0;
  std::uint64_t staleness = Admission::unbounded;
  std::string optimizer = "sgd";  ///< optimizer of the weights; "add": changes are added to the weights
  /// With staleness 0 only the rule's `scale` is used, since all changes of a clock make one step.
  StepRule rule = {};
  compression::CodecChoicePtr codec = {};  ///< codec of changes, and of the weights that workers get
  std::uint64_t seed = 1;
};

/// The facts that all workers and servers of an axis know.
struct ServicePlan {
  ServiceOptions options = {};
  int workers = 1;       ///< number of workers: ranks 0, 1, …
  int first_server = 0;  ///< rank of the first server; the others follow it
  Coding changes = Coding(), weights = Coding();
};

/// The key of the random draws for encoding a chunk of a change. Worker and server know all arguments.
/// clock: the number of updates that the worker began before this one.
compression::RandomDraw draw_of_change(std::uint64_t seed, int worker, std::uint64_t clock, std::size_t first);
/// The key of the random draws for encoding a chunk of weights. It depends on their version, not on the reader, so all
/// readers get the same bits.
compression::RandomDraw draw_of_weights(std::uint64_t seed, std::uint32_t server, std::uint64_t version,
                                        std::size_t first);

}  // namespace gradmeter::dataparallel
