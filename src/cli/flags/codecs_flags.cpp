#include "cli/flags/codecs_flags.hpp"

#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "compression/warm_up.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

std::vector<std::size_t> read_sizes(const Flags& f, const runtime::HostFacts& host) {
  if (!f.has("size")) return bench::usual_codec_sizes(host.l3_bytes);
  std::vector<std::size_t> out;
  for (const auto& item : split_list("--size", f.text("size"))) {
    const std::size_t bytes = parse_size("--size", item);
    constexpr std::size_t most = std::size_t{1} << 50;
    if (bytes == 0 || bytes % 4 != 0 || bytes > most) {
      throw UsageError(
          fmt::format("--size {}: must be a positive multiple of 4, the bytes of an fp32, and at most 1024T", item));
    }
    out.push_back(bytes);
  }
  return out;
}

std::vector<bench::TestGradientPtr> read_distributions(const Flags& f) {
  std::vector<bench::TestGradientPtr> out;
  for (const auto& item : split_list("--distribution", f.text("distribution"))) {
    if (item != "all") {
      out.push_back(std::make_shared<compression::TestGradient>(item));
      continue;
    }
    for (const auto* drawn : {"gaussian", "laplace", "sparse"}) {
      out.push_back(std::make_shared<compression::TestGradient>(drawn));
    }
  }
  return out;
}

bench::WireBaseline read_baseline(const Flags& f) {
  const auto chosen = choose("--baseline", "baseline", f.text("baseline"),
                             std::vector{bench::WireBaseline::bf16, bench::WireBaseline::fp32},
                             [](auto b) { return std::string(bench::name(b)); });
  if (chosen.size() != 1) throw UsageError("--baseline takes one value: bf16 or fp32");
  return chosen.front();
}

/// Each must encode; `all` includes every codec that does.
std::vector<compression::CodecChoicePtr> read_codecs(const Flags& f) {
  auto out = compression::as_timed(parse_codecs(f.text("codec")));
  for (const auto& item : split_list("--codec", f.text("codec"))) {
    if (item != "all" && !compression::find_codec(item)) {
      throw UsageError(fmt::format("--codec {}: nothing is encoded; name a codec", item));
    }
  }
  std::erase(out, nullptr);
  return out;
}

/// By the usual names, or any algorithm by its own name.
std::vector<allreduce::AlgorithmPtr> read_exchanges(const Flags& f) {
  std::string names;
  for (const auto& item : split_list("--exchange", f.text("exchange"))) {
    const std::string name = item == "all-gather" ? "one-shot"
                             : item == "sra"      ? "direct"
                             : item == "all"      ? "one-shot,direct,ring"
                                                  : item;
    names += fmt::format("{}{}", names.empty() ? "" : ",", name);
  }
  return parse_algorithms(names);
}

/// Refuses flags of how speeds are measured, which would have no effect.
void refuse_beside_exchange(const Flags& f) {
  if (f.has("time-budget")) throw UsageError("--time-budget has no meaning with --exchange: nothing is timed");
  if (f.text("device") != "cpu") throw UsageError("--device has no meaning with --exchange: the host computes errors");
  if (f.text("distribution") != "gaussian") {
    throw UsageError(
        "--distribution has no meaning with --exchange: workers' gradients are half common, half their own");
  }
}

}  // namespace

options::options_description describe_codecs() {
  options::options_description d("Flags (a comma list makes a factor; all gives every value there is)", 110);
  d.add_options()("help,h", "this text");
  add_text(d, "codec", "all", "codecs, with parameters: qsgd4:bucket=128; see gradmeter list codecs");
  add_text(d, "size", "", "gradients' bytes in fp32: 64K,1M; default one that caches hold and one that none does");
  add_text(d, "distribution", "gaussian",
           "gaussian, laplace, sparse:density=0.05, file:PATH (recorded by train --dump-gradients)");
  add_text(d, "parts", "4", "encoded gradients that are added up and encoded again");
  add_text(d, "ranks", "", "of the exchange that the crossover is worked out for: 8; with --exchange a list");
  add_text(d, "exchange", "",
           "the error of exchanged sums against --ranks, instead of speeds: all-gather, sra, ring, or an algorithm");
  add_text(d, "baseline", "fp32", "precision of the dense exchange that a codec is held against: fp32, bf16");
  add_text(d, "device", "cpu", "that encodes and decodes: cpu, cuda");
  add_text(d, "seed", "1", "of gradients and of random rounding");
  add_text(d, "time-budget", "", "for all points together: 90s, 10m; default 3 s a point at most");
  add_text(d, "min-samples", "10", "iterations of each call at least");
  add_text(d, "precision-goal", "0.025", "half width of the median's 95 % interval, relative, at which a call stops");
  add_format_flags(d);
  add_output_flags(d);
  return d;
}

bench::CodecOptions read_codec_options(const Flags& f, const runtime::HostFacts& host) {
  bench::CodecOptions o;
  o.factors.codecs = read_codecs(f);
  o.factors.sizes = read_sizes(f, host);
  o.factors.distributions = read_distributions(f);
  o.factors.parts = parse_count("--parts", f.text("parts"), 1, 1024);
  if (f.has("ranks")) o.factors.ranks = static_cast<int>(parse_count("--ranks", f.text("ranks"), 2, 1u << 20));
  o.factors.baseline = read_baseline(f);
  o.factors.device = f.text("device");
  o.seed = parse_count("--seed", f.text("seed"), 0, UINT64_MAX);
  if (f.has("time-budget")) o.time_budget = parse_time("--time-budget", f.text("time-budget"));
  o.rule.min_samples = parse_count("--min-samples", f.text("min-samples"), 3, 1'000'000);
  o.rule.relative_half_width = parse_number("--precision-goal", f.text("precision-goal"), 1e-4, 1);
  o.memory_bytes = host.available_memory_bytes;
  return o;
}

bench::ExchangeErrorOptions read_exchange_options(const Flags& f, const runtime::HostFacts& host) {
  bench::ExchangeErrorOptions o;
  o.codecs = read_codecs(f);
  o.algorithms = read_exchanges(f);
  constexpr std::uint64_t most = 256;  // threads
  for (const auto p : parse_counts("--ranks", f.has("ranks") ? f.text("ranks") : "2,4,8,16,32,64", 1, most)) {
    o.ranks.push_back(static_cast<int>(p));
  }
  if (f.has("size")) {
    const auto sizes = read_sizes(f, host);
    if (sizes.size() != 1) throw UsageError("--size takes one value with --exchange");
    o.size_bytes = sizes.front();
  }
  o.seed = parse_count("--seed", f.text("seed"), 0, UINT64_MAX);
  o.cores = static_cast<int>(std::max<std::size_t>(1, host.available_units));
  o.memory_bytes = host.available_memory_bytes;
  refuse_beside_exchange(f);
  return o;
}

}  // namespace gradmeter::cli
