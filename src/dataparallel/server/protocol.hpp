// What workers and servers say to each other, who holds which part of the weights, and how numbers travel.
//
// A worker sends the change of a shard in chunks (`push`); the server acknowledges each when it has taken it (`ack`).
// A worker has few unacknowledged chunks at a server: one that sends what it likes exhausts the server's memory, as in
// ps-lite. Weights are asked for with the change (its `sequence`: answer when this is applied) or alone (`pull`), and
// come in chunks of one version (`weights`). A worker that has finished says `bye`.
//
// | operation | clock             | version            | sequence               | first, count | value         |
// | push      | updates before it | its weights'       | of the request, or 0   | the chunk    | step size     |
// | ack       | as pushed         | -                  | -                      | as pushed    | -             |
// | pull      | of the read       | own updates needed | of the request, from 1 | -            | -             |
// | weights   | of the read       | theirs             | of the request         | the chunk    | held back [s] |
// | bye       | -                 | -                  | -                      | -            | -             |
//
// Where messages get lost (Port::lossy), whoever waits for an answer asks again. All messages may come twice: a chunk
// is known by its clock and place, a request by its sequence.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/registry.hpp"
#include "dataparallel/mail.hpp"

namespace gradmeter::dataparallel {

enum class Word : std::uint8_t { push = 1, ack, pull, weights, bye };

/// Elements of the flat buffer.
struct Range {
  std::size_t first = 0, count = 0;
  std::size_t end() const { return first + count; }
};

/// The flat buffer in nearly equal contiguous shards that start at multiples of 16 floats, one for each server; some
/// are empty where there are more servers than pieces of 16. A shard is cut into chunks, one a message.
class Sharding {
 public:
  /// grain: chunks are multiples of it, but for the last [elements].
  Sharding(std::size_t elements, std::uint32_t servers, std::size_t grain);
  std::size_t elements() const { return elements_; }
  std::uint32_t servers() const { return servers_; }
  Range shard(std::uint32_t server) const;
  std::size_t chunks(std::uint32_t server) const;
  Range chunk(std::uint32_t server, std::size_t i) const;
  /// Where the chunk lies that begins there.
  std::size_t chunk_of(std::uint32_t server, std::size_t first) const {
    return (first - shard(server).first) / chunk_elements_;
  }
  /// Of a chunk that travels dense, at most.
  std::size_t payload_bytes() const;
  static constexpr std::size_t most_payload_bytes = std::size_t{1} << 20;

 private:
  std::size_t elements_, chunk_elements_;
  std::uint32_t servers_;
};

/// How a chunk of n numbers travels: encoded when it is long enough for the codec and gets shorter by it, dense
/// otherwise; a pure function of n, so both sides know. Chunks are encoded one by one, whatever tensors they are of.
class Coding {
 public:
  /// Null: all dense.
  explicit Coding(compression::CodecPtr codec = {}, std::size_t min_elements = 0)
      : codec_(std::move(codec)), min_elements_(min_elements) {}
  /// Changes; and weights, which travel dense with a codec that has error feedback: what it loses comes with the next
  /// change, but weights have no next.
  static Coding of_changes(const compression::CodecChoicePtr&);
  static Coding of_weights(const compression::CodecChoicePtr&);
  /// Why chunks cannot travel so; empty: they can.
  static std::string refusal(const compression::CodecChoicePtr&);

  bool encodes(std::size_t n) const;
  std::size_t wire_bytes(std::size_t n) const { return encodes(n) ? codec_->wire_bytes(n) : n * sizeof(float); }
  std::size_t wire_bytes(const Sharding&, std::uint32_t server) const;
  std::size_t grain() const { return codec_ ? codec_->grain() : 1; }
  /// residual: empty, or error feedback's, as long as x. Returns the bytes written.
  std::size_t encode(std::span<const float> x, std::span<float> residual, std::byte* wire,
                     const compression::Draw&) const;
  void decode(std::span<const std::byte> wire, std::span<float> out) const;

 private:
  compression::CodecPtr codec_;
  std::size_t min_elements_;
};

}  // namespace gradmeter::dataparallel
