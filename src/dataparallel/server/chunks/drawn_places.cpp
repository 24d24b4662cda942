#include "dataparallel/server/chunks/drawn_places.hpp"

#include <cstring>
#include <vector>

#include "compression/codecs/randomk.hpp"

namespace gradmeter::dataparallel {
namespace {

using compression::Draw;
using compression::RandomK;

std::vector<std::uint32_t> places_of(const RandomK& chosen, std::size_t n, const Draw& d) {
  std::vector<std::uint32_t> places(chosen.kept(n));
  // Drawn by the chunk's first element, so that chunks draw differently; random-k ignores a place in a draw.
  chosen.draw_places({.seed = d.seed, .step = d.step, .tensor = static_cast<std::uint32_t>(d.first)}, n, places);
  return places;
}

class DrawnPlaceEncoder final : public ChunkEncoder {
 public:
  DrawnPlaceEncoder(const RandomK& chosen, std::size_t kept) : chosen_(chosen), residual_(kept, 0.0f) {}

  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw& draw) override {
    const auto places = places_of(chosen_, x.size(), draw);
    std::vector<float> values(places.size());
    if (residual_.empty()) {
      chosen_.gather(x, places, values);
    } else {
      for (std::size_t i = 0; i < x.size(); ++i) residual_[i] += x[i];
      chosen_.gather(residual_, places, values);
      RandomK::clear_sent(places, residual_);
    }
    const std::size_t bytes = values.size() * sizeof(float);
    if (bytes > 0) std::memcpy(wire, values.data(), bytes);
    return bytes;
  }

 private:
  const RandomK& chosen_;
  std::vector<float> residual_;  ///< empty: without error feedback
};

class DrawnPlaces final : public ChunkCodec {
 public:
  explicit DrawnPlaces(const compression::CodecChoice& c) : chosen_(c.parsed), feedback_(c.feedback) {}
  std::size_t wire_bytes(std::size_t n) const override { return chosen_.kept(n) * sizeof(float); }
  std::unique_ptr<ChunkEncoder> encoder(std::size_t n) const override {
    return std::make_unique<DrawnPlaceEncoder>(chosen_, feedback_ ? n : 0);
  }
  void decode(std::span<const std::byte> wire, std::span<float> out, const Draw& draw) const override {
    const auto places = places_of(chosen_, out.size(), draw);
    std::vector<float> values(places.size());
    if (!values.empty()) std::memcpy(values.data(), wire.data(), values.size() * sizeof(float));
    RandomK::scatter(values, places, out);
  }

 private:
  RandomK chosen_;
  bool feedback_;
};

}  // namespace

ChunkCodecPtr make_drawn_place_chunks(const compression::CodecChoice& c, std::size_t) {
  return std::make_shared<DrawnPlaces>(c);
}

}  // namespace gradmeter::dataparallel
