// SPDX-License-Identifier: Apache-2.0
// The messages between workers and servers, the split of the weights among servers, and the encoding of numbers.
//
// Every chunk of the weights is handled by itself: it has a version, workers have clocks for it, and it is received,
// applied and answered while others travel.
// - A worker sends the change of each chunk (`push`), which the server acknowledges when it has received it (`ack`). A
//   worker may have only a few unacknowledged chunks at a server, since otherwise senders exhaust the server's memory,
//   as in ps-lite.
// - A worker requests the weights of one chunk with its change: the push has a `sequence`, and is answered when the
//   change is applied. By a `pull` it requests all chunks of a server.
// - Weights are sent chunk by chunk (`weights`). If the codec encodes them, they are sent as changes since the worker's
//   last answer; otherwise, and for evaluation, as they are. Servers on a worker's node write weights to its own
//   memory, if its push says where (`answer_place`); the payload is then there before the answer arrives.
// - A worker that has finished sends `disconnect`. One that waits for others outside a step sends `rest`, where steps
//   would otherwise wait for its changes.
// - Between steps all workers may ask to `evaluate`. These pulls are answered when all have asked, so that all get the
//   same weights.
//
// `weights` carries the clock of the slowest worker: the number of updates of every training worker that they include.
//
// | operation  | clock             | version            | sequence               | first, count | value         |
// | push       | updates before it | its weights'       | of the request, or 0   | the chunk    | step size     |
// | ack        | as pushed         | -                  | -                      | as pushed    | -             |
// | pull       | of the read       | own updates needed | of the request, from 1 | -            | -             |
// | evaluate   | -                 | -                  | of the request, from 1 | -            | -             |
// | weights    | the slowest's     | theirs             | of the request         | the chunk    | held back [s] |
// | disconnect | -                 | -                  | 1: acknowledge it      | -            | -             |
// | rest       | -                 | -                  | -                      | -            | -             |
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

/// The flat buffer is cut into chunks of nearly equal length, one for each message, which are dealt to the servers in
/// turn. A backward pass completes tensors in the order of the buffer, so all servers get work from the beginning on.
/// Chunks start at multiples of 16 floats. If there are fewer chunks than servers, some servers have none.
class Sharding {
 public:
  /// grain: all chunks but the last are multiples of it [elements]. longest: the most bytes of a chunk in fp32.
  Sharding(std::size_t elements, std::uint32_t servers, std::size_t grain, std::size_t longest = most_payload_bytes);
  std::size_t elements() const { return elements_; }
  std::uint32_t servers() const { return servers_; }
  std::size_t chunks(std::uint32_t server) const;
  Range chunk(std::uint32_t server, std::size_t i) const;
  /// The index, among its server's chunks, of the chunk that begins at that element.
  std::size_t index_of(std::size_t first) const { return first / chunk_elements_ / servers_; }
  /// The most bytes of a chunk in fp32.
  std::size_t payload_bytes() const { return chunk(0, 0).count * sizeof(float); }
  static constexpr std::size_t most_payload_bytes = std::size_t{1} << 20;
  /// The most bytes of a chunk where no codec treats chunks as tensors. A server's answers are sent while later chunks
  /// still arrive, so its port is idle in one direction for the time of a chunk or two, which should be short.
  static constexpr std::size_t dense_payload_bytes = std::size_t{1} << 18;

 private:
  std::size_t elements_, chunk_elements_;
  std::uint32_t servers_;
};

/// Decides how a chunk of n numbers is sent: encoded when it is long enough for the codec and becomes shorter, else as
/// fp32. The decision depends on n alone, so both sides know it.
class Coding {
 public:
  /// codec: null where all chunks are sent as fp32.
  explicit Coding(ChunkCodecPtr codec = {}, std::size_t min_elements = 0)
      : codec_(std::move(codec)), min_elements_(min_elements) {}
  /// The coding of changes. senders: the number of workers that send changes of the same chunk.
  static Coding of_changes(const compression::CodecChoicePtr&, std::size_t senders);
  /// The coding of changes of the weights, from a server to a worker. The loss of one encoding is added to the next,
  /// whatever the codec's `ef` says, since a server computes the next change from the weights that the worker has.
  static Coding of_weights(const compression::CodecChoicePtr&);
  /// The reason why a server sends weights as fp32 although changes are encoded; empty: weights are encoded too.
  static std::string why_dense_weights(const compression::CodecChoice&);
  /// The reason why chunks cannot be sent by this codec; empty: they can be.
  static std::string refusal(const compression::CodecChoicePtr&);

  bool encodes(std::size_t n) const;
  /// True where the length of such a chunk depends on its numbers.
  bool variable(std::size_t n) const { return encodes(n) && codec_->variable(); }
  bool variable(const Sharding&, std::uint32_t server) const;
  /// The exact length; where `variable`, an upper bound.
  std::size_t wire_bytes(std::size_t n) const { return encodes(n) ? codec_->wire_bytes(n) : n * sizeof(float); }
  std::size_t wire_bytes(const Sharding&, std::uint32_t server) const;
  /// The grain of chunks. It is 1 if a bucket is longer than the longest chunk, since the bucket then ends with its
  /// chunk.
  std::size_t grain() const;
  /// The encoder of a chunk of n numbers, also of one that is sent as fp32. This object must outlive it.
  ChunkEncoder encoder(std::size_t n) const;
  /// Decodes a message. Errors: logic_error for a message whose length does not fit so many numbers.
  void decode(std::span<const std::byte> wire, std::span<float> out, const compression::Draw&) const;
  /// The n numbers of a message: in the message itself, or, where they are encoded, in `decoded`, which has room for
  /// them. label: the label of the kernel.
  std::span<const float> numbers(ExecutionContext&, std::string_view label, std::span<const std::byte> wire,
                                 std::size_t n, std::span<float> decoded, const compression::Draw&) const;
  /// Encodes or decodes a chunk of n numbers, `bytes` on the wire, and waits for it. With a codec this is a kernel;
  /// otherwise it is a copy, which is part of the exchange.
  void work(ExecutionContext&, std::string_view label, std::size_t n, std::size_t bytes,
            const std::function<void()>&) const;

 private:
  void check_length(std::size_t bytes, std::size_t n) const;

  ChunkCodecPtr codec_;
  std::size_t min_elements_;
};

/// How an axis is served, as the strategy chose it.
struct ServiceOptions {
  int servers = 0;  ///< the last so many ranks of an axis only serve; 0: the rank of every worker serves too
  std::uint64_t staleness = Admission::unbounded;
  std::string optimizer = "sgd";  ///< optimizer of the weights; "add": changes are added to them
  /// With staleness 0 only its scale is used, since all changes of a clock make one step.
  StepRule rule = {};
  compression::CodecChoicePtr codec = {};  ///< codec of changes, and of the weights that workers get
  std::uint64_t seed = 1;
};

/// The facts that all workers and servers of an axis share.
struct ServicePlan {
  ServiceOptions options = {};
  int workers = 1;       ///< ranks 0, 1, …
  int first_server = 0;  ///< rank of the first server; the others follow it
  Coding changes = Coding(), weights = Coding();
};

/// The key of the random draws for a chunk of a change. Both sides know all parts of it.
/// clock: the number of updates that the worker began before this one.
compression::Draw draw_of_change(std::uint64_t seed, int worker, std::uint64_t clock, std::size_t first);
/// The key for weights depends on their version, so that every reader, and every repetition, gets the same bits.
compression::Draw draw_of_weights(std::uint64_t seed, std::uint32_t server, std::uint64_t version, std::size_t first);

}  // namespace gradmeter::dataparallel
