#include "dataparallel/server/protocol.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t piece = 16;  ///< floats: a cache line

}  // namespace

Sharding::Sharding(std::size_t elements, std::uint32_t servers, std::size_t grain)
    : elements_(elements), servers_(servers) {
  const std::size_t unit = std::lcm(piece, grain);
  chunk_elements_ = std::max(unit, most_payload_bytes / sizeof(float) / unit * unit);
}

Range Sharding::shard(std::uint32_t server) const {
  const std::size_t pieces = (elements_ + piece - 1) / piece;
  const auto begin = [&](std::uint32_t s) { return std::min(elements_, piece * (pieces * s / servers_)); };
  return {begin(server), begin(server + 1) - begin(server)};
}

std::size_t Sharding::chunks(std::uint32_t server) const {
  return (shard(server).count + chunk_elements_ - 1) / chunk_elements_;
}

Range Sharding::chunk(std::uint32_t server, std::size_t i) const {
  const Range whole = shard(server);
  const std::size_t first = std::min(whole.end(), whole.first + i * chunk_elements_);
  return {first, std::min(chunk_elements_, whole.end() - first)};
}

std::size_t Sharding::payload_bytes() const {
  std::size_t most = 0;
  for (std::uint32_t s = 0; s < servers_; ++s) most = std::max(most, chunk(s, 0).count);
  return most * sizeof(float);
}

Coding Coding::of_changes(const compression::CodecChoicePtr& c) {
  return c ? Coding(c->codec, c->min_elements) : Coding();
}

Coding Coding::of_weights(const compression::CodecChoicePtr& c) {
  return c && !c->feedback ? Coding(c->codec, c->min_elements) : Coding();
}

std::string Coding::refusal(const compression::CodecChoicePtr& c) {
  if (!c) return {};
  const char* fault = nullptr;
  if (!c->codec) {
    fault = "is made of collectives and cannot encode messages";
  } else if (c->codec->variable()) {
    fault = "has no fixed size, which messages need";
  } else if (c->codec->grain() > Sharding::most_payload_bytes / sizeof(float)) {
    fault = "needs whole tensors, but messages are parts of the weights";
  }
  if (!fault) return {};
  return fmt::format("codec {} {}; use a cast or one that works bucket by bucket (bf16, qsgd8)", c->label, fault);
}

bool Coding::encodes(std::size_t n) const {
  return codec_ && n >= min_elements_ && codec_->wire_bytes(n) < n * sizeof(float);
}

std::size_t Coding::wire_bytes(const Sharding& sharding, std::uint32_t server) const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < sharding.chunks(server); ++i) sum += wire_bytes(sharding.chunk(server, i).count);
  return sum;
}

std::size_t Coding::encode(std::span<const float> x, std::span<float> residual, std::byte* wire,
                           const compression::Draw& draw) const {
  if (!encodes(x.size())) {
    std::memcpy(wire, x.data(), x.size_bytes());
    return x.size_bytes();
  }
  if (residual.empty()) return codec_->encode(x, wire, draw);
  std::vector<float> scratch(x.size());
  return compression::encode_with_feedback(*codec_, x, residual, scratch, wire, draw);
}

void Coding::decode(std::span<const std::byte> wire, std::span<float> out) const {
  if (wire.size() != wire_bytes(out.size())) {
    throw std::logic_error(fmt::format("a message of {} bytes came where {} numbers take {}", wire.size(), out.size(),
                                       wire_bytes(out.size())));
  }
  if (encodes(out.size())) return codec_->decode(wire, out);
  std::memcpy(out.data(), wire.data(), wire.size());
}

}  // namespace gradmeter::dataparallel
