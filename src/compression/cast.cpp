#include "compression/cast.hpp"

#include <cstring>

#include "core/small_float.hpp"

namespace gradmeter::compression {
namespace {

class Cast final : public Codec {
 public:
  Cast(const core::ParsedName& name, core::SmallFormat format) : Codec(name.canonical()), format_(format) {}
  std::size_t grain() const override { return 1; }
  std::size_t wire_bytes(std::size_t n) const override { return padded(2 * n); }

  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw&) const override {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint16_t code = core::from_float(format_, x[i]);
      std::memcpy(wire + 2 * i, &code, 2);
    }
    std::memset(wire + 2 * x.size(), 0, wire_bytes(x.size()) - 2 * x.size());
    return wire_bytes(x.size());
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = at(wire, i);
  }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = addend[i] + at(wire, i);
  }

 private:
  float at(std::span<const std::byte> wire, std::size_t i) const {
    std::uint16_t code;
    std::memcpy(&code, wire.data() + 2 * i, 2);
    return core::to_float(format_, code);
  }
  core::SmallFormat format_;
};

}  // namespace

std::unique_ptr<Codec> make_fp16(const core::ParsedName& n) { return std::make_unique<Cast>(n, core::fp16_format); }
std::unique_ptr<Codec> make_bf16(const core::ParsedName& n) { return std::make_unique<Cast>(n, core::bf16_format); }

}  // namespace gradmeter::compression
