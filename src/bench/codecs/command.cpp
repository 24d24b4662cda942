// SPDX-License-Identifier: Apache-2.0
// The options of `gradmeter codecs`.
#include <cstdio>
#include <functional>
#include <optional>

#include "analysis/findings.hpp"
#include "bench/codecs/codecs.hpp"
#include "bench/engine/command.hpp"
#include "bench/engine/devices.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "bench/engine/session.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/units.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::bench {

FlagList describe_codecs();
/// device: null: the host encodes. Errors: UsageError of one line.
CodecOptions read_codec_options(const Flags&, const runtime::HostFacts&, const runtime::Device* device);
/// Reads --link. Errors: UsageError of one line.
std::optional<core::BytesPerSecond> read_link(const Flags&);
/// Reads the options of --exchange.
ExchangeErrorOptions read_exchange_options(const Flags&, const runtime::HostFacts&);

namespace {

using core::UsageError;

/// last_cache_bytes: the last cache of the device that encodes.
std::vector<std::size_t> read_codec_sizes(const Flags& flags, std::size_t last_cache_bytes) {
  if (!flags.has("size")) return usual_codec_sizes(last_cache_bytes);
  std::vector<std::size_t> out;
  for (const auto& item : split_list("--size", flags.text("size"))) {
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

std::vector<GradientSourcePtr> read_distributions(const Flags& flags) {
  std::vector<GradientSourcePtr> out;
  for (const auto& item : split_list("--distribution", flags.text("distribution"))) {
    if (item != "all") {
      out.push_back(std::make_shared<compression::GradientSource>(item));
      continue;
    }
    for (const auto* drawn : {"gaussian", "laplace", "sparse"}) {
      out.push_back(std::make_shared<compression::GradientSource>(drawn));
    }
  }
  return out;
}

WireBaseline read_baseline(const Flags& flags) {
  const auto chosen =
      choose("--baseline", "baseline", flags.text("baseline"), std::vector{WireBaseline::fp32, WireBaseline::bf16},
             [](auto b) { return std::string(name(b)); });
  if (chosen.size() != 1) throw UsageError("--baseline takes one value: fp32 or bf16");
  return chosen.front();
}

/// The codecs to measure. Each must encode; "all" stands for every codec that does.
std::vector<compression::CodecChoicePtr> read_codecs(const Flags& flags) {
  auto out = compression::require_no_warm_up(
      naming_flag("--codec", [&] { return compression::find_codecs(flags.text("codec")); }));
  for (const auto& item : split_list("--codec", flags.text("codec"))) {
    if (item != "all" && !compression::find_codec(item)) {
      throw UsageError(fmt::format("--codec {}: nothing is encoded; name a codec", item));
    }
  }
  std::erase(out, nullptr);
  return out;
}

/// Reads the usual names of exchanges, and algorithms by their own names.
std::vector<allreduce::AlgorithmPtr> read_exchanges(const Flags& flags) {
  std::string names;
  for (const auto& item : split_list("--exchange", flags.text("exchange"))) {
    const std::string name = item == "all-gather" ? "one-shot"
                             : item == "sra"      ? "direct"
                             : item == "all"      ? "one-shot,direct,ring"
                                                  : item;
    names += fmt::format("{}{}", names.empty() ? "" : ",", name);
  }
  return parse_algorithms(names);
}

/// Refuses flags that have no effect with --exchange, since they say how speeds are measured.
void refuse_beside_exchange(const Flags& flags) {
  if (flags.has("time-budget")) throw UsageError("--time-budget has no meaning with --exchange: nothing is timed");
  if (flags.has("link")) throw UsageError("--link has no meaning with --exchange: nothing is timed");
  if (flags.text("device") != "cpu")
    throw UsageError("--device has no meaning with --exchange: the host computes errors");
  if (flags.text("distribution") != "gaussian") {
    throw UsageError(
        "--distribution has no meaning with --exchange: workers' gradients are half common, half their own");
  }
}

}  // namespace

FlagList describe_codecs() {
  FlagList list(heading_of_factors, 110);
  add_switch(list, "help,h", "this text");
  add_text(list, "codec", "all", "codecs, with parameters: qsgd4:bucket=128; see gradmeter list codecs");
  add_text(list, "size", "",
           "bytes of a gradient in fp32: 64K,1M; default: one size that fits into the caches and one that does not, of "
           "file:PATH its own length; a file of another length is cut or repeated");
  add_text(list, "distribution", "gaussian",
           "gaussian, laplace, sparse:density=0.05, file:PATH (recorded by train --dump-gradients)");
  add_text(list, "parts", "4",
           "number of encoded gradients that are summed and encoded again for the column \"reduce\"");
  add_text(list, "ranks", "",
           "number of ranks that the column \"pays below\" assumes (default: 8); with --exchange, a list of them to "
           "measure");
  add_text(list, "exchange", "",
           "instead of speeds, measure the error of an all-reduce over --ranks by this algorithm (list algorithms); "
           "all-gather stands for one-shot, sra for direct");
  add_text(list, "baseline", "fp32", "number format that is sent without a codec, to compare with: fp32, bf16");
  add_text(list, "link", "",
           "also say how much faster each codec makes communication on a link of this rate: 1Gbit, 100Mbit");
  add_text(list, "device", "cpu", "what encodes and decodes: cpu, cuda");
  add_text(list, "seed", "1", "random seed of gradients and of stochastic rounding");
  add_stopping_flags(
      list, {.budget = "for all points together: 90s, 10m; default: at most 3 s a point",
             .samples = "minimum number of iterations of each call",
             .goal = "a call is done when its 95 % interval is within this share of the median: 0.025 is ± 2.5 %"});
  add_format_flags(list);
  add_output_flags(list);
  return list;
}

CodecOptions read_codec_options(const Flags& flags, const runtime::HostFacts& host, const runtime::Device* device) {
  CodecOptions o;
  o.factors.codecs = read_codecs(flags);
  o.factors.sizes = read_codec_sizes(flags, device ? device->last_cache_bytes() : host.reached_last_cache_bytes);
  o.factors.takes_recorded_size = !flags.has("size");
  o.factors.distributions = read_distributions(flags);
  o.factors.parts = parse_count("--parts", flags.text("parts"), 1, 1024);
  if (flags.has("ranks")) o.factors.ranks = static_cast<int>(parse_count("--ranks", flags.text("ranks"), 2, 1u << 20));
  o.factors.baseline = read_baseline(flags);
  o.factors.device = flags.text("device");
  o.seed = parse_count("--seed", flags.text("seed"), 0, UINT64_MAX);
  read_stopping(flags, o.rule, o.time_budget);
  o.memory_bytes = host.available_memory_bytes;
  return o;
}

std::optional<core::BytesPerSecond> read_link(const Flags& flags) {
  if (!flags.has("link")) return std::nullopt;
  const std::string text = flags.text("link");
  for (const auto& [unit, bits] : {std::pair{"Gbit", 1e9}, {"Mbit", 1e6}}) {
    if (!text.ends_with(unit)) continue;
    return core::BytesPerSecond{parse_number("--link", text.substr(0, text.size() - 4), 1e-6, 1e9) * bits / 8};
  }
  throw UsageError(fmt::format("--link {}: must be a rate in bits a second, such as 1Gbit or 100Mbit", text));
}

ExchangeErrorOptions read_exchange_options(const Flags& flags, const runtime::HostFacts& host) {
  ExchangeErrorOptions o;
  o.codecs = read_codecs(flags);
  o.algorithms = read_exchanges(flags);
  constexpr std::uint64_t most = 256;  // threads
  for (const auto p : parse_counts("--ranks", flags.has("ranks") ? flags.text("ranks") : "2,4,8,16,32,64", 1, most)) {
    o.ranks.push_back(static_cast<int>(p));
  }
  if (flags.has("size")) {
    const auto sizes = read_codec_sizes(flags, host.reached_last_cache_bytes);
    if (sizes.size() != 1) throw UsageError("--size takes one value with --exchange");
    o.size_bytes = sizes.front();
  }
  o.seed = parse_count("--seed", flags.text("seed"), 0, UINT64_MAX);
  o.cores = static_cast<int>(std::max<std::size_t>(1, host.available_units));
  o.memory_bytes = host.available_memory_bytes;
  refuse_beside_exchange(flags);
  return o;
}

// gradmeter codecs: what each codec costs, what it saves, how far off it is, and on which links it pays. One process.

namespace {

void print_codecs_head(const core::RunInfo& info) {
  core::print("gradmeter {} ({})  codecs  {}\n\n", info.version, info.commit, info.cpu);
}

/// What differs between the two sweeps: that of speeds, and that of the errors of exchanges.
struct ChosenSweep {
  std::size_t total = 0;
  RowPrinters printers;
  std::string legend;
  std::function<std::size_t(const FinishedRows& finished, const RowListener&)> run;
};

ChosenSweep speeds(const Flags& flags, const runtime::HostFacts& host, const runtime::SignalWatch& signals,
                   const OpenedDevice& device) {
  auto options = read_codec_options(flags, host, device.device.get());
  options.device = device.device.get();
  options.gauge = device.gauge.get();
  return {.total = plan_codecs(options.factors).size(),
          .printers = {codec_tables, codec_csv()},
          .legend = codec_legend(read_legend(flags)),
          .run = [options, &signals](const auto& finished, const auto& listener) {
            return run_codecs(options, finished, signals, listener);
          }};
}

ChosenSweep exchange_errors(const Flags& flags, const runtime::HostFacts& host, const runtime::SignalWatch& signals) {
  const auto options = read_exchange_options(flags, host);
  return {.total = plan_exchange_errors(options).size(),
          .printers = {exchange_error_tables, codec_csv()},
          .legend = {},
          .run = [options, &signals](const auto& finished, const auto& listener) {
            return run_exchange_errors(options, finished, signals, listener);
          }};
}

int measure_codecs(const Flags& flags, const Invocation& invocation) {
  const auto host = runtime::read_host();
  check_one_of("--device", flags.text("device"), device_names);
  const OpenedDevice device = open_device(flags.text("device"));
  const ChosenSweep sweep = flags.has("exchange") ? exchange_errors(flags, host, invocation.process.signals)
                                                  : speeds(flags, host, invocation.process.signals, device);
  const auto link = read_link(flags);
  const core::RunInfo info = describe_process(host, invocation.command_line);
  const MeasuringRanks alone{.info = info, .device = device.device ? *device.device : runtime::host_device()};
  return measure(alone, flags, invocation,
                 {.experiment = "codecs",
                  .points = sweep.total,
                  .printers = sweep.printers,
                  .head = [&] { print_codecs_head(info); },
                  .measure = sweep.run,
                  .legend = [&](auto) { return sweep.legend; },
                  .answer = [&](auto points) { return link ? analysis::codecs_on_link(points, *link) : std::nullopt; },
                  .wrong_message = "gave wrong results: their codecs are broken"});
}

Usage codecs_usage() {
  return {.flags = describe_codecs(),
          .about =
              "gradmeter codecs: speed, error and size of each gradient codec, and the link speed below which it pays\n"
              "\n"
              "gradmeter codecs --codec qsgd8,qsgd4,topk --size 256K,64M --out r.jsonl"};
}

int run_codecs_command(const Flags& flags, const Invocation& invocation) {
  if (invocation.rank != 0) return 0;  // under mpirun rank 0 does everything
  return measure_codecs(flags, invocation);
}

}  // namespace

extern const Command codecs_command{
    .name = "codecs",
    .summary = "encode, decode, error and wire size of gradient codecs, and where they pay",
    .with_ranks = false,
    .usage = codecs_usage,
    .run = run_codecs_command};

}  // namespace gradmeter::bench
