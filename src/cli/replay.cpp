// gradmeter replay: the steps of another program's trace on this machine.
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>

#include "bench/replay/replay.hpp"
#include "cli/agree.hpp"
#include "cli/closing.hpp"
#include "cli/command.hpp"
#include "cli/flags/flags.hpp"
#include "cli/output.hpp"
#include "cli/terminal.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/units.hpp"
#include "dataparallel/replay/replay.hpp"
#include "importers/importers.hpp"
#include "importers/traces.hpp"
#include "report/tables.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

constexpr double longest_s = 1e6;  ///< of measuring

options::options_description describe_replay() {
  options::options_description d("Flags", 110);
  d.add_options()("help,h", "this text");
  add_text(
      d, "overlap", "auto",
      "bucketed: a thread moves collectives while its rank is busy; none: only who waits does; auto: bucketed where "
      "each such thread has a core");
  add_text(d, "seconds", "5", "of measuring, at most; a trace whose steps take longer is refused");
  add_text(d, "interconnect", "", "a label for the link, as in other commands");
  d.add_options()("wide", "all columns of the table, however wide the terminal is");
  add_rank_flags(d);
  add_output_flags(d);
  return d;
}

/// Errors: UsageError "FILE: …".
importers::ReadTrace trace_in(const std::string& text, const std::string& path, int ranks) {
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

/// A pass over the steps is the least that can be measured. Errors: UsageError "FILE: …" for one that takes longer than
/// the limit.
void check_length(const dataparallel::StepTrace& trace, double limit_s, const std::string& path) {
  const double busy = dataparallel::replay_busy_s(trace);
  if (busy <= limit_s) return;
  const std::size_t steps = trace.steps.size();
  const std::string flag = busy <= longest_s ? fmt::format("give --seconds {:.0f}, or ", std::ceil(busy)) : "";
  throw UsageError(
      fmt::format("{}: its {} step{} {} busy for {}, and --seconds {:g} is the limit of all; {}record fewer or "
                  "shorter steps",
                  path, steps, steps == 1 ? "" : "s", steps == 1 ? "is" : "are", length_text(busy), limit_s, flag));
}

std::string text_in(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("cannot read '{}'; name an existing trace", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

int measure_replay(const Flags& f, const Invocation& invocation) {
  const std::string overlap = f.text("overlap");
  check_only("--overlap", overlap, {"auto", "none", "bucketed"});
  const double seconds = parse_number("--seconds", f.text("seconds"), 0.1, longest_s);
  bench::Session session(*invocation.world, invocation.process, parse_time("--timeout", f.text("timeout")),
                         invocation.command_line);
  const auto& world = session.world();
  const std::string path = f.words()[0];
  const OutputFlags output = read_output_flags(f);
  if (output.resume) throw UsageError("--resume has no meaning for replay, which has one point; --append adds a run");
  std::string text;
  core::ResultWriter* writer = nullptr;
  agree(world, [&] {
    text = text_in(path);
    check_length(trace_in(text, path, world.size()).trace, seconds, path);
    check_output(output, {}, "replay");
    writer = invocation.output->open(output, session.run_info());
  });
  if (writer) writer->append(core::make_plan(1, 0));
  text = world.broadcast_text(text);
  const bool has_cores = 2 * session.ranks_per_node(world.size()) <= session.cores_per_node();
  const auto read = trace_in(text, path, world.size());
  bench::ReplayOptions o{.trace = read.trace,
                         .progress_thread = overlap == "bucketed" || (overlap == "auto" && has_cores),
                         .rule = {.budget = core::Seconds{seconds}},
                         .is_over = [&signals = invocation.process.signals] { return signals.pending() != 0; }};
  core::Point row = bench::run_replay(session, o);
  if (f.has("interconnect")) row.factors[core::Factor::interconnect] = read_label(f, "interconnect");
  if (session.is_root()) {
    const std::array rows{importers::trace_rows(read, {}).run().points[0], row};
    core::print("{}{}{}", report::replay_tables(rows, table_width(f)), report::replay_legend(),
                closing({&row, 1}, invocation, output.path));
    if (writer) writer->append(row);
  }
  return static_cast<int>(row.status == core::Status::wrong ? core::ExitCode::wrong_result : core::ExitCode::done);
}

}  // namespace

Usage replay_usage() {
  return {
      .flags = describe_replay(),
      .about =
          "gradmeter replay TRACE: the steps of a trace on these ranks: its collectives with their kind, size and "
          "element\n"
          "type, and what lies between them as busy time. Read are traces of PyTorch's profiler, PyTorch's execution "
          "traces,\n"
          "which have no times, and Chakra's as JSON\n"
          "\n"
          "mpirun -np 2 gradmeter replay rank0.pt.trace.json --out results/replay.jsonl",
      .words = "trace"};
}

int run_replay_command(const Flags& flags, const Invocation& invocation) {
  if (flags.words().size() != 1) throw UsageError("replay: name one trace; see gradmeter replay --help");
  return measure_replay(flags, invocation);
}

}  // namespace gradmeter::cli
