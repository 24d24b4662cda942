// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/protocol.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t line_floats = 16;  ///< floats: a cache line

}  // namespace

Sharding::Sharding(std::size_t elements, std::uint32_t servers, std::size_t grain, std::size_t longest_bytes)
    : elements_(elements), servers_(servers) {
  const auto ceil_div = [](std::size_t n, std::size_t d) { return (n + d - 1) / d; };
  const std::size_t unit = std::lcm(line_floats, grain);
  const std::size_t most_elements = std::max(unit, longest_bytes / sizeof(float) / unit * unit);
  const std::size_t chunks_per_server = std::max<std::size_t>(1, ceil_div(elements, most_elements * servers));
  chunk_elements_ = std::max<std::size_t>(1, ceil_div(elements, chunks_per_server * servers * unit)) * unit;
}

std::size_t Sharding::chunks(std::uint32_t server) const {
  const std::size_t chunks = (elements_ + chunk_elements_ - 1) / chunk_elements_;
  return chunks > server ? (chunks - server - 1) / servers_ + 1 : 0;
}

Range Sharding::chunk(std::uint32_t server, std::size_t i) const {
  const std::size_t first = std::min(elements_, (i * servers_ + server) * chunk_elements_);
  return {first, std::min(chunk_elements_, elements_ - first)};
}

Coding Coding::of_changes(const compression::CodecChoicePtr& c, std::size_t senders) {
  if (!c || !refusal(c).empty()) return Coding();
  return Coding(make_chunk_codec(*c, senders), c->min_elements);
}

Coding Coding::of_weights(const compression::CodecChoicePtr& c) {
  if (!c || !refusal(c).empty() || !why_dense_weights(*c).empty()) return Coding();
  compression::CodecChoice without_feedback = *c;
  without_feedback.feedback = false;
  return Coding(make_chunk_codec(without_feedback, 1), c->min_elements);
}

std::string Coding::why_dense_weights(const compression::CodecChoice& c) {
  if (c.info->name == "dgc") return "momentum is corrected where gradients are";
  const bool scaled = c.info->name == "randomk" && !c.feedback;  // by n/k
  if (!scaled && !(c.info->may_lose_more_than_gradient && c.info->may_lose_more_than_gradient(c.parsed))) return {};
  return "what a change loses may be more than the change";
}

std::string Coding::refusal(const compression::CodecChoicePtr& c) { return c ? chunk_codec_refusal(*c) : ""; }

bool Coding::encodes(std::size_t n) const {
  return codec_ && n >= min_elements_ && codec_->wire_bytes(n) < n * sizeof(float);
}

bool Coding::variable(const Sharding& sharding, std::uint32_t server) const {
  for (std::size_t i = 0; i < sharding.chunks(server); ++i) {
    if (variable(sharding.chunk(server, i).count)) return true;
  }
  return false;
}

std::size_t Coding::wire_bytes(const Sharding& sharding, std::uint32_t server) const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < sharding.chunks(server); ++i) sum += wire_bytes(sharding.chunk(server, i).count);
  return sum;
}

std::size_t Coding::grain() const {
  const std::size_t grain = codec_ ? codec_->grain() : 1;
  return grain > Sharding::most_payload_bytes / sizeof(float) ? 1 : grain;
}

ChunkEncoder Coding::encoder(std::size_t n) const {
  if (encodes(n)) return codec_->encoder(n);
  return [](std::span<const float> x, std::byte* wire, const compression::RandomDraw&) {
    std::memcpy(wire, x.data(), x.size_bytes());
    return x.size_bytes();
  };
}

void Coding::check_length(std::size_t bytes, std::size_t n) const {
  const std::size_t expected = wire_bytes(n);
  if (variable(n) ? bytes > expected : bytes != expected) {
    throw std::logic_error(fmt::format("a message of {} bytes came where {} numbers take {}", bytes, n, expected));
  }
}

void Coding::decode(std::span<const std::byte> wire, std::span<float> out, const compression::RandomDraw& draw) const {
  check_length(wire.size(), out.size());
  if (encodes(out.size())) return codec_->decode(wire, out, draw);
  std::memcpy(out.data(), wire.data(), wire.size());
}

std::span<const float> Coding::numbers(ExecutionContext& context, std::string_view label,
                                       std::span<const std::byte> wire, std::size_t n, std::span<float> decoded,
                                       const compression::RandomDraw& draw) const {
  check_length(wire.size(), n);
  if (!encodes(n)) return {reinterpret_cast<const float*>(wire.data()), n};
  work(context, label, n, wire.size(), [&] { decode(wire, decoded.first(n), draw); });
  return decoded.first(n);
}

void Coding::work(ExecutionContext& context, std::string_view label, std::size_t n, std::size_t bytes,
                  const std::function<void()>& code) const {
  if (!encodes(n)) return context.run_and_wait(code);
  context.submit(label, {double(n), 4.0 * double(n) + double(bytes)}, code);
  context.synchronise();
}

compression::RandomDraw draw_of_change(std::uint64_t seed, int worker, std::uint64_t clock, std::size_t first) {
  return {.seed = seed, .step = clock + 1, .rank = static_cast<std::uint32_t>(worker), .first = first};
}

compression::RandomDraw draw_of_weights(std::uint64_t seed, std::uint32_t server, std::uint64_t version,
                                        std::size_t first) {
  return {.seed = seed, .step = version, .rank = server, .phase = 1, .first = first};
}

}  // namespace gradmeter::dataparallel
