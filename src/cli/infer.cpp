// gradmeter infer: latency of forward passes, and what quantization after training costs in accuracy.
#include <cstdio>

#include "bench/infer/infer.hpp"
#include "cli/agree.hpp"
#include "cli/command.hpp"
#include "cli/devices.hpp"
#include "cli/flags/infer_flags.hpp"
#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "cli/terminal.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "report/tables.hpp"
#include "runtime/host/launcher.hpp"
#include "runtime/process/progress.hpp"

namespace gradmeter::cli {
namespace {

int print_infer_plan(const Flags& f) {
  if (planned_launcher(f).rank != 0) return 0;
  read_format(f);
  read_output_flags(f);
  const DataShape data = read_data_shape(f.has("data") ? f.text("data") : "");
  const auto options = read_infer_options(f, data, 1);
  const OpenedDevice opened = open_device(options.training.config.device);
  const runtime::Device& device = opened.device ? *opened.device : runtime::host_device();
  using enum core::Align;
  core::Table table({{"model", "", left}, {"batch", "", right}, {"precision", "", left}});
  std::size_t unsupported = 0;
  for (const auto& p : bench::plan_infer(options.factors)) {
    const auto why = bench::infer_refusal(p, {data.features, data.classes, data.labels}, device);
    table.add_row({p.model, p.is_timed() ? std::to_string(p.batch) : "-", std::string(kernels::name(p.precision))},
                  why.empty() ? "" : fmt::format("unsupported: {}", why));
    unsupported += !why.empty();
  }
  core::print("{}\n{} points, {} of them unsupported\n", table.to_string(table_width(f)), table.rows(), unsupported);
  return 0;
}

void print_infer_head(const bench::Session& s, const bench::TrainOnce& t, std::size_t train_samples) {
  const auto& i = s.run_info();
  core::print(
      "gradmeter {} ({})  infer  {} rank{} on {} node{}, {} thread{} each  {}\n"
      "trained in fp32 by rank 0: {} epoch{} of {} samples, batch {}, {}, step size {}; int8 calibrated on {}\n\n",
      i.version, i.commit, i.ranks, i.ranks == 1 ? "" : "s", i.nodes, i.nodes == 1 ? "" : "s", t.config.threads,
      t.config.threads == 1 ? "" : "s", i.cpu, t.epochs, t.epochs == 1 ? "" : "s", train_samples,
      t.config.batch_per_rank, t.config.optimizer, t.config.step_size, t.calibration_samples);
  std::fflush(stdout);
}

int end_infer(std::size_t wrong, std::size_t total, bool root) {
  if (wrong == 0) return static_cast<int>(core::ExitCode::done);
  if (root) core::print(stderr, "gradmeter: {} of {} points gave wrong results and were not timed\n", wrong, total);
  return static_cast<int>(core::ExitCode::wrong_result);
}

int measure_inference(const Flags& f, const Invocation& invocation) {
  bench::Session session(*invocation.world, invocation.process, parse_time("--timeout", f.text("timeout")),
                         invocation.command_line);
  const auto& world = session.world();
  const DataShape data = agree_on_data(world, f.has("data") ? f.text("data") : "");
  const auto options =
      read_infer_options(f, data, std::max(1, session.cores_per_node() / session.ranks_per_node(world.size())));
  const OpenedDevice device = open_device(options.training.config.device, world);
  session.compute_on(device.device, device.note, device.gauge);
  if (session.is_root() && !device.note.empty()) core::print(stderr, "{}\n", device.note);
  const Format format = read_format(f);
  const OutputFlags output = read_output_flags(f);
  Earlier earlier;
  core::ResultWriter* writer = nullptr;
  agree(world, [&] {
    earlier = check_output(output, session.run_info(), "infer");
    writer = invocation.output->open(output, session.run_info());
  });
  const auto finished = share_finished(world, earlier.finished);
  const bool root = session.is_root();
  const std::size_t total = bench::plan_infer(options.factors).size();
  runtime::Progress progress("points", total, root);
  RowOutput out(format, {report::infer_tables, report::infer_csv()}, table_width(f), session.run_info().run_id, writer,
                progress);
  if (root) {
    if (!earlier.note.empty()) core::print(stderr, "{}\n", earlier.note);
    out.head(session.run_info());
    if (format == Format::table)
      print_infer_head(session, options.training, std::min(data.train_samples, options.data.train_samples));
  }
  try {
    const std::size_t wrong =
        bench::run_infer(session, options, finished, checking(out.listener(), session.device(), session.device_note()));
    if (root) out.finish();
    if (root && format == Format::table) {
      core::print("{}", report::infer_legend());
      out.close(invocation);
    }
    return end_infer(wrong, total, root);
  } catch (const core::Interrupted&) {
    if (root) {
      out.finish();
      core::print(stderr, "gradmeter: interrupted after {} of {} points{}\n", out.count(), total,
                  writer ? fmt::format("; they are in {}: go on with --resume", writer->path().string()) : "");
    }
    throw;
  }
}

}  // namespace

Usage infer_usage() {
  return {.flags = describe_infer(),
          .about =
              "gradmeter infer: models trained in fp32, then quantized: how long a forward pass takes on every rank\n"
              "at once, with its tail, and how much accuracy each precision loses on the same samples\n"
              "\n"
              "gradmeter infer --model mlp,cnn,lstm --batch 1,4,16 --precision fp32,bf16,int8,int4 --out r.jsonl\n"
              "gradmeter infer --model resnet50 --batch 1,4"};
}

int run_infer_command(const Flags& flags, const Invocation& invocation) {
  return flags.on("dry-run") ? print_infer_plan(flags) : measure_inference(flags, invocation);
}

}  // namespace gradmeter::cli
