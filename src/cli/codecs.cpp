// gradmeter codecs: what each codec costs, what it saves, how far off it is, and on which links it pays. One process.
#include <cstdio>
#include <functional>

#include "analysis/codec_links.hpp"
#include "bench/codecs/codecs.hpp"
#include "bench/engine/run_info.hpp"
#include "cli/command.hpp"
#include "cli/devices.hpp"
#include "cli/flags/codecs_flags.hpp"
#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "cli/terminal.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "report/tables.hpp"

namespace gradmeter::cli {
namespace {

void print_codecs_head(const core::RunInfo& i) {
  core::print("gradmeter {} ({})  codecs  {}\n\n", i.version, i.commit, i.cpu);
  std::fflush(stdout);
}

int end(std::size_t wrong, std::size_t total) {
  if (wrong) {
    core::print(stderr, "gradmeter: {} of {} points gave wrong results: their codecs are broken\n", wrong, total);
  }
  return static_cast<int>(wrong ? core::ExitCode::wrong_result : core::ExitCode::done);
}

/// Speeds, or the error of exchanges: the two sweeps share everything but the sweep itself.
struct Experiment {
  std::size_t total = 0;
  RowPrinters printers;
  std::string legend;
  std::function<std::size_t(const bench::FinishedRows& finished, const bench::RowListener&)> run;
};

Experiment speeds(const Flags& f, const runtime::HostFacts& host, const runtime::SignalWatch& signals,
                  const OpenedDevice& device) {
  auto options = read_codec_options(f, host);
  options.device = device.device.get();
  options.gauge = device.gauge.get();
  return {.total = bench::plan_codecs(options.factors).size(),
          .printers = {report::codec_tables, report::codec_csv()},
          .legend = report::codec_legend(),
          .run = [options, &signals](const auto& finished, const auto& listener) {
            return bench::run_codecs(options, finished, signals, listener);
          }};
}

Experiment exchange_errors(const Flags& f, const runtime::HostFacts& host, const runtime::SignalWatch& signals) {
  const auto options = read_exchange_options(f, host);
  return {.total = bench::plan_exchange_errors(options).size(),
          .printers = {report::exchange_error_tables, report::codec_csv()},
          .legend = {},
          .run = [options, &signals](const auto& finished, const auto& listener) {
            return bench::run_exchange_errors(options, finished, signals, listener);
          }};
}

int measure_codecs(const Flags& f, const Invocation& invocation) {
  const auto host = runtime::read_host();
  check_only("--device", f.text("device"), device_names);
  const OpenedDevice device = open_device(f.text("device"));
  const Experiment experiment = f.has("exchange") ? exchange_errors(f, host, invocation.process.signals)
                                                  : speeds(f, host, invocation.process.signals, device);
  const auto link = read_link(f);
  const Format format = read_format(f);
  const OutputFlags output = read_output_flags(f);
  const core::RunInfo info = bench::describe_process(host, invocation.command_line);
  const Earlier earlier = check_output(output, info, "codecs");
  core::ResultWriter* const writer = invocation.output->open(output, info);
  if (!earlier.note.empty()) core::print(stderr, "{}\n", earlier.note);
  runtime::Progress progress("points", experiment.total, true);
  RowOutput out(format, experiment.printers, table_width(f), info.run_id, writer, progress);
  out.head(info);
  if (format == Format::table) print_codecs_head(info);
  const auto listener = checking(out.listener(), device.device ? *device.device : runtime::host_device());
  try {
    const std::size_t wrong = experiment.run(earlier.finished, listener);
    out.finish();
    if (format == Format::table) core::print("{}", experiment.legend);
    out.close(invocation, link ? analysis::codecs_on_link(out.points(), *link) : std::nullopt);
    return end(wrong, experiment.total);
  } catch (const core::Interrupted&) {
    out.finish();
    core::print(stderr, "gradmeter: interrupted after {} of {} points{}\n", out.count(), experiment.total,
                writer ? fmt::format("; they are in {}: go on with --resume", writer->path().string()) : "");
    throw;
  }
}

}  // namespace

Usage codecs_usage() {
  return {.flags = describe_codecs(),
          .about =
              "gradmeter codecs: encode, decode, error and wire size of each codec, and the link below which it pays\n"
              "\n"
              "gradmeter codecs --codec qsgd8,qsgd4,topk --size 256K,64M --out r.jsonl"};
}

int run_codecs_command(const Flags& flags, const Invocation& invocation) {
  if (invocation.rank != 0) return 0;  // under mpirun rank 0 does everything
  return measure_codecs(flags, invocation);
}

}  // namespace gradmeter::cli
