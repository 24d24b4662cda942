#include <algorithm>
#include <cstring>

#include "bench/codecs/calls.hpp"
#include "compression/reducer.hpp"
#include "runtime/time/clock.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {
namespace {

/// Sums as a reduction does; the compiler's own loop is as fast as memory.
void add(std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += x[i];
}

class HostCalls final : public CodecCalls {
 public:
  explicit HostCalls(const CodecTask& t)
      : task_(t),
        memory_(arena_bytes(t)),
        y_(memory_.take_of<float>(t.gradient.size())),
        wire_(memory_.take(t.codec.wire_bytes(t.gradient.size()))),
        reducer_(t.codec, t.gradient.size()) {
    for (std::size_t p = 0; p < t.parts; ++p) {
      const auto part = memory_.take(t.codec.wire_bytes(t.gradient.size()));
      parts_.emplace_back(part.data(), t.codec.encode(t.gradient, part.data(), t.draw(p)));
    }
  }

  /// Codecs with steps do not sum encoded gradients: what they send is summed as numbers, or decoded one by one.
  bool has(CodecCall c) const override {
    return !task_.has_steps() || (c != CodecCall::decode_add && c != CodecCall::reduce_encode);
  }

  std::string fault() override {
    return !has(CodecCall::decode_add) || sums_like_decode() ? "" : "decode_add is not decode and a sum";
  }

  std::vector<double> time(CodecCall what, std::size_t iterations) override {
    std::vector<double> times(iterations);
    // Sums of thousands of calls grow, but not to where arithmetic is slow; each block starts anew.
    if (what == CodecCall::decode_add || what == CodecCall::add) std::memset(y_.data(), 0, y_.size_bytes());
    for (double& t : times) {
      const double begin = runtime::host_clock();
      call(what);
      t = runtime::host_clock() - begin;
    }
    return times;
  }

 private:
  static std::size_t arena_bytes(const CodecTask& t) {
    const std::size_t wire = t.codec.wire_bytes(t.gradient.size());
    return t.gradient.size_bytes() + (t.parts + 1) * wire + (t.parts + 2) * runtime::page_bytes;
  }

  bool sums_like_decode() {
    const std::size_t n = std::min<std::size_t>(task_.gradient.size(), 1u << 16);
    const auto x = task_.gradient.first(n);
    const auto wire = wire_.first(task_.codec.encode(x, wire_.data(), task_.draw()));
    std::vector<float> sum(n);
    task_.codec.decode(wire, y_.first(n));
    task_.codec.decode_add(wire, x, sum);
    for (std::size_t i = 0; i < n; ++i) y_[i] += x[i];
    return std::memcmp(sum.data(), y_.data(), n * sizeof(float)) == 0;
  }

  void call(CodecCall what) {
    const std::span<const float> x = task_.gradient;
    switch (what) {
      case CodecCall::copy:
        std::memcpy(y_.data(), x.data(), x.size_bytes());
        break;
      case CodecCall::add:
        add(x, y_);
        break;
      case CodecCall::encode:
        task_.codec.encode(x, wire_.data(), task_.draw());
        break;
      case CodecCall::decode:
        task_.codec.decode(parts_.front(), y_);
        break;
      case CodecCall::decode_add:
        task_.codec.decode_add(parts_.front(), y_, y_);
        break;
      case CodecCall::reduce_encode:
        reducer_.run(parts_, x.size(), wire_.data(), task_.draw());
        break;
    }
  }

  const CodecTask task_;
  runtime::PrivateArena memory_;
  std::span<float> y_;
  std::span<std::byte> wire_;
  std::vector<std::span<const std::byte>> parts_;  ///< with their actual lengths
  compression::Reducer reducer_;
};

}  // namespace

std::unique_ptr<CodecCalls> make_host_calls(const CodecTask& t) { return std::make_unique<HostCalls>(t); }

}  // namespace gradmeter::bench
