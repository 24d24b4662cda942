#include "bench/codecs/benchmark.hpp"

#include <algorithm>
#include <deque>
#include <vector>

#include "compression/error.hpp"

namespace gradmeter::bench {
namespace {

std::unique_ptr<CodecSteps> steps_of(const CodecPoint& p, int senders) {
  if (p.codec->codec) return nullptr;
  return std::make_unique<CodecSteps>(*p.codec, p.elements(), static_cast<std::size_t>(senders));
}

}  // namespace

CodecBenchmark::CodecBenchmark(const CodecPoint& point, const CodecFactors& factors, std::span<const float> gradient,
                               std::uint64_t seed, runtime::Device& device, const runtime::GpuGauge* gauge)
    : point_(point),
      factors_(factors),
      steps_(steps_of(point, factors.ranks)),
      codec_(steps_ ? *steps_ : *point.codec->codec),
      x_(gradient),
      task_{*point.codec, codec_, gradient, factors.parts, seed},
      gauge_(gauge),
      calls_(&device == &runtime::host_device() ? make_host_calls(task_) : make_device_calls(task_, device)),
      findings_{.point = point, .codec = codec_, .error = {}, .encode_times = {}, .noise = {}} {}

void CodecBenchmark::measure_error() {
  CodecError& e = findings_.error;
  // A million elements make random errors small; a large gradient has as many in one encoding.
  constexpr std::size_t enough = std::size_t{1} << 20, most = 16;
  e.draws = std::clamp<std::size_t>(enough / x_.size(), 1, most);
  e.squared_error = 0;
  std::vector<std::byte> wire(codec_.wire_bytes(x_.size()));
  std::vector<float> decoded(x_.size());
  for (std::size_t i = 0; i < e.draws; ++i) {
    if (steps_) steps_->forget();  // measures one encoding, without state kept for the next
    findings_.wire_bytes = codec_.encode(x_, wire.data(), {.seed = task_.seed, .step = i});
    codec_.decode(std::span(wire).first(findings_.wire_bytes), decoded);
    e.squared_error += compression::squared_error(decoded, x_) / static_cast<double>(e.draws);
  }
  e.squared_norm = compression::squared_norm(x_);
  e.expected = compression::expected_error(point_.codec->parsed, x_);
}

bool CodecBenchmark::check(core::Point& row) {
  measure_error();
  findings_.error.fault = calls_->fault();
  fill_codec_check(findings_, row);
  return row.status == core::Status::ok;
}

void CodecBenchmark::measure(const RoundPeers& peers, const RoundOptions& options, core::Point& row) {
  std::deque<Rounds> calls;
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    const auto what = static_cast<CodecCall>(i);
    calls.emplace_back(peers, options,
                       [this, what](std::size_t iterations, bool) { return calls_->time(what, iterations); });
  }
  const auto mine = [this](std::size_t call) { return calls_->has(static_cast<CodecCall>(call)); };
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < codec_call_count; ++i) {
    if (!mine(i)) continue;
    calls[i].warm_up();
    turns.emplace_back([&c = calls[i]] { return c.round() != core::Stop::none; });
  }
  NoiseSampler noise(gauge_);
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
