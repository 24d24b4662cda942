// gradmeter kernels: DeepBench's operations, and yours, on every rank at once: checked, timed and compared with the
// roofline.
#include <cstdio>

#include "bench/kernels/kernels.hpp"
#include "cli/agree.hpp"
#include "cli/command.hpp"
#include "cli/devices.hpp"
#include "cli/flags/kernels_flags.hpp"
#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "cli/terminal.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/problems/problem_text.hpp"
#include "report/tables.hpp"
#include "runtime/host/launcher.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::cli {
namespace {

void complain(const std::vector<std::string>& faults) {
  for (const auto& fault : faults) core::print(stderr, "gradmeter: {}\n", fault);
}

int print_kernels_plan(const Flags& f) {
  const auto launcher = planned_launcher(f);
  if (launcher.rank != 0) return 0;
  check_only("--device", f.text("device"), device_names);
  const OpenedDevice opened = open_device(f.text("device"));
  const runtime::Device& device = opened.device ? *opened.device : runtime::host_device();
  const auto host = runtime::read_host();
  read_format(f);
  read_output_flags(f);
  const auto request = read_kernel_request(f, read_problems_file(f), launcher.size, 1);
  using enum core::Align;
  core::Table table({{"problem", "", left},
                     {"pass", "", left},
                     {"precision", "", left},
                     {"cache", "", left},
                     {"work", "MFLOP", right},
                     {"operands", "", right},
                     {"memory", "/rank", right}});
  double work = 0;
  std::size_t most = 0, unsupported = 0;
  for (const auto& p : bench::plan_kernels(request.options.factors)) {
    const auto why = kernels::kernel_case_refusal(p.problem, device);
    const auto needs = bench::kernel_memory(p, opened.device ? device.last_cache_bytes() : host.l3_bytes, device);
    const std::size_t memory = opened.device ? needs.device : needs.host;
    table.add_row({kernels::problem_text(p.problem.shape), std::string(name(p.problem.pass)),
                   std::string(name(p.problem.precision)), std::string(name(p.cache)),
                   fmt::format("{:.4g}", flops(p.problem) * 1e-6),
                   core::to_text(core::Bytes{
                       static_cast<std::size_t>(opened.device ? native_bytes(p.problem) : bytes(p.problem))}),
                   why.empty() ? core::to_text(core::Bytes{memory}) : "-"},
                  why.empty() ? "" : fmt::format("unsupported: {}", why));
    unsupported += !why.empty();
    if (why.empty()) work += full_flops(p.problem), most = std::max(most, memory);
  }
  core::print(
      "{}\n{} points, {} of them unsupported; one call of each is {:.4g} GFLOP; {} a rank at once ({} free here)\n",
      table.to_string(table_width(f)), table.rows(), unsupported, work * 1e-9, core::to_text(core::Bytes{most}),
      core::to_text(core::Bytes{opened.device ? device.free_bytes() : host.available_memory_bytes}));
  complain(request.faults);
  return static_cast<int>(request.faults.empty() ? core::ExitCode::done : core::ExitCode::usage);
}

void print_kernels_head(const bench::Session& s, const bench::KernelPlacement& at) {
  const auto& i = s.run_info();
  core::print("gradmeter {} ({})  kernels  {} rank{} on {} node{}, {} thread{} each  {}{}\n", i.version, i.commit,
              at.ranks, at.ranks == 1 ? "" : "s", at.nodes, at.nodes == 1 ? "" : "s", at.threads,
              at.threads == 1 ? "" : "s", i.cpu, at.device == "cpu" ? "" : ", computing on " + at.device);
  std::fflush(stdout);
}

/// The line of limits: "roofline of the slowest rank: fp32 151 GFLOP/s, …".
void print_limits(bench::KernelLimits& limits, const std::vector<kernels::Precision>& precisions) {
  std::string text;
  for (const auto p : precisions) {
    const auto peak = limits.peak(p);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(p),
                        peak.value > 0 ? core::to_text(peak) : "of unknown peak");
  }
  for (const auto& l : limits.levels()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", l.name, core::to_text(l.rate));
  }
  core::print("roofline of the slowest rank while all work: {}\n\n", text);
  std::fflush(stdout);
}

struct Sweep {
  const KernelRequest& request;
  Format format;
  std::size_t width;  ///< of tables
  const OutputFlags& output;
  Earlier earlier;
  const Invocation& invocation;
};

/// The exit code, the same on every rank; the first says why.
int end(bool is_root, std::size_t wrong, std::size_t total, const std::vector<std::string>& faults) {
  if (wrong && is_root) {
    core::print(stderr, "gradmeter: {} of {} points gave wrong results and were not timed\n", wrong, total);
  }
  if (!faults.empty() && is_root) {
    core::print(stderr, "gradmeter: {} row{} of --problems left out: see above\n", faults.size(),
                faults.size() == 1 ? " was" : "s were");
  }
  if (wrong) return static_cast<int>(core::ExitCode::wrong_result);
  return static_cast<int>(faults.empty() ? core::ExitCode::done : core::ExitCode::usage);
}

/// Collective over `c`, rank 0 of which is the world's.
int sweep(bench::Session& session, const runtime::Communicator& c, Sweep s, core::ResultWriter* writer,
          const bench::FinishedRows& finished) {
  const bool root = session.is_root();
  const auto& options = s.request.options;
  const std::size_t total = bench::plan_kernels(options.factors).size();
  runtime::Progress progress("points", total, root);
  RowOutput out(s.format, {report::kernel_tables, report::kernel_csv()}, s.width, session.run_info().run_id, writer,
                progress);
  if (root) {
    if (!s.earlier.note.empty()) core::print(stderr, "{}\n", s.earlier.note);
    complain(s.request.faults);
    out.head(session.run_info());
    if (s.format == Format::table) print_kernels_head(session, bench::placement_of(session, c, options.threads));
  }
  const bool has_rates = !session.device().is_emulated();
  const bench::KernelListener listener{.limits =
                                           [&](bench::KernelLimits& limits, const auto& precisions) {
                                             if (s.format == Format::table && has_rates)
                                               print_limits(limits, precisions);
                                           },
                                       .rows = checking(out.listener(), session.device(), session.device_note())};
  try {
    const std::size_t wrong = bench::run_kernels(session, c, options, finished, listener);
    if (root) out.finish();
    if (root && s.format == Format::table) {
      core::print("{}", report::kernel_legend());
      out.close(s.invocation);
    }
    return end(root, wrong, total, s.request.faults);
  } catch (const core::Interrupted&) {
    if (root) {
      out.finish();
      core::print(stderr, "gradmeter: interrupted after {} of {} points{}\n", out.count(), total,
                  writer ? fmt::format("; they are in {}: go on with --resume", writer->path().string()) : "");
    }
    throw;
  }
}

/// Ranks that take no part sleep until rank 0 is done, and end as it does.
int among(bench::Session& session, bool solo, const std::function<int(const runtime::Communicator&)>& work) {
  const auto& world = session.world();
  if (!solo || world.size() == 1) return work(world);
  const auto alone = world.split(world.rank() == 0 ? 0 : -1, 0);
  int code = 0, signal = 0;
  {
    const runtime::Pause sitting_out(session.activity());
    try {
      if (!alone.is_null()) code = work(alone);
    } catch (const core::Interrupted& e) {
      signal = e.signal();
    }
    world.sleeping_barrier();
  }
  signal = world.broadcast_value(signal);
  if (signal) throw core::Interrupted(signal);
  return world.broadcast_value(code);
}

int measure_kernels(const Flags& f, const Invocation& invocation) {
  bench::Session session(*invocation.world, invocation.process, parse_time("--timeout", f.text("timeout")),
                         invocation.command_line);
  const auto& world = session.world();
  check_only("--device", f.text("device"), device_names);
  const OpenedDevice device = open_device(f.text("device"), world);
  session.compute_on(device.device, device.note, device.gauge);
  if (session.is_root() && !device.note.empty()) core::print(stderr, "{}\n", device.note);
  std::string problems;
  agree(world, [&] { problems = read_problems_file(f); });
  problems = world.broadcast_text(problems);
  const int ranks = f.on("solo") ? 1 : world.size();
  const int threads = std::max(1, session.cores_per_node() / session.ranks_per_node(ranks));
  const auto request = read_kernel_request(f, problems, ranks, threads);
  bench::plan_kernels(request.options.factors);  // refuses a plan without points
  const Format format = read_format(f);
  const OutputFlags output = read_output_flags(f);
  Earlier earlier;
  core::ResultWriter* writer = nullptr;
  agree(world, [&] { earlier = check_output(output, session.run_info(), "kernels"); });
  const auto finished = share_finished(world, earlier.finished);
  agree(world, [&] { writer = invocation.output->open(output, session.run_info()); });
  return among(session, f.on("solo"), [&](const runtime::Communicator& c) {
    return sweep(session, c, {request, format, table_width(f), output, earlier, invocation}, writer, finished);
  });
}

}  // namespace

Usage kernels_usage() {
  return {
      .flags = describe_kernels(),
      .about =
          "gradmeter kernels: DeepBench's operations and yours on every rank at once, checked against float64, timed,\n"
          "and held against the roofline of the same run\n"
          "\n"
          "gradmeter kernels --op gemm --set training --precision fp32,bf16 --out r.jsonl\n"
          "mpirun -np 4 gradmeter kernels --op conv --filter Resnet --cache hot,cold"};
}

int run_kernels_command(const Flags& flags, const Invocation& invocation) {
  return flags.on("dry-run") ? print_kernels_plan(flags) : measure_kernels(flags, invocation);
}

}  // namespace gradmeter::cli
