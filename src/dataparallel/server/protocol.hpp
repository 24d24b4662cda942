// The messages between workers and servers, who holds which part of the weights, and how numbers are encoded.
//
// Every chunk of the weights lives by itself: it has a version, workers have clocks at it, and it is received, applied
// and answered while others travel. A worker sends the change of each chunk (`push`); the server acknowledges it when
// it has taken it (`ack`). A worker has few unacknowledged chunks at a server: without a limit senders exhaust the
// server's memory, as in ps-lite. Weights of a chunk are requested with its change (its `sequence`: answer when this is
// applied), those of all chunks of a server alone (`pull`); they come chunk by chunk (`weights`). They are changes
// since the worker's last answer where the codec encodes these; otherwise, and for evaluation, the weights as they are.
// Servers of a worker's node write weights to its own memory, if its push says where (`answer_place`): the answer's
// payload lies there. A worker that has finished sends `disconnect`; one that
// waits for others outside a step sends `rest` where steps would wait for its changes. Between steps all workers may
// ask to `evaluate`: a pull that is answered when all have asked, so that all get the same weights.
//
// The slowest's clock in `weights`: so many updates of every worker that still trains are in them.
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
// Every message arrives once, those of one sender in order: so an `ack` is that of the oldest unacknowledged chunk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/message.hpp"
#include "dataparallel/server/chunks/chunk_codec.hpp"

namespace gradmeter::dataparallel {

enum class Opcode : std::uint8_t { push = 1, ack, pull, evaluate, weights, disconnect, rest };

/// Elements of the flat buffer.
struct Range {
  std::size_t first = 0, count = 0;
  std::size_t end() const { return first + count; }
};

/// The flat buffer in chunks of nearly equal length, one a message, dealt to the servers in turn. A backward pass ends
/// tensors in the order of the buffer, so all servers get work from its beginning on. Chunks start at multiples of 16
/// floats; some servers have none where there are fewer chunks than servers.
class Sharding {
 public:
  /// grain: chunks are multiples of it, but for the last [elements]. longest: of a dense chunk [bytes].
  Sharding(std::size_t elements, std::uint32_t servers, std::size_t grain, std::size_t longest = most_payload_bytes);
  std::size_t elements() const { return elements_; }
  std::uint32_t servers() const { return servers_; }
  /// Of that server.
  std::size_t chunks(std::uint32_t server) const;
  /// The i-th of that server.
  Range chunk(std::uint32_t server, std::size_t i) const;
  /// Which of its server's chunks begins at that element.
  std::size_t index_of(std::size_t first) const { return first / chunk_elements_ / servers_; }
  /// Of a dense chunk, at most.
  std::size_t payload_bytes() const { return chunk(0, 0).count * sizeof(float); }
  static constexpr std::size_t most_payload_bytes = std::size_t{1} << 20;
  /// Of chunks that no codec takes for tensors: a server's answers travel while later chunks still come to it, so its
  /// port stands idle in one way for the time of a chunk or two.
  static constexpr std::size_t dense_payload_bytes = std::size_t{1} << 18;

 private:
  std::size_t elements_, chunk_elements_;
  std::uint32_t servers_;
};

/// How a chunk of n numbers is sent: encoded when it is long enough for the codec and gets shorter by it, else dense.
/// It depends on n alone, so both sides know.
class Coding {
 public:
  /// Null: all dense.
  explicit Coding(ChunkCodecPtr codec = {}, std::size_t min_elements = 0)
      : codec_(std::move(codec)), min_elements_(min_elements) {}
  /// senders: how many send changes of the same chunk.
  static Coding of_changes(const compression::CodecChoicePtr&, std::size_t senders);
  /// For changes of the weights, from a server to a worker. What one loses is part of the next, whatever the codec's
  /// `ef` says, since a server computes the next from what the worker has.
  static Coding of_weights(const compression::CodecChoicePtr&);
  /// Why weights go dense, from a server to a worker, where changes do not; empty: they do not.
  static std::string why_dense_weights(const compression::CodecChoice&);
  /// Why chunks cannot be sent so; empty: they can.
  static std::string refusal(const compression::CodecChoicePtr&);

  bool encodes(std::size_t n) const;
  /// Does the length of such a chunk depend on its numbers?
  bool variable(std::size_t n) const { return encodes(n) && codec_->variable(); }
  bool variable(const Sharding&, std::uint32_t server) const;
  /// Exact, or where `variable` the most.
  std::size_t wire_bytes(std::size_t n) const { return encodes(n) ? codec_->wire_bytes(n) : n * sizeof(float); }
  std::size_t wire_bytes(const Sharding&, std::uint32_t server) const;
  /// The grain of chunks; a bucket longer than the longest chunk ends at its multiple.
  std::size_t grain() const;
  /// For chunks of n numbers, dense ones too. This must outlive it.
  std::unique_ptr<ChunkEncoder> encoder(std::size_t n) const;
  /// Errors: logic_error for a message that cannot be one of so many numbers.
  void decode(std::span<const std::byte> wire, std::span<float> out, const compression::Draw&) const;
  /// The n numbers of a message where they lie: in it, or, where they are encoded, in `decoded`, which has room for
  /// them. label: of the kernel.
  std::span<const float> numbers(ExecutionContext&, std::string_view label, std::span<const std::byte> wire,
                                 std::size_t n, std::span<float> decoded, const compression::Draw&) const;
  /// Encodes or decodes a chunk of n numbers, `bytes` on the wire, and waits for it. That is a kernel where the codec
  /// has work to do, else a copy, which is part of the exchange.
  void work(ExecutionContext&, std::string_view label, std::size_t n, std::size_t bytes,
            const std::function<void()>&) const;

 private:
  void check_length(std::size_t bytes, std::size_t n) const;

  ChunkCodecPtr codec_;
  std::size_t min_elements_;
};

/// The key of a chunk's random draws. Both sides know all of it.
/// clock: how many updates the worker began before this one.
compression::Draw draw_of_change(std::uint64_t seed, int worker, std::uint64_t clock, std::size_t first);
/// By the version: every reader, and every repetition, gets the same bits.
compression::Draw draw_of_weights(std::uint64_t seed, std::uint32_t server, std::uint64_t version, std::size_t first);

}  // namespace gradmeter::dataparallel
