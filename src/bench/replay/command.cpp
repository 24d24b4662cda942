// SPDX-License-Identifier: Apache-2.0
// gradmeter replay: the steps of another program's trace on this machine.
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>

#include "bench/engine/command.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/measuring.hpp"
#include "bench/engine/output.hpp"
#include "bench/replay/replay.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/units.hpp"
#include "dataparallel/replay/replay.hpp"
#include "importers/importers.hpp"
#include "importers/traces.hpp"

namespace gradmeter::bench {
namespace {

using core::UsageError;

constexpr double longest_s = 1e6;  ///< the largest value of --seconds

FlagList describe_replay() {
  FlagList flags("Flags", 110);
  add_switch(flags, "help,h", "this text");
  add_text(flags, "overlap", "auto",
           "bucketed: a thread moves collectives while its rank is busy; none: they move only while the rank waits; "
           "auto: bucketed if "
           "each such thread has a core");
  add_text(flags, "computation", "spin",
           "what a rank does while the trace computes. spin: keep its core, as on the host; sleep: leave it free, as "
           "while a GPU computes; the row's device is none then");
  add_text(
      flags, "seconds", "5",
      "time after which no more samples are taken, in seconds. A sample is a pass over the trace. Even where they "
      "take longer there are six, or three of over 5 s, and up to nine passes before and between them to warm up. A "
      "trace of which one pass takes longer is refused");
  add_text(flags, "interconnect", "", "your label for the network between the ranks, stored with every point");
  add_format_flags(flags);
  add_rank_flags(flags);
  add_result_file_flags(flags);
  return flags;
}

/// Reads the trace that `text`, the contents of the file `path`, holds. Errors: UsageError "FILE: …".
importers::ImportedTrace trace_in(const std::string& text, const std::string& path, int ranks) {
  try {
    auto read = importers::read_trace(text, ranks);
    if (const auto why = dataparallel::replay_refusal(read.trace); !why.empty()) throw UsageError(why);
    return read;
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", path, e.what()));
  }
}

std::string length_text(double seconds) {
  constexpr double hour = 3600, day = 24 * hour;
  return seconds < hour  ? core::to_text(core::Seconds{seconds})
         : seconds < day ? fmt::format("{:.3g} hours", seconds / hour)
                         : fmt::format("{:.3g} days", seconds / day);
}

/// Refuses a trace whose steps together take longer than the time for samples, since a sample is a pass over all of
/// them. Errors: UsageError "FILE: …".
void check_length(const dataparallel::StepTrace& trace, double limit_s, const std::string& path) {
  const double busy = dataparallel::replay_busy_s(trace);
  if (busy <= limit_s) return;
  const std::size_t steps = trace.steps.size();
  const std::string flag = busy <= longest_s ? fmt::format("give --seconds {:.0f}, or ", std::ceil(busy)) : "";
  throw UsageError(
      fmt::format("{}: its {} step{} {} busy for {}, and --seconds {:g} is for all samples; {}record fewer or shorter "
                  "steps",
                  path, steps, steps == 1 ? "" : "s", steps == 1 ? "is" : "are", length_text(busy), limit_s, flag));
}

std::string text_in(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("cannot read '{}'; name an existing trace", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

int measure_replay(const Flags& flags, const Invocation& invocation) {
  const std::string overlap = flags.text("overlap");
  check_one_of("--overlap", overlap, {"auto", "none", "bucketed"});
  const std::string computation = flags.text("computation");
  check_one_of("--computation", computation, {"spin", "sleep"});
  const double seconds = parse_number("--seconds", flags.text("seconds"), 0.1, longest_s);
  const auto session = open_session(flags, invocation);
  const auto& world = session->world();
  const std::string path = flags.words()[0];
  std::string text;
  run_on_rank_0(world, [&] {
    text = text_in(path);
    check_length(trace_in(text, path, world.size()).trace, seconds, path);
  });
  const auto read = trace_in(world.broadcast_text(text), path, world.size());
  ReplayOptions options{.trace = read.trace,
                        .progress_thread = overlap != "none",
                        .computation = computation == "sleep" ? dataparallel::ReplayedComputation::sleep
                                                              : dataparallel::ReplayedComputation::spin,
                        .rule = {.budget = core::Seconds{seconds}},
                        .is_over = [&signals = invocation.process.signals] { return signals.first_signal() != 0; }};
  if (overlap == "auto")
    options.progress_thread =
        options.busy_threads() * session->ranks_per_node(world.size()) <= session->cores_per_node();
  const auto tables = [&](std::span<const core::Point> measured, std::size_t width) {
    std::vector<core::Point> rows{importers::trace_rows(read, {}).run().points[0]};
    rows.insert(rows.end(), measured.begin(), measured.end());
    return replay_tables(rows, width);
  };
  return measure(measuring_ranks(*session), flags, invocation,
                 {.experiment = "replay",
                  .points = 1,
                  .printers = {.tables = tables, .csv = replay_csv()},
                  .can_resume = false,
                  .measure =
                      [&](const auto&, const RowListener& rows) {
                        if (session->is_root()) rows.planned(1, 0);
                        core::Point row = run_replay(*session, options);
                        if (flags.has("interconnect"))
                          row.factors[core::Factor::interconnect] = read_label(flags, "interconnect");
                        if (session->is_root()) rows.measured(row);
                        return std::size_t{row.status == core::Status::wrong};
                      },
                  .legend = [&](auto) { return replay_legend(read_legend(flags)); }});
}

Usage replay_usage() {
  return {
      .flags = describe_replay(),
      .about =
          "gradmeter replay TRACE: repeats the steps of a trace on these ranks: its collectives with their kind, size\n"
          "and element type, and the time between them as busy time. It reads traces of PyTorch's profiler, PyTorch's\n"
          "execution traces (which have no times), and Chakra's traces as JSON\n"
          "\n"
          "mpirun -np 2 gradmeter replay rank0.pt.trace.json --out results/replay.jsonl",
      .words = "trace"};
}

int run_replay_command(const Flags& flags, const Invocation& invocation) {
  if (flags.words().size() != 1) throw UsageError("replay: name one trace; see gradmeter replay --help");
  return measure_replay(flags, invocation);
}

}  // namespace

extern const Command replay_command{
    .name = "replay",
    .summary = "the steps of a trace (PyTorch's profiler or execution trace, Chakra) on these ranks",
    .with_ranks = true,
    .usage = replay_usage,
    .run = run_replay_command};

}  // namespace gradmeter::bench
