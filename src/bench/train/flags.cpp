// SPDX-License-Identifier: Apache-2.0
#include "bench/train/flags.hpp"

#include <array>

#include "bench/engine/command.hpp"
#include "bench/engine/flags.hpp"
#include "bench/engine/tuning.hpp"
#include "bench/train/training.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/optimizers/weight_format.hpp"
#include "model/data/dataset.hpp"
#include "model/registry.hpp"

namespace gradmeter::bench {

namespace {

/// Runs `check` on every rank, for facts that may differ between nodes, such as their files. If it throws a UsageError
/// on any rank, all ranks throw one with the text of the lowest such rank. The text names that rank unless all ranks
/// threw.
template <class Check>
void agree_everywhere(const runtime::Communicator& world, Check check) {
  std::string mine;
  try {
    check();
  } catch (const core::UsageError& e) {
    mine = e.what();
  }
  const auto bad = runtime::first_report(world, mine);
  if (bad.text.empty()) return;
  throw core::UsageError(bad.by_all ? bad.text : fmt::format("rank {}: {}", bad.rank, bad.text));
}

}  // namespace

TrainingDataFacts read_data_shape(const std::string& directory) {
  if (directory.empty()) return {};
  const auto data = model::make_data({.source = directory});
  return {facts_of(data), model::is_drawn({.source = directory}) ? SIZE_MAX : data.train->size()};
}

TrainingDataFacts agree_on_data(const runtime::Communicator& world, const std::string& directory) {
  TrainingDataFacts shape;
  if (directory.empty()) return shape;
  const auto node = world.split_by_node();
  agree_everywhere(world, [&] {
    std::string fault;
    if (node.rank() == 0) {
      try {
        shape = read_data_shape(directory);
      } catch (const core::UsageError& e) {
        fault = e.what();
      }
    }
    if (fault = node.broadcast_text(fault); !fault.empty()) throw core::UsageError(fault);
  });
  shape = node.broadcast_value(shape);
  return shape;
}

void check_enough(const TrainingDataFacts& shape, const std::string& directory, std::size_t batch_global) {
  if (batch_global <= shape.train_samples) return;
  throw core::UsageError(
      fmt::format("a step takes {} samples, batch times ranks, and {} holds {}; choose a smaller --batch", batch_global,
                  directory, shape.train_samples));
}

namespace {

using core::UsageError;

std::vector<dataparallel::StrategyPtr> parse_strategies(const std::string& text) {
  std::vector<dataparallel::StrategyPtr> out;
  auto add = [&](std::string_view name) {
    auto s = naming_flag("--strategy", [&] { return dataparallel::find_strategy(name); });
    const bool had = std::any_of(out.begin(), out.end(), [&](const auto& b) { return s->name == b->name; });
    if (!had) out.push_back(std::move(s));
  };
  for (const auto& item : split_list("--strategy", text)) {
    if (item != "all") {
      add(item);
      continue;
    }
    for (const auto& s : dataparallel::strategies()) add(s.name);
  }
  return out;
}

/// Replaces each strategy that has servers by one strategy for each of these numbers of servers. Errors: UsageError if
/// no strategy has servers.
std::vector<dataparallel::StrategyPtr> with_servers(const std::vector<dataparallel::StrategyPtr>& strategies,
                                                    const std::vector<std::uint64_t>& servers) {
  std::vector<dataparallel::StrategyPtr> out;
  bool any = false;
  for (const auto& s : strategies) {
    const bool serves = s->info().communication == dataparallel::CommunicationPattern::client_server;
    any |= serves;
    if (!serves) out.push_back(s);
    for (const auto n : servers) {
      if (serves) out.push_back(s->with_servers(static_cast<int>(n)));
    }
  }
  if (any) return out;
  throw UsageError(
      "--servers: no strategy with servers was asked for; ps-async is one, see servers= in 'list strategies'");
}

/// Reads meshes that are separated by semicolons, since they have commas in them: "data=2,tensor=2;data=4".
std::vector<dataparallel::MeshShape> parse_meshes(const std::string& text) {
  std::vector<dataparallel::MeshShape> out;
  std::string_view rest = text;
  for (;;) {
    const std::size_t end = rest.find(';');
    auto shape = naming_flag("--mesh", [&] { return dataparallel::parse_mesh(rest.substr(0, end)); });
    if (std::find(out.begin(), out.end(), shape) == out.end()) out.push_back(shape);
    if (end == std::string_view::npos) return out;
    rest.remove_prefix(end + 1);
  }
}

std::vector<Overlap> parse_overlaps(const std::string& text) {
  using enum Overlap;
  if (text == "all") return {none, bucketed};  // automatic is one of these
  const std::vector choices{automatic, none, bucketed};
  return choose("--overlap", "overlap", text, choices, [](auto o) { return std::string(name(o)); });
}

/// Reads the sizes of buckets; "auto" becomes automatic_bucket.
std::vector<Setting> parse_buckets(const std::string& text) {
  std::vector<std::size_t> sizes;
  for (const auto& item : split_list("--bucket", text)) {
    const bool automatic = item == "auto";
    const std::size_t bytes = automatic ? automatic_bucket : parse_size("--bucket", item);
    if (bytes > 0 && bytes < 1024) throw UsageError(fmt::format("--bucket {}: at least 1K, or 0 for one bucket", item));
    if (std::find(sizes.begin(), sizes.end(), bytes) == sizes.end()) sizes.push_back(bytes);
  }
  std::vector<Setting> out;
  for (const std::size_t bytes : sizes) out.push_back([bytes](TrainingConfig& c) { c.bucket_bytes = bytes; });
  return out;
}

/// The name of a layer table with its widths divided; names of other models stay.
std::string shrunk_name(const std::string& name, std::uint64_t divisor) {
  const core::ParsedName parsed = core::parse_name(name);
  const bool is_trainable =
      std::ranges::any_of(model::model_table(), [&](const auto& m) { return m.name == parsed.base; });
  if (divisor == 1 || is_trainable || parsed.parameters.contains("shrink")) return name;
  return fmt::format("{}{}shrink={}", name, name.find(':') == std::string::npos ? ":" : ",", divisor);
}

std::vector<Setting> parse_accumulate(const std::string& text) {
  std::vector<Setting> out;
  for (const auto n : parse_counts("--accumulate", text, 1, 1u << 20)) {
    out.push_back([n](TrainingConfig& c) { c.accumulate = n; });
  }
  return out;
}

std::vector<kernels::Precision> precisions_of(const std::string& text) {
  return choose("--precision", "precision", text, kernels::precisions(),
                [](auto p) { return std::string(kernels::name(p)); });
}

std::vector<Setting> parse_precisions(const std::string& text) {
  std::vector<Setting> out;
  for (const auto p : precisions_of(text)) out.push_back([p](TrainingConfig& c) { c.precision = p; });
  return out;
}

std::vector<Setting> parse_updates(const std::string& text) {
  std::vector<Setting> out;
  for (const auto& name : split_list("--update", text)) {
    (void)dataparallel::make_update_format(name);
    out.push_back([name](TrainingConfig& c) { c.weight_format = name; });
  }
  return out;
}

std::vector<Setting> parse_loss_scales(const std::string& text) {
  std::vector<Setting> out;
  for (const auto& name : split_list("--loss-scale", text)) {
    const auto scaling = naming_flag("--loss-scale", [&] { return dataparallel::parse_loss_scaling(name); });
    out.push_back([scaling](TrainingConfig& c) { c.loss_scale = scaling; });
  }
  return out;
}

enum class Gradients { fp32, own };
std::vector<Gradients> gradients_of(const std::string& text) {
  const std::vector choices{Gradients::fp32, Gradients::own};
  return choose("--gradients", "format of gradients", text, choices,
                [](auto g) { return g == Gradients::own ? "own" : "fp32"; });
}

std::vector<Setting> parse_gradients(const std::string& text) {
  std::vector<Setting> out;
  for (const auto g : gradients_of(text))
    out.push_back([g](TrainingConfig& c) { c.narrow_gradients = g == Gradients::own; });
  return out;
}

/// Checks `--gradients own`, which exchanges gradients in the precision's format. So it excludes a codec, and needs a
/// precision with such a format.
void check_gradients(const Flags& flags, const ScaleFactors& factors) {
  const auto asked = gradients_of(flags.text("gradients"));
  if (std::ranges::find(asked, Gradients::own) == asked.end()) return;
  if (std::ranges::any_of(factors.codecs, [](const auto& c) { return c != nullptr; }))
    throw UsageError(
        fmt::format("--gradients own and --codec {} name two formats for gradients; give one", flags.text("codec")));
  const auto precisions = precisions_of(flags.text("precision"));
  if (std::ranges::find(precisions, kernels::Precision::bf16) == precisions.end())
    throw UsageError(
        fmt::format("--gradients own: products in {} have no format that gradients are exchanged in; it "
                    "is for --precision bf16",
                    flags.text("precision")));
}

model::ModelRequest request_of(const Flags& flags, const TrainingDataFacts& data,
                               kernels::Precision p = kernels::Precision::fp32) {
  return {.features = data.features,
          .classes = data.classes,
          .labels = data.labels,
          .precision = p,
          .device = operation_device(flags.text("device"))};
}

/// Checks that each precision suits at least one of the models. Errors: UsageError with the last model's reason.
void check_precisions(const Flags& flags, const std::vector<std::string>& models, const TrainingDataFacts& data) {
  for (const auto p : precisions_of(flags.text("precision"))) {
    std::string why;
    for (const auto& name : models) {
      try {
        model::make_model(name, request_of(flags, data, p));
        why.clear();
        break;
      } catch (const UsageError& e) {
        why = e.what();
      }
    }
    if (!why.empty()) throw UsageError("--precision: " + why);
  }
}

/// A flag of train and scale, or of only that of the two in which it has a usual value (not null). settings: reads its
/// values; null if their meaning depends on data, ranks or strategy.
struct TrainingFlag {
  const char *name, *usual_in_train, *usual_in_scale, *help;
  std::vector<Setting> (*settings)(const std::string& text) = nullptr;
  bool ExchangeFactors::*applies = nullptr;  ///< as in TrainingFactor
};

constexpr std::array training_flags{
    TrainingFlag{"model", "mlp", "mlp",
                 "mlp, or its widths: mlp:784-1024-1024-10; cnn, lstm, gru, rnn; lstm-lm, gru-lm, rnn-lm, "
                 "transformer-lm with --data; in scale also layer tables: resnet50, FILE.csv; see list models"},
    TrainingFlag{"shrink", nullptr, "1", "divide the widths of layer tables by this"},
    TrainingFlag{"batch", "64", nullptr, "mini-batch of a worker"},
    TrainingFlag{"batch", nullptr, "64", "mini-batch of a worker (with strong scaling: of all workers together)"},
    TrainingFlag{"strategy", "sync", "independent,sync",
                 "sync, ps-async, model-averaging:every=16 …; see list strategies"},
    TrainingFlag{"servers", "", "",
                 "number of ranks that only serve as parameter servers; 0 (the default): every rank trains and serves"},
    TrainingFlag{
        "mesh", "data", "data",
        "how ranks share the model: data=2,tensor=2,pipeline=2,schedule=1f1b; in scale ';' separates several meshes"},
    TrainingFlag{"accumulate", "1", "1", "micro-batches in each step (gradient accumulation)", &parse_accumulate},
    TrainingFlag{"algorithm", "ring", "mpi,auto",
                 "all-reduce algorithm; auto: one of gradmeter's own, chosen by size; see list algorithms"},
    TrainingFlag{"tune-auto", "", "", tune_help},
    TrainingFlag{"transport", "auto", "auto", "auto, mpi, shm, hybrid (shm inside a node, mpi between), cuda-mpi"},
    TrainingFlag{"overlap", "auto", "auto",
                 "none; bucketed: communicate during backward, by a progress thread; auto: bucketed if that thread has "
                 "a core, for ad-psgd, and for servers on several nodes"},
    TrainingFlag{"bucket", "25M", "25M",
                 "gradient bytes sent together; the first bucket has 1M at most; 0: all in one; auto: the fastest of "
                 "some sizes and, beside backward, of buckets that end where ready times want it",
                 &parse_buckets, &ExchangeFactors::bucket},
    TrainingFlag{"threads", "", "", "compute threads of a rank; default: cores of a node / ranks of a node"},
    TrainingFlag{
        "precision", "fp32", "fp32",
        "number format of computation: fp32, bf16; for mlp also lns16, lns16-linear, lns16-f7 …; see list precisions",
        &parse_precisions},
    TrainingFlag{"update", "fp32", "fp32",
                 "number format of weights: fp32, bf16, bf16-kahan, bf16-sr, lns16, lns16-kahan …; see list updates",
                 &parse_updates},
    TrainingFlag{"gradients", "fp32", "fp32",
                 "number format in which gradients are sent: fp32; own: the format in which backward computes them "
                 "(needs --precision bf16)",
                 &parse_gradients},
    TrainingFlag{
        "loss-scale", "none", "none",
        "factor for the loss, so that small gradients stay in range: none, a number, dynamic:start=65536,grow=2000",
        &parse_loss_scales},
    TrainingFlag{"codec", "none", "none",
                 "how gradients are compressed: none, bf16, qsgd4:bucket=512, topk …; see list codecs"},
    TrainingFlag{"device", "cpu", "cpu", "cpu, cuda"},
    TrainingFlag{
        "data", "", "",
        "for digits: directory of MNIST's IDX files (default: built-in digits); for language models: language (built "
        "in) or FILE[:steps=N], in sequences of N words (35)"},
    TrainingFlag{"seed", "1", "1", "random seed of data, order, initial weights and codecs"},
};

}  // namespace

std::uint64_t read_shrink(const Flags& flags) {
  return flags.has("shrink") ? parse_count("--shrink", flags.text("shrink"), 1, 1024) : 1;
}

std::vector<std::string> parse_models(const std::string& text, std::uint64_t shrink, const TrainingDataFacts& data,
                                      std::string_view device) {
  std::vector<std::string> out;
  bool shrinks = false;
  std::vector<std::string> items = split_list("--model", text);
  if (items == std::vector<std::string>{"all"}) {
    items.clear();
    for (const auto& m : model::model_table()) items.emplace_back(m.name);
  }
  for (const auto& item : items) {
    const model::ModelRequest request{
        .features = data.features, .classes = data.classes, .labels = data.labels, .device = device};
    const std::string name = shrunk_name(item, shrink);
    shrinks |= name != item;
    out.push_back(model::make_model(name, request)->name());
  }
  if (shrink > 1 && !shrinks)
    throw UsageError(
        fmt::format("--shrink {}: divides widths of layer tables, and --model {} has none that does not say shrink= "
                    "itself; leave it out, or give one such as resnet50",
                    shrink, text));
  return out;
}

void add_training_flags(FlagList& flags, Values values) {
  for (const auto& flag : training_flags) {
    const char* usual = values == Values::one ? flag.usual_in_train : flag.usual_in_scale;
    if (usual) add_text(flags, flag.name, usual, flag.help);
  }
  if (values == Values::one)
    add_switch(flags, "strict", "on one rank, make communication flags an error instead of ignoring them");
}

ScaleFactors read_training_flags(const Flags& flags, const TrainingDataFacts& data, int usual_threads) {
  ScaleFactors out;
  out.models = parse_models(flags.text("model"), read_shrink(flags), data, operation_device(flags.text("device")));
  check_precisions(flags, out.models, data);
  for (const auto b : parse_counts("--batch", flags.text("batch"), 1, 1u << 20)) out.batches.push_back(b);
  out.strategies = parse_strategies(flags.text("strategy"));
  if (flags.has("servers")) {
    out.strategies = with_servers(out.strategies, parse_counts("--servers", flags.text("servers"), 0, 65536));
  }
  out.meshes = parse_meshes(flags.text("mesh"));
  for (const auto& flag : training_flags) {
    if (!flag.settings) continue;
    out.settings.push_back({fmt::format("--{}", flag.name), flag.settings(flags.text(flag.name)), flag.applies});
  }
  out.algorithms = parse_algorithms(flags.text("algorithm"), allreduce::CollectiveKind::all_reduce);
  check_tune(flags, out.algorithms);
  out.codecs = naming_flag("--codec", [&] { return compression::find_codecs(flags.text("codec")); });
  check_gradients(flags, out);
  out.transports = parse_transports(flags.text("transport"));
  out.overlaps = parse_overlaps(flags.text("overlap"));
  out.threads = flags.has("threads") ? to_ints(parse_counts("--threads", flags.text("threads"), 1, 1024))
                                     : std::vector<int>{usual_threads};
  out.common.seed = parse_count("--seed", flags.text("seed"), 0, UINT64_MAX);
  return out;
}

void set_usual_exchange(TrainingConfig& config) {
  for (const auto& flag : training_flags) {
    if (flag.applies) flag.settings(flag.usual_in_scale).front()(config);
  }
}

namespace {

/// The optimizer with all its parameters but the format of the weights, which is a factor of its own.
std::string canonical_optimizer(const TrainingConfig& config) {
  core::ParsedName name =
      core::parse_name(dataparallel::make_optimizer(config.optimizer_name(), {.elements = 1})->name());
  name.parameters.erase("update");
  return name.canonical();
}

}  // namespace

void fill_training(const TrainingConfig& config, const ExchangeFactors& applies, core::Factors& f) {
  using core::Factor;
  const auto integer = [](auto n) { return static_cast<std::int64_t>(n); };
  f[Factor::model] = config.model;
  f[Factor::batch_per_rank] = integer(config.batch_per_rank);
  if (config.accumulate > 1) f[Factor::accumulate] = integer(config.accumulate);
  f[Factor::threads] = integer(config.threads);
  f[Factor::precision] = std::string(kernels::name(config.precision));
  if (const auto format = dataparallel::update_format_of(config.optimizer_name()); format != "fp32")
    f[Factor::update] = format;
  if (const auto optimizer = canonical_optimizer(config); optimizer != "sgd") f[Factor::optimizer] = optimizer;
  if (config.loss_scale.used()) f[Factor::loss_scale] = config.loss_scale.text();
  if (config.narrow_gradients) f[Factor::gradients] = std::string(kernels::name(config.precision));
  f[Factor::strategy] = config.strategy->name;
  f[Factor::device] = config.device;
  if (config.injection.any()) f[Factor::inject] = config.injection.text();
  if (applies.algorithm) f[Factor::algorithm] = config.algorithm->name;
  if (applies.algorithm) f[Factor::op] = std::string("avg");
  if (applies.codec) f[Factor::codec] = config.codec ? config.codec->name : "none";
  if (applies.overlap) f[Factor::overlap] = std::string(name(config.overlap));
  if (!applies.bucket) return;
  if (config.bucket_bytes == automatic_bucket) {
    f[Factor::bucket_bytes] = std::string("auto");
  } else {
    f[Factor::bucket_bytes] = integer(config.bucket_bytes);
  }
}

void refuse_emulated(const Flags& flags, const std::vector<std::string>& models, const TrainingDataFacts& data) {
  for (const auto p : precisions_of(flags.text("precision")))
    for (const std::string& model : models)
      if (model::is_rounded_by_software(model, request_of(flags, data, p)))
        throw UsageError(
            fmt::format("--precision {0}: software rounds to it here in {1}, so that its time says nothing about {0}; "
                        "train shows its accuracy",
                        kernels::name(p), model));
}

void require_learning(std::string_view what, const Flags& flags, const std::vector<std::string>& models,
                      const TrainingDataFacts& data) {
  for (const std::string& name : models) {
    if (model::make_model(name, request_of(flags, data))->learns()) continue;
    throw UsageError(
        fmt::format("{}: {} is a table of layers, which computes and exchanges but does not learn; take a model that "
                    "does, or scale without --learn",
                    what, name));
  }
}

std::string data_directory(const Flags& flags) { return flags.has("data") ? flags.text("data") : ""; }

std::string unused_note(std::string_view command, const Flags& flags, const ExchangeFactors& used, int ranks) {
  struct Factor {
    const char *flag, *means_nothing;  ///< the value that has the same effect as leaving the flag out
    bool ExchangeFactors::*applies;
    const char* wants = "two or more ranks";
  };
  constexpr std::array factors{
      Factor{"algorithm", "", &ExchangeFactors::algorithm}, Factor{"codec", "none", &ExchangeFactors::codec},
      Factor{"transport", "auto", &ExchangeFactors::transport,
             "two or more ranks, algorithms that are not the vendor's"},
      Factor{"overlap", "none", &ExchangeFactors::overlap}, Factor{"bucket", "", &ExchangeFactors::bucket}};
  std::vector<std::string> unused;
  for (const auto& [flag, means_nothing, applies, wants] : factors) {
    if (used.*applies || !flags.given(flag) || flags.text(flag) == means_nothing) continue;
    if (ranks == 1 && !flags.on("strict")) {
      unused.push_back(fmt::format("--{} {}", flag, flags.text(flag)));
      continue;
    }
    std::vector<std::string_view> users;
    for (const auto& s : dataparallel::strategies()) {
      if (exchange_factors(*dataparallel::find_strategy(s.name)).*applies) users.push_back(s.name);
    }
    throw UsageError(
        fmt::format("{}: --{} {} would change nothing here: it is for {} and the strategies {}; leave it out, or "
                    "ask for one of these",
                    command, flag, flags.text(flag), wants, fmt::join(users, ", ")));
  }
  if (ranks == 1 && flags.given("servers") && !flags.on("strict"))
    unused.push_back(fmt::format("--servers {}", flags.text("servers")));
  if (unused.empty()) return {};
  return fmt::format("note: one rank exchanges nothing, so {} change{} nothing", fmt::join(unused, ", "),
                     unused.size() == 1 ? "s" : "");
}

}  // namespace gradmeter::bench
