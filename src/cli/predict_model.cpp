// SPDX-License-Identifier: Apache-2.0
#include "cli/predict_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cli/predict_what_if.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/print.hpp"
#include "dataparallel/strategy.hpp"
#include "predict/collective.hpp"
#include "predict/layer_step.hpp"
#include "predict/machines.hpp"
#include "report/cells.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

/// Sets the model, and for `gpt:layers=…` the sizes that its parameters give. Errors: UsageError.
void read_network(const std::string& text, predict::TrainingStep& step) {
  step.model = text;
  const core::ParsedName parsed = core::parse_name(text);
  if (parsed.base != "gpt") return;
  const std::map<std::string, std::size_t*> counts{
      {"layers", &step.layers}, {"hidden", &step.hidden}, {"heads", &step.heads},     {"kv", &step.kv_heads},
      {"ffn", &step.ffn},       {"seq", &step.sequence},  {"vocab", &step.vocabulary}};
  for (const auto& [key, value] : parsed.parameters) {
    if (key == "gated") {
      if (value != "yes" && value != "no") throw UsageError("--model gpt: gated is yes or no");
      step.is_gated = value == "yes";
    } else if (const auto at = counts.find(key); at != counts.end()) {
      *at->second = static_cast<std::size_t>(parse_count("--model gpt " + key, value, 1, most_count));
    } else {
      throw UsageError(
          fmt::format("--model gpt: no parameter '{}'; it takes layers, hidden, heads, kv, ffn, gated, seq, vocab",
                      core::printable(key)));
    }
  }
  if (step.layers == 0 || step.hidden == 0)
    throw UsageError("--model gpt: needs layers and hidden, as gpt:layers=24,hidden=2048");
  if (step.is_gated && step.ffn == 0)
    throw UsageError("--model gpt: gated=yes needs ffn, the width of the feed-forward part");
  if (step.heads > 0 && step.hidden % step.heads != 0)
    throw UsageError(fmt::format("--model gpt: {} heads do not divide the hidden size {}", step.heads, step.hidden));
  if (step.kv_heads > 0 && (step.heads == 0 || step.heads % step.kv_heads != 0))
    throw UsageError("--model gpt: kv must divide heads");
}

/// Sets the degrees of a mesh; `data_degree` is that of the axis data, if it is given. Errors: UsageError.
void read_mesh(const std::string& text, predict::TrainingStep& step, std::optional<std::size_t>& data_degree) {
  for (const auto& [axis, value] : core::parse_name("mesh:" + text).parameters) {
    const auto degree = static_cast<std::size_t>(parse_count("--mesh " + axis, value, 1, most_count));
    if (axis == "tensor") {
      step.tensor = degree;
    } else if (axis == "pipeline") {
      step.pipeline = degree;
    } else if (axis == "context") {
      step.context = degree;
    } else if (axis == "virtual") {
      step.virtual_stages = degree;
    } else if (axis == "data") {
      data_degree = degree;
    } else {
      throw UsageError(
          fmt::format("--mesh: no axis '{}'; the axes are data, tensor, pipeline, context, and virtual (stages)",
                      core::printable(axis)));
    }
  }
}

/// Errors: UsageError for a mesh that is impossible on so many ranks, or for this network.
void check_mesh(const predict::TrainingStep& row, std::optional<std::size_t> data_degree) {
  const predict::TrainingStep step = predict::completed(row);
  const std::size_t replica_ranks = predict::replica_gpus(step);
  if (step.gpus % replica_ranks != 0)
    throw UsageError(fmt::format(
        "--mesh: {} ranks are no multiple of {} times {} times {}, which a replica takes; choose others for "
        "--ranks",
        step.gpus, step.tensor, step.pipeline, step.context));
  if (data_degree && *data_degree * replica_ranks != step.gpus)
    throw UsageError(fmt::format("--mesh: data={} times {} ranks of a replica are not {} ranks", *data_degree,
                                 replica_ranks, step.gpus));
  if (step.layers == 0) {
    if (replica_ranks > 1)
      throw UsageError("--mesh: predict does not split a layer table; leave tensor, pipeline and context out");
    return;
  }
  if (step.pipeline * step.virtual_stages > step.layers)
    throw UsageError(
        fmt::format("--mesh: {} layers make no {} stages", step.layers, step.pipeline * step.virtual_stages));
  if (step.virtual_stages > 1 && step.pipeline == 1)
    throw UsageError("--mesh: virtual stages are those of a pipeline; give pipeline above 1 too");
  if (step.heads > 0 && step.heads % step.tensor != 0)
    throw UsageError(fmt::format("--mesh: tensor={} does not divide {} heads", step.tensor, step.heads));
  if (step.context > 1 && step.sequence % step.context != 0)
    throw UsageError(fmt::format("--mesh: context={} does not divide {} tokens", step.context, step.sequence));
}

/// The system whose calibration is used: --system, or the only one of the tables of --calibrate; empty: there is no
/// table. Errors: UsageError.
std::string system_of(const Flags& f, const std::vector<std::string>& systems) {
  std::string asked = f.has("system") ? f.text("system") : "";
  if (std::ranges::find(systems, asked) != systems.end()) return asked;
  if (asked.empty() && systems.size() <= 1) return systems.empty() ? "" : systems.front();
  throw UsageError(fmt::format(
      "--system: name one of the systems of --calibrate: {}",
      systems.empty() ? "there is no table" : core::printable(fmt::format("{}", fmt::join(systems, ", ")))));
}

/// Errors: UsageError if no calibration row of the system is of the machine's device.
void check_device(const AskedStep& asked, const predict::Calibration& calibration) {
  std::set<std::string> devices;
  for (const predict::TrainingStep& row : calibration.rows()) {
    if (row.system != asked.step.system) continue;
    if (predict::is_same_device(row.gpu, asked.step.gpu)) return;
    devices.insert(row.gpu);
  }
  if (devices.empty()) return;
  throw UsageError(
      fmt::format("--machine: system {} is of {}, whose measured steps say nothing of {}; name that machine, or leave "
                  "--calibrate out",
                  core::printable(asked.step.system), core::printable(fmt::format("{}", fmt::join(devices, ", "))),
                  core::printable(asked.step.gpu)));
}

/// Reads the network and the machine that the flags describe; the number of ranks is set later. Errors: UsageError.
AskedStep read_asked(const Flags& f, const predict::Calibration& calibration, const std::vector<std::string>& systems,
                     std::optional<std::size_t>& data_degree) {
  const auto count = [&](const std::string& flag) {
    return static_cast<std::size_t>(parse_count("--" + flag, f.text(flag), 1, most_count));
  };
  AskedStep asked;
  const auto per_node = static_cast<std::uint32_t>(count("gpus-per-node"));
  asked.machine = predict::machine_named(f.text("machine"), per_node);
  if (const std::string why = predict::machine_refusal(asked.machine); !why.empty())
    throw UsageError(fmt::format("--machine {}: {}; name another", core::printable(f.text("machine")), why));
  if (f.given("gpus-per-node") || asked.machine.ranks_per_node == 0) asked.machine.ranks_per_node = per_node;
  predict::TrainingStep& step = asked.step;
  step.gpu = asked.machine.device->name;
  step.gpus_per_node = asked.machine.ranks_per_node;
  step.system = system_of(f, systems);
  if (!step.system.empty()) check_device(asked, calibration);
  if (!asked.machine.fit && !systems.empty() && predict::machine_of(step).machine)
    asked.machine.fit = calibration.machine(step).fit;
  if (f.has("link")) {
    asked.link = read_label(f, "link");
    predict::connect(asked.machine, "--link", asked.link);
  }
  step.precision = f.text("precision");
  step.recompute = f.text("recompute");
  if (f.has("attention")) step.attention = f.text("attention");
  step.micro_batch = count("micro-batch");
  step.is_sequence_parallel = f.on("sequence-parallel");
  step.zero_stage = static_cast<int>(parse_count("--zero", f.text("zero"), 0, 3));
  check_one_of("--precision", step.precision, {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"});
  check_one_of("--recompute", step.recompute, {"none", "selective", "full"});
  if (!step.attention.empty()) check_one_of("--attention", step.attention, {"flash", "plain"});
  read_network(read_label(f, "model"), step);
  if (f.has("mesh")) read_mesh(f.text("mesh"), step, data_degree);
  if (predict::completed(step).layers > 0) {
    if (step.sequence == 0) step.sequence = count("seq");
  } else if (const auto table = predict::find_layer_table(step.model)) {
    step.parameters = static_cast<double>(table->parameters());
    step.zero_stage = 0;
  } else if (systems.empty()) {
    std::vector<std::string_view> names;
    for (const auto& shape : predict::network_shapes()) names.push_back(shape.name);
    throw UsageError(
        fmt::format("--model: '{}' is no network; write gpt:layers=24,hidden=2048, a layer table of list models, "
                    "or one of {}",
                    core::printable(step.model), fmt::join(names, ", ")));
  }
  if (f.has("codec")) set_codec(f.text("codec"), asked);
  if (f.has("strategy")) {
    const int asked_zero = step.zero_stage;
    set_strategy(f.text("strategy"), asked);
    if (f.given("zero") && asked_zero != step.zero_stage)
      throw UsageError(fmt::format("--strategy {} has the optimizer's state of ZeRO stage {}; leave --zero out",
                                   core::printable(asked.strategy), step.zero_stage));
  }
  if (f.has("algorithm")) set_algorithm("--algorithm", f.text("algorithm"), asked);
  if (f.has("bucket")) set_bucket("--bucket", f.text("bucket"), asked);
  check_exchange(asked);
  return asked;
}

AskedStep with_ranks(AskedStep asked, std::uint64_t ranks, const Flags& f) {
  asked.step.gpus = static_cast<std::size_t>(ranks);
  asked.step.nodes = (asked.step.gpus + asked.machine.ranks_per_node - 1) / asked.machine.ranks_per_node;
  asked.step.id = fmt::format("{} ranks", ranks);
  asked.step.global_batch = static_cast<std::size_t>(
      f.has("batch-global") ? parse_count("--batch-global", f.text("batch-global"), 1, most_count * most_ranks)
                            : parse_count("--batch", f.text("batch"), 1, most_count) * ranks);
  return asked;
}

double to_gib(double bytes) { return bytes / (1u << 30); }

bool fits(const predict::Prediction& p, const core::Machine& m) {
  return !(m.device->memory_bytes > 0) || p.memory.total() <= m.device->memory_bytes;
}

/// The fewest changes of ZeRO stage, recomputation, micro-batch and mesh with which the step fits into memory, as
/// flags.
std::string what_would_fit(const AskedStep& asked) {
  struct Found {
    int changes;
    double bytes;
    std::string text;
  };
  std::optional<Found> best;
  const predict::TrainingStep completed_step = predict::completed(asked.step);
  const auto try_one = [&](predict::TrainingStep step) {
    const std::size_t replica_ranks = predict::replica_gpus(step);
    if (replica_ranks > step.gpus || step.gpus % replica_ranks != 0 || step.pipeline > completed_step.layers) return;
    if (!predict::TransformerStep::refusal(step).empty()) return;
    if (completed_step.heads > 0 && completed_step.heads % step.tensor != 0) return;
    const double bytes = predict::TransformerStep(step, asked.machine).memory().total();
    if (bytes > asked.machine.device->memory_bytes) return;
    std::vector<std::string> changes;
    if (step.zero_stage != asked.step.zero_stage) changes.push_back(fmt::format("--zero {}", step.zero_stage));
    if (step.recompute != asked.step.recompute) changes.push_back("--recompute " + step.recompute);
    if (step.micro_batch != asked.step.micro_batch)
      changes.push_back(fmt::format("--micro-batch {}", step.micro_batch));
    if (step.tensor != asked.step.tensor || step.pipeline != asked.step.pipeline)
      changes.push_back(fmt::format("--mesh tensor={},pipeline={}{}", step.tensor, step.pipeline,
                                    step.context > 1 ? fmt::format(",context={}", step.context) : ""));
    const int splits_more = static_cast<int>(step.tensor * step.pipeline > asked.step.tensor * asked.step.pipeline);
    const Found found{static_cast<int>(changes.size()) + splits_more, bytes,
                      fmt::format("{} would need {:.1f} GiB", fmt::join(changes, " "), to_gib(bytes))};
    if (!best || found.changes < best->changes) best = found;
  };
  for (const int zero_stage : {asked.step.zero_stage, 1, 2, 3}) {
    if (zero_stage < asked.step.zero_stage || (zero_stage > asked.step.zero_stage && !asked.strategy.empty())) continue;
    for (const std::string& recompute : {asked.step.recompute, std::string("selective"), std::string("full")}) {
      for (const std::size_t micro : {asked.step.micro_batch, std::size_t{1}}) {
        for (std::size_t tensor = asked.step.tensor; tensor <= asked.machine.ranks_per_node; tensor *= 2) {
          for (std::size_t pipeline = asked.step.pipeline; pipeline <= completed_step.layers; pipeline *= 2) {
            predict::TrainingStep step = asked.step;
            step.zero_stage = zero_stage, step.recompute = recompute, step.micro_batch = micro, step.tensor = tensor,
            step.pipeline = pipeline;
            try_one(std::move(step));
          }
        }
      }
    }
  }
  return best ? best->text : "no mesh, stage of ZeRO and recomputation on so many ranks fits";
}

/// The samples/s of a rank of the row, divided by those of one rank that computes alone on as many samples; empty if
/// the latter cannot be predicted, or only on another basis than the row: the error of a basis would look like a loss.
std::optional<double> efficiency_of(const PredictedRow& row, const predict::Calibration& calibration) {
  predict::TrainingStep one = row.asked.step;
  const double rank_batch = row.batch() / row.ranks();
  one.gpus = one.nodes = one.tensor = one.pipeline = one.context = one.virtual_stages = 1;
  one.zero_stage = 0;
  one.coding_passes = 0;
  one.micro_batch =
      std::clamp<std::size_t>(static_cast<std::size_t>(rank_batch), 1, std::max<std::size_t>(1, one.micro_batch));
  one.global_batch = std::max<std::size_t>(1, static_cast<std::size_t>(std::llround(rank_batch)));
  const auto alone = calibration.predict(one, row.asked.machine).prediction;
  if (!alone || alone->basis != row.prediction->basis) return std::nullopt;
  return rank_batch / row.prediction->seconds / (static_cast<double>(one.global_batch) / alone->seconds);
}

report::Columns<PredictedRow> columns(bool has_price) {
  using enum core::Align;
  const auto percent = [](double share) { return fmt::format("{:.0f}", 100 * share); };
  const auto of_step = [percent](double (PredictedRow::*part)() const) {
    return [percent, part](const PredictedRow& r) {
      return r.prediction ? percent((r.*part)() / r.prediction->seconds) : "-";
    };
  };
  const auto shown = [](auto text) {
    return [text](const PredictedRow& r) { return r.prediction ? text(r) : std::string("-"); };
  };
  report::Columns<PredictedRow> c;
  c.add({"ranks", "", right}, [](const PredictedRow& r) { return fmt::format("{}", r.asked.step.gpus); });
  c.add({"batch", "of all", right, 3},
        [](const PredictedRow& r) { return fmt::format("{}", r.asked.step.global_batch); });
  c.add({"step", "s", right}, shown([](const PredictedRow& r) { return report::digits(r.prediction->seconds); }));
  c.add({"90 %", "s", right}, shown([](const PredictedRow& r) {
          return fmt::format("{}–{}", report::digits(r.prediction->low), report::digits(r.prediction->high));
        }));
  c.add({"samples/s", "", right}, shown([](const PredictedRow& r) { return report::digits(r.samples_per_s()); }));
  c.add({"efficiency", "%", right},
        shown([=](const PredictedRow& r) { return r.efficiency ? percent(*r.efficiency) : "-"; }));
  c.add({"compute", "%", right, 2},
        shown([=](const PredictedRow& r) { return percent(r.prediction->parts.compute / r.prediction->seconds); }));
  c.add({"wire", "%", right, 1}, of_step(&PredictedRow::wire_s));
  c.add({"wait", "%", right, 2}, of_step(&PredictedRow::wait_s));
  c.add({"other", "%", right, 2}, of_step(&PredictedRow::other_s));
  c.add({"bound by", "", left}, shown([](const PredictedRow& r) { return r.bound_by(); }));
  c.add({"of peak", "%", right, 1},
        shown([=](const PredictedRow& r) { return r.utilisation() ? percent(*r.utilisation()) : "-"; }));
  c.add({"memory", "GiB", right, 1}, shown([](const PredictedRow& r) {
          return r.prediction->memory.total() > 0 ? report::digits(to_gib(r.prediction->memory.total())) : "-";
        }));
  if (has_price)
    c.add({"a million", "USD", right},
          shown([](const PredictedRow& r) { return report::digits(r.price_of_a_million().value_or(NAN)); }));
  c.add({"from", "", left, 3},
        shown([](const PredictedRow& r) { return std::string(predict::name(r.prediction->basis)); }));
  return c;
}

core::Json to_json(const PredictedRow& r) {
  core::Json json{{"ranks", r.asked.step.gpus}, {"predicted", r.prediction.has_value()}};
  if (!r.prediction) {
    json["reason"] = r.reason;
    return json;
  }
  const predict::Prediction& p = *r.prediction;
  json.update({{"batch_global", r.asked.step.global_batch},
               {"time_s", p.seconds},
               {"ci90_low", p.low},
               {"ci90_high", p.high},
               {"samples_per_s", r.samples_per_s()},
               {"efficiency", or_null(r.efficiency)},
               {"compute_s", p.parts.compute},
               {"wire_s", r.wire_s()},
               {"wait_s", r.wait_s()},
               {"other_s", r.other_s()},
               {"bound_by", r.bound_by()},
               {"flop_utilisation", or_null(r.utilisation())},
               {"from", predict::name(p.basis)},
               {"price_per_million_samples", or_null(r.price_of_a_million())}});
  if (r.asked.step.sequence > 0) json["tokens_per_s"] = r.samples_per_s() * static_cast<double>(r.asked.step.sequence);
  if (p.memory.total() > 0)
    json["memory_bytes"] = {{"weights", p.memory.weights},
                            {"gradients", p.memory.gradients},
                            {"optimizer", p.memory.optimizer},
                            {"activations", p.memory.activations},
                            {"total", p.memory.total()}};
  return json;
}

/// The row as a point of a result file.
core::Point to_point(const PredictedRow& r) {
  using core::Factor, core::Metric;
  core::Point out = predicted_point({r.prediction, r.reason});
  const predict::TrainingStep& step = r.asked.step;
  const auto whole = [](std::size_t n) { return core::Value(static_cast<std::int64_t>(n)); };
  auto& f = out.factors;
  f[Factor::ranks] = whole(step.gpus);
  f[Factor::nodes] = whole(step.nodes);
  f[Factor::ranks_per_node] = whole(std::min<std::size_t>(step.gpus, r.asked.machine.ranks_per_node));
  if (!r.asked.link.empty()) f[Factor::interconnect] = core::Value(r.asked.link);
  f[Factor::model] = core::Value(step.model);
  f[Factor::batch_global] = whole(step.global_batch);
  if (step.global_batch % step.gpus == 0) f[Factor::batch_per_rank] = whole(step.global_batch / step.gpus);
  f[Factor::precision] = core::Value(step.precision);
  if (step.sequence > 0)
    f[Factor::mesh] =
        core::Value(fmt::format("data={},tensor={},pipeline={},context={},virtual={},zero={},recompute={}",
                                step.gpus / predict::replica_gpus(step), step.tensor, step.pipeline, step.context,
                                step.virtual_stages, step.zero_stage, step.recompute));
  f[Factor::codec] = core::Value(r.asked.codec.empty() ? "none" : r.asked.codec);
  if (!r.asked.strategy.empty()) f[Factor::strategy] = core::Value(r.asked.strategy);
  if (!step.exchange.algorithm.empty()) f[Factor::algorithm] = core::Value(step.exchange.algorithm);
  if (step.exchange.bucket_bytes) f[Factor::bucket_bytes] = whole(*step.exchange.bucket_bytes);
  f[Factor::device] = core::Value(r.asked.machine.device->name);
  if (!r.prediction) return out;
  auto& m = out.metrics;
  m[Metric::samples_per_s] = core::Value(r.samples_per_s());
  if (r.efficiency) m[Metric::efficiency] = core::Value(*r.efficiency);
  m[Metric::compute_s] = core::Value(r.prediction->parts.compute);
  m[Metric::wire_s] = core::Value(r.wire_s());
  m[Metric::wait_s] = core::Value(r.wait_s());
  m[Metric::other_s] = core::Value(r.other_s());
  m[Metric::bound_by] = core::Value(r.bound_by());
  if (r.prediction->flops > 0) m[Metric::flops_per_s] = core::Value(r.prediction->flops / r.prediction->seconds);
  if (r.utilisation()) m[Metric::flop_utilisation] = core::Value(*r.utilisation());
  if (r.prediction->memory.total() > 0) m[Metric::memory_bytes] = core::Value(r.prediction->memory.total());
  return out;
}

void print_rows(const std::vector<PredictedRow>& rows, const Flags& f) {
  const auto described = columns(f.has("price"));
  auto table = described.table();
  for (const PredictedRow& r : rows) table.add_row(described.cells(r), r.prediction ? "" : core::printable(r.reason));
  const core::Machine& m = rows.front().asked.machine;
  core::print("{} in {} on {}{}, predicted\n{}\n", core::printable(f.text("model")), f.text("precision"),
              core::printable(m.device->name),
              rows.front().asked.link.empty() ? "" : " by " + core::printable(rows.front().asked.link),
              table.to_string(table_width(f)));
  if (std::ranges::any_of(rows, [](const PredictedRow& r) {
        return r.prediction && r.prediction->basis == predict::Basis::layer_costs;
      }))
    core::print(
        "The step of one rank is a sum over layers. Such sums were up to {:.1f} times too long or short for 9 of 10 "
        "measured ones; a calibration with a measured step of this network is far closer.\n",
        std::exp(predict::layer_step_spread));
}

/// The answer in one sentence.
void print_answer(const std::vector<PredictedRow>& rows) {
  std::vector<const PredictedRow*> predicted_rows;
  for (const PredictedRow& r : rows)
    if (r.prediction) predicted_rows.push_back(&r);
  const PredictedRow &first = *predicted_rows.front(), &last = *predicted_rows.back();
  core::print("{} take a step in {} ({} to {}) by prediction, bound by {}",
              report::counted(last.asked.step.gpus, "rank"), core::to_text(core::Seconds{last.prediction->seconds}),
              core::to_text(core::Seconds{last.prediction->low}), core::to_text(core::Seconds{last.prediction->high}),
              last.bound_by());
  if (predicted_rows.size() > 1 && first.prediction->basis == last.prediction->basis) {
    const double kept = last.samples_per_s() / last.ranks() / (first.samples_per_s() / first.ranks());
    core::print("; each keeps {:.0f} % of its rate on {}", 100 * kept, report::counted(first.asked.step.gpus, "rank"));
  }
  core::print(".\n");
}

}  // namespace

void set_codec(const std::string& name, AskedStep& asked) {
  const auto choice = compression::find_codec(name);
  asked.codec.clear();
  asked.step.gradient_bits = asked.step.coding_passes = 0;
  if (!choice) return;
  if (!choice->codec)
    throw UsageError(
        fmt::format("--codec {}: is made of collectives, whose time is not predicted; take a codec of fixed size",
                    core::printable(name)));
  asked.codec = choice->name;
  constexpr std::size_t elements = 1u << 20;
  constexpr double bits_per_byte = 8, fp32_bytes = 4;
  const double coded_bytes = static_cast<double>(choice->codec->wire_bytes(elements)) / elements;
  asked.step.gradient_bits = bits_per_byte * coded_bytes;
  asked.step.coding_passes = 2 * (fp32_bytes + coded_bytes) / fp32_bytes;
  const auto rates = asked.machine.codecs.find(choice->parsed.base);
  if (rates != asked.machine.codecs.end() && rates->second.encode > 0 && rates->second.decode > 0)
    asked.step.coding_passes =
        0.8 * asked.machine.device->memory_bytes_per_s * (1 / rates->second.encode + 1 / rates->second.decode);
}

void set_strategy(const std::string& name, AskedStep& asked) {
  const auto choice = dataparallel::find_strategy(name);
  const std::string_view base = choice->info().name;
  const bool averages = base == "model-averaging" || base == "bmuf";
  if (!averages && base != "sync" && base != "sharded" && base != "independent")
    throw UsageError(
        fmt::format("--strategy {}: is predicted from result files of scale only (--calibrate FILE.jsonl); for a "
                    "network there are sync, sharded, independent, model-averaging, bmuf",
                    core::printable(name)));
  asked.strategy = choice->name;
  asked.step.zero_stage = base == "sharded" ? 1 : 0;
  asked.step.exchange.averages_weights = averages;
  asked.step.exchange.every = base == "independent" ? 0 : averages ? choice->make({})->period() : 1;
}

void set_algorithm(const std::string& flag, const std::string& name, AskedStep& asked) {
  const auto choice = allreduce::find_algorithm(name);
  if (!predict::has_closed_form(choice->info().name))
    throw UsageError(
        fmt::format("{} {}: has no closed form for many ranks; take ring, rabenseifner, double-tree or another with a "
                    "schedule",
                    flag, core::printable(name)));
  asked.step.exchange.algorithm = choice->name;
}

void set_bucket(const std::string& flag, const std::string& size, AskedStep& asked) {
  asked.step.exchange.bucket_bytes = parse_size(flag, size);
}

void check_exchange(const AskedStep& asked) {
  const predict::ExchangeChoice& e = asked.step.exchange;
  const bool has_algorithm = !e.algorithm.empty(), has_bucket = e.bucket_bytes.has_value(),
             has_codec = !asked.codec.empty();
  if (e.every == 0 && (has_algorithm || has_bucket || has_codec))
    throw UsageError("--strategy independent exchanges nothing; leave --algorithm, --bucket and --codec out");
  if (e.averages_weights && (has_bucket || has_codec))
    throw UsageError(
        fmt::format("--bucket and --codec are of gradients, and {} sends weights; leave them out", asked.strategy));
  const bool is_table = predict::completed(asked.step).layers == 0;
  if (is_table && asked.step.zero_stage > 0)
    throw UsageError("--strategy sharded: the update of a layer table is not split; take sync");
  if (has_algorithm && asked.step.zero_stage > 0)
    throw UsageError(fmt::format(
        "--algorithm is of all-reduces, and ZeRO stage {} scatters and gathers instead; add --strategy sync",
        asked.step.zero_stage));
  if (has_bucket && asked.step.zero_stage == 3)
    throw UsageError("--bucket: ZeRO stage 3 sends layer by layer; leave it out, or take another --zero");
}

std::string PredictedRow::bound_by() const {
  constexpr double little = 0.05;
  const std::array lost{std::pair{wire_s(), "wire"}, std::pair{wait_s(), "wait"}, std::pair{other_s(), "other"}};
  const auto* most = std::ranges::max_element(lost);
  return wire_s() + wait_s() + other_s() < little * prediction->seconds ? "compute" : most->second;
}

std::optional<double> PredictedRow::price_of_a_million() const {
  constexpr double million = 1e6, hour = 3600;
  if (!(price_per_hour > 0)) return std::nullopt;
  return price_per_hour / hour * ranks() / samples_per_s() * million;
}

PredictedRow predicted(const AskedStep& asked, const predict::Calibration& calibration) {
  PredictedRow row{asked, {}, {}};
  auto [p, reason] = calibration.predict(asked.step, asked.machine);
  if (!p) return row.reason = std::move(reason), row;
  if (!fits(*p, asked.machine)) {
    const bool is_transformer = predict::completed(asked.step).layers > 0;
    row.reason = fmt::format("needs {:.1f} GiB a rank, where {} has {:.1f} GiB; {}", to_gib(p->memory.total()),
                             asked.machine.device->name, to_gib(asked.machine.device->memory_bytes),
                             is_transformer ? what_would_fit(asked) : "a smaller --batch may fit");
    return row;
  }
  row.prediction = std::move(p);
  row.efficiency = efficiency_of(row, calibration);
  return row;
}

void add_network_flags(FlagList& flags) {
  std::string names = "network whose step is predicted: gpt:layers=,hidden=,heads=,kv=,ffn=,gated=yes,seq=,vocab=; ";
  for (const auto& shape : predict::network_shapes()) names += fmt::format("{}, ", shape.name);
  add_text(flags, "model", "", (names + "or a layer table such as resnet50 or FILE.csv").c_str());
  add_text(flags, "machine", "H100", "a device as in list machines, or a machine's file as --output writes it");
  add_text(flags, "ranks", "",
           "numbers of devices: a list, or powers of two such as 1..65536; default: all of --nodes, without it "
           "8,64,512,4096 (with result files up to 65536)");
  add_text(flags, "nodes", "", "how many nodes, instead of --ranks");
  add_text(flags, "gpus-per-node", "8", "devices of a node");
  add_text(flags, "link", "",
           "between nodes, as in list links: 100GbE, NDR, 8xNDR (ports of a node), 400Gbit/s; default: a twelfth of "
           "what the links of a node's devices carry together");
  add_text(flags, "seq", "4096", "tokens of a sequence, where the model does not say them");
  add_text(flags, "system", "", "use the fit to this system (a value of the column system in --calibrate)");
  add_text(flags, "batch", "4",
           "samples of a step for each rank: the global batch is this times --ranks, whatever the mesh (weak scaling)");
  add_text(flags, "batch-global", "", "samples of all ranks together in a step (strong scaling), instead of --batch");
  add_text(flags, "micro-batch", "1", "samples that a replica of the model passes at once");
  add_text(flags, "mesh", "",
           "how ranks share the work, such as data=8,tensor=8,pipeline=4,context=1,virtual=2 (stages)");
  add_switch(flags, "sequence-parallel",
             "tensor-parallel ranks also split what lies between matrix products, such as layer norm");
  add_text(flags, "zero", "1", "stage of ZeRO: 0, 1, 2, 3 (FSDP); layer tables: always 0");
  add_text(flags, "precision", "bf16", "fp32, tf32, fp16, bf16, fp8, fp4");
  add_text(flags, "recompute", "none", "none, selective, full");
  add_text(flags, "attention", "", "flash or plain; default: plain on P100 and V100, else flash");
  add_text(flags, "strategy", "",
           "sync, sharded, independent, model-averaging:every=16, bmuf; default: what --zero says");
  add_text(flags, "algorithm", "",
           "all-reduce of the gradients, as in list algorithms; needs --strategy sync, model-averaging or bmuf, or "
           "--zero 0");
  add_text(flags, "bucket", "",
           "gradient bytes sent together; 0: all in one; default: perfect overlap, where only the part of "
           "communication that is longer than backward counts");
  add_text(flags, "codec", "", "codec of the gradients, as in list codecs");
  add_texts(flags, "what-if",
            "other values, as link=100GbE,400GbE: link, precision, codec, strategy, algorithm, bucket, machine, "
            "recompute, attention, zero, micro-batch; may be given several times");
  add_text(flags, "price", "", "USD an hour of one device, for the price of a million samples");
}

void predict_network(const Flags& f, const Invocation& invocation, const predict::Calibration& calibration,
                     const std::vector<std::string>& systems) {
  const OutputFlags output = read_output_flags(f);
  std::optional<std::size_t> data_degree;
  const AskedStep asked = read_asked(f, calibration, systems, data_degree);
  std::vector<std::uint64_t> ranks;
  if (f.has("ranks") && f.has("nodes")) throw UsageError("give one of --ranks and --nodes");
  if (f.has("nodes")) {
    for (const std::uint64_t n : parse_counts("--nodes", f.text("nodes"), 1, most_ranks))
      ranks.push_back(n * asked.machine.ranks_per_node);
  } else {
    ranks = parse_ranks(f.has("ranks") ? f.text("ranks") : "8,64,512,4096");
  }
  const double price = f.has("price") ? parse_number("--price", f.text("price"), 0, 1e6) : 0;
  std::vector<PredictedRow> rows;
  for (const std::uint64_t n : ranks) {
    const AskedStep step_on_ranks = with_ranks(asked, n, f);
    check_mesh(step_on_ranks.step, data_degree);
    rows.push_back(predicted(step_on_ranks, calibration));
    rows.back().price_per_hour = price;
  }
  if (std::ranges::none_of(rows, [](const PredictedRow& r) { return r.prediction.has_value(); }))
    throw UsageError(fmt::format("{} cannot be predicted on {}: {}", core::printable(f.text("model")),
                                 report::counted(rows.front().asked.step.gpus, "rank"),
                                 core::printable(rows.front().reason)));
  const WhatIf what_if(f, rows, calibration);
  std::vector<core::Point> points;
  for (const PredictedRow& r : rows) points.push_back(to_point(r));
  write_predictions(points, output, invocation);
  if (f.on("json")) {
    for (const PredictedRow& r : rows) core::print("{}\n", core::json_text(to_json(r)));
    what_if.print_json();
    return;
  }
  print_rows(rows, f);
  what_if.print(table_width(f));
  print_answer(rows);
}

}  // namespace gradmeter::cli
