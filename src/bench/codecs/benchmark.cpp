#include "bench/codecs/benchmark.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "compression/error.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t alignment = 4096;  // of the arena's pieces

std::size_t arena_bytes(const CodecPoint& p, const compression::Codec& codec, std::size_t parts) {
  const std::size_t wire = codec.wire_bytes(p.elements());
  return p.size_bytes + (parts + 1) * wire + (parts + 2) * alignment;
}

std::unique_ptr<CodecSteps> steps_of(const CodecPoint& p, int senders) {
  if (p.codec->codec) return nullptr;
  return std::make_unique<CodecSteps>(*p.codec, p.elements(), static_cast<std::size_t>(senders));
}

/// Sums as a reduction does; the compiler's own loop is as fast as memory.
void add(std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] += x[i];
}

}  // namespace

CodecBenchmark::CodecBenchmark(const CodecPoint& point, const CodecFactors& factors, std::span<const float> gradient,
                               std::uint64_t seed)
    : point_(point),
      factors_(factors),
      steps_(steps_of(point, factors.ranks)),
      codec_(steps_ ? *steps_ : *point.codec->codec),
      x_(gradient),
      seed_(seed),
      memory_(arena_bytes(point, codec_, factors.parts)),
      y_(memory_.take_of<float>(gradient.size())),
      reducer_(codec_, gradient.size()),
      findings_{.point = point, .codec = codec_, .error = {}, .encode_times = {}, .noise = {}} {
  const std::size_t bytes = codec_.wire_bytes(gradient.size());
  wire_ = memory_.take(bytes);
  for (std::size_t p = 0; p < factors.parts; ++p) {
    const auto part = memory_.take(bytes);
    compression::Draw own = draw(0);
    own.rank = static_cast<std::uint32_t>(p);
    parts_.emplace_back(part.data(), codec_.encode(x_, part.data(), own));
  }
}

void CodecBenchmark::measure_error() {
  CodecError& e = findings_.error;
  // A million elements make random errors small; a large gradient has as many in one encoding.
  constexpr std::size_t enough = std::size_t{1} << 20, most = 16;
  e.draws = std::clamp<std::size_t>(enough / x_.size(), 1, most);
  e.squared_error = 0;
  for (std::size_t i = 0; i < e.draws; ++i) {
    if (steps_) steps_->forget();  // measures one encoding, without state kept for the next
    findings_.wire_bytes = codec_.encode(x_, wire_.data(), draw(i));
    codec_.decode(wire_.first(findings_.wire_bytes), y_);
    e.squared_error += compression::squared_error(y_, x_) / static_cast<double>(e.draws);
  }
  e.squared_norm = compression::squared_norm(x_);
  e.expected = compression::expected_error(point_.codec->parsed, x_);
}

bool CodecBenchmark::sums_like_decode() {
  const std::size_t n = std::min<std::size_t>(x_.size(), 1u << 16);
  const auto wire = wire_.first(codec_.encode(x_.first(n), wire_.data(), draw(0)));
  std::vector<float> sum(n);
  codec_.decode(wire, y_.first(n));
  codec_.decode_add(wire, x_.first(n), sum);
  for (std::size_t i = 0; i < n; ++i) y_[i] += x_[i];
  return std::memcmp(sum.data(), y_.data(), n * sizeof(float)) == 0;
}

/// Codecs with steps do not sum encoded gradients: what they send is summed as numbers, or decoded one by one.
bool CodecBenchmark::has(CodecCall c) const {
  return !steps_ || (c != CodecCall::decode_add && c != CodecCall::reduce_encode);
}

bool CodecBenchmark::check(core::Point& row) {
  measure_error();
  findings_.error.same_sum = !has(CodecCall::decode_add) || sums_like_decode();
  fill_codec_check(findings_, row);
  return row.status == core::Status::ok;
}

void CodecBenchmark::call(CodecCall what) {
  switch (what) {
    case CodecCall::copy:
      std::memcpy(y_.data(), x_.data(), x_.size_bytes());
      break;
    case CodecCall::add:
      add(x_, y_);
      break;
    case CodecCall::encode:
      codec_.encode(x_, wire_.data(), draw(0));
      break;
    case CodecCall::decode:
      codec_.decode(parts_.front(), y_);
      break;
    case CodecCall::decode_add:
      codec_.decode_add(parts_.front(), y_, y_);
      break;
    case CodecCall::reduce_encode:
      reducer_.run(parts_, x_.size(), wire_.data(), draw(0));
      break;
  }
}

void CodecBenchmark::measure(const RoundPeers& peers, const RoundOptions& options, core::Point& row) {
  std::deque<Rounds> calls;
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    const auto what = static_cast<CodecCall>(i);
    calls.emplace_back(peers, options, [this, what](std::size_t iterations, bool) {
      std::vector<double> times(iterations);
      // Sums of thousands of calls grow, but not to where arithmetic is slow; each block starts anew.
      if (what == CodecCall::decode_add || what == CodecCall::add) std::memset(y_.data(), 0, y_.size_bytes());
      for (double& t : times) {
        const double begin = runtime::host_clock();
        call(what);
        t = runtime::host_clock() - begin;
      }
      return times;
    });
  }
  const auto mine = [this](std::size_t call) { return has(static_cast<CodecCall>(call)); };
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    if (!mine(i)) continue;
    calls[i].warm_up();
    turns.emplace_back([&c = calls[i]] { return c.round() != core::Stop::none; });
  }
  NoiseSampler noise;
  noise.begin();
  take_turns(turns);
  noise.end();
  findings_.noise = noise.alone();
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    if (!mine(i)) continue;
    findings_.times[i] = core::summarise(calls[i].blocks());
    findings_.times[i].stop = calls[i].stop();
  }
  findings_.encode_times = calls[static_cast<std::size_t>(CodecCall::encode)].times();
  fill_codec_times(findings_, factors_, row);
}

}  // namespace gradmeter::bench
