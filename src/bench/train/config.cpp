// SPDX-License-Identifier: Apache-2.0
#include "bench/train/config.hpp"

#include <algorithm>
#include <array>

#include "bench/train/memory.hpp"
#include "compression/codecs/dgc.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/assembly.hpp"
#include "dataparallel/optimizers/layerwise.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategy.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::CommunicationPattern;

constexpr std::size_t slack = 4096;  ///< the bytes by which alignment may lengthen one allocation of the arena

/// The reason why the codec's work before encoding (clipping, a warm-up of its density) is impossible in this training;
/// empty: it is possible.
std::string codec_option_refusal(const TrainingConfig& config, const Layout& layout) {
  if (!exchange_factors(config, layout).codec || !config.codec) return {};
  if (compression::clip_of(config.codec) > 0 && layout.mesh.replica_ranks() > 1) {
    return fmt::format("{} clips by the norm of all tensors, and with mesh {} no rank has them all; leave out clip",
                       config.codec->label, layout.mesh.text());
  }
  if (config.strategy->info().communication == CommunicationPattern::client_server &&
      compression::warm_up_steps(config.codec->parsed) > 0) {
    return fmt::format("{}: servers have no density warm-up; leave out warmup, or take the strategy sync",
                       config.codec->label);
  }
  return {};
}

std::string loss_scale_refusal(const TrainingConfig& config, const Layout& layout, const model::Model& m) {
  if (!config.loss_scale.used()) return {};
  const auto& strategy = config.strategy->info();
  const std::string text = "--loss-scale " + config.loss_scale.text();
  if (strategy.optimizer.empty() || !m.learns())
    return fmt::format("{}: {} takes no gradient of a loss, so nothing would change; leave it out", text,
                       strategy.optimizer.empty() ? config.strategy->name : m.name());
  if (!config.loss_scale.adapts()) return {};
  if (!strategy.may_skip_steps)
    return fmt::format("{}: with {} ranks cannot skip a step together; take sync, sharded or independent, or a number",
                       text, config.strategy->name);
  if (layout.mesh.replica_ranks() > 1)
    return fmt::format(
        "{}: with mesh {} each rank has a part of the gradient, and would skip other steps; take a number", text,
        layout.mesh.text());
  if (exchange_factors(config, layout).codec && config.codec &&
      config.codec->exchange != compression::Exchange::schedule)
    return fmt::format("{}: {} may hide numbers that are not finite; take a codec that sends all elements, as bf16",
                       text, config.codec->info->name);
  return {};
}

std::string gradient_refusal(const TrainingConfig& config) {
  if (!config.narrow_gradients) return {};
  if (config.precision != kernels::Precision::bf16)
    return fmt::format("--gradients own is for --precision bf16: gradients of products in {} are exchanged in fp32",
                       kernels::name(config.precision));
  const auto pattern = config.strategy->info().communication;
  if (pattern == CommunicationPattern::all_reduce || pattern == CommunicationPattern::nothing) return {};
  return fmt::format("--gradients own: {} exchanges no gradients, or has them in fp32; take sync",
                     config.strategy->name);
}

std::string exchange_refusal(const TrainingConfig& config, const model::Model& m, allreduce::RankShape shape) {
  if (!config.algorithm) return {};
  if (auto why = config.algorithm->fault_refusal(config.injection.messages); !why.empty()) return why;
  if (!config.codec || !encodes_sums(config.strategy->info().communication)) return config.algorithm->refusal(shape);
  if (auto why = dataparallel::codec_refusal(config.codec, config.optimizer); !why.empty()) return why;
  const allreduce::ExchangeSpec spec{.max_bytes = m.element_count() * sizeof(float),
                                     .algorithm = config.algorithm,
                                     .codec = config.codec,
                                     .shape = shape};
  if (auto why = allreduce::codec_refusal(spec, allreduce::CollectiveKind::all_reduce, {}); !why.empty()) return why;
  const auto buckets = dataparallel::make_buckets(m.tensors(), m.element_count(), 0);
  if (buckets.empty()) return {};  // a stage of a pipeline without tensors exchanges nothing
  return allreduce::tensor_layout_refusal(spec, buckets.front().parts);
}

}  // namespace

allreduce::RankShape axis_shape(const Layout& layout, std::span<const int> node_of) {
  std::vector<int> nodes;
  for (int d = 0; d < layout.mesh.data; ++d) {
    auto at = layout.place;
    at.data = d;
    nodes.push_back(node_of[static_cast<std::size_t>(layout.mesh.rank(at))]);
  }
  return allreduce::shape_of(nodes);
}

std::string_view name(Overlap o) {
  constexpr std::array<std::string_view, 3> names{"none", "bucketed", "auto"};
  return names.at(static_cast<std::size_t>(o));
}

Overlap resolve(Overlap asked, CommunicationPattern pattern, const Occupancy& occupancy) {
  if (asked != Overlap::automatic) return asked;
  // A progress thread without a free core delays its rank's computation, and all ranks wait for the slowest one. Where
  // the link moves the bytes, the thread needs little of a core.
  const bool link_moves_bytes =
      uses_ports(pattern) && !(pattern == CommunicationPattern::client_server && occupancy.has_one_node());
  return link_moves_bytes || occupancy.has_spare_cores() ? Overlap::bucketed : Overlap::none;
}

dataparallel::StrategyOptions TrainingConfig::strategy_options() const {
  return {.bucket_bytes = bucket_bytes,
          .bucket_ends = bucket_ends,
          .overlap = overlap == Overlap::bucketed,
          .optimizer = optimizer_name(),
          .codec = exchange_factors(*strategy).codec ? codec : nullptr,
          .seed = seed,
          .loss_scale = loss_scale,
          .gradient_format = narrow_gradients ? "bf16" : "fp32"};
}

compression::CodecChoicePtr TrainingConfig::gradient_codec(compression::CodecChoicePtr given) const {
  // min=0: every tensor; ef=off: a gradient that is in bf16 already loses nothing that feedback could bring back.
  return narrow_gradients ? compression::find_codec("bf16:ef=off,min=0") : std::move(given);
}

Layout layout_of(const TrainingConfig& config, int ranks, int rank) {
  Layout layout{.mesh = config.mesh.complete(ranks)};
  layout.place = layout.mesh.place(rank);
  layout.workers = config.strategy->make(config.strategy_options())->workers(layout.mesh.data);
  if (layout.workers >= 1) return layout;
  throw core::UsageError(
      fmt::format("the servers of {} leave no worker among the {} ranks of a data axis: start more ranks",
                  config.strategy->name, layout.mesh.data));
}

namespace {

/// The precision of the loss. Where products and updates are in logarithms, so is the loss; else it is fp32.
kernels::Precision loss_precision(const TrainingConfig& config) {
  const bool everywhere = kernels::info(config.precision).logarithmic_sums &&
                          dataparallel::update_format_of(config.optimizer_name()).starts_with("lns16");
  return everywhere ? config.precision : kernels::Precision::fp32;
}

}  // namespace

std::string_view operation_device(std::string_view device) { return device == "cpu" ? "host" : "cuda"; }

bool is_rounded_by_software(const TrainingConfig& config, const DataFacts& facts) {
  return model::is_rounded_by_software(config.model, {.features = facts.features,
                                                      .classes = facts.classes,
                                                      .labels = facts.labels,
                                                      .precision = config.precision,
                                                      .device = operation_device(config.device)});
}

model::ModelRequest model_request(const TrainingConfig& config, const Layout& layout, const DataFacts& facts,
                                  model::Peers* peers) {
  const std::size_t piece = std::max(config.batch_per_rank, validation_piece);
  return {.features = facts.features,
          .classes = facts.classes,
          .labels = facts.labels,
          .precision = config.precision,
          .loss_precision = loss_precision(config),
          .part = layout.mesh.part(layout.place, config.accumulate, piece, peers),
          .worker = static_cast<std::uint64_t>(layout.place.data),
          .device = operation_device(config.device)};
}

std::unique_ptr<model::Model> sized_model(const TrainingConfig& config, const Layout& layout, const DataFacts& facts) {
  return model::make_model(config.model, model_request(config, layout, facts, nullptr));
}

ExchangeFactors exchange_factors(const dataparallel::StrategyChoice& strategy) {
  const CommunicationPattern pattern = strategy.info().communication;
  const bool buckets = pattern == CommunicationPattern::all_reduce || pattern == CommunicationPattern::sharded_buckets;
  return {
      .algorithm = buckets || pattern == CommunicationPattern::collectives || pattern == CommunicationPattern::changes,
      .codec = encodes_sums(pattern) || pattern == CommunicationPattern::client_server,
      .transport = pattern != CommunicationPattern::nothing,
      .overlap = buckets || uses_ports(pattern) || pattern == CommunicationPattern::overlapped_messages ||
                 strategy.overlaps_changes(),
      .bucket = buckets};
}

ExchangeFactors exchange_factors(const TrainingConfig& config, const Layout& layout) {
  ExchangeFactors found = exchanges(config, layout) ? exchange_factors(*config.strategy) : ExchangeFactors{};
  if (found.algorithm && config.algorithm && !config.algorithm->uses_transport())
    found.transport = false;  // a vendor's algorithm moves its bytes itself
  found.transport |= layout.mesh.replica_ranks() > 1;
  return found;
}

ExchangeFactors& ExchangeFactors::operator|=(const ExchangeFactors& o) {
  algorithm |= o.algorithm, codec |= o.codec, transport |= o.transport, overlap |= o.overlap, bucket |= o.bucket;
  return *this;
}

bool exchanges(const TrainingConfig& config, const Layout& layout) {
  return config.strategy->communicates() && layout.mesh.data > 1;
}

bool exchanges_buckets(const TrainingConfig& config, const Layout& layout) {
  return config.strategy->info().communication == CommunicationPattern::all_reduce && exchanges(config, layout) &&
         layout.mesh.replica_ranks() == 1;
}

std::optional<allreduce::TableUse> table_use(const TrainingConfig& config, const Layout& layout, const NodeMap& map) {
  const bool chooses =
      exchange_factors(config, layout).algorithm && config.algorithm && config.algorithm->is_plain_auto();
  if (!chooses || layout.mesh.replica_ranks() > 1) return std::nullopt;
  using enum runtime::TransportKind;
  const auto transport = config.transport != automatic ? config.transport : map.nodes() == 1 ? shm : hybrid;
  return allreduce::TableUse{.shape = axis_shape(layout, map.node_of), .transport = transport};
}

bool needs_progress_thread(const TrainingConfig& config, const Layout& layout) {
  if (uses_ports(config.strategy->info().communication)) return true;
  return config.overlap == Overlap::bucketed && exchange_factors(config, layout).overlap;
}

std::string refusal(const TrainingConfig& config, const DataFacts& facts, const NodeMap& map) {
  try {
    const Layout layout = layout_of(config, map.ranks(), 0);
    const auto m = sized_model(config, layout, facts);
    if (config.batch_per_rank % config.accumulate != 0) {
      return fmt::format("batch {} does not divide into {} micro-batches", config.batch_per_rank, config.accumulate);
    }
    const auto optimizer = dataparallel::make_optimizer(config.optimizer_name(), {.elements = 1});
    const auto strategy = config.strategy->make(config.strategy_options());
    if (const auto format = dataparallel::update_format_of(config.optimizer_name());
        format != "fp32" && !config.strategy->info().only_optimizer_changes_weights) {
      return fmt::format(
          "{} changes weights in fp32 beside its optimizer, so they are not in {}; use sync, sharded or ps-sync",
          config.strategy->name, format);
    }
    if (auto why = strategy->refusal(*optimizer, layout.mesh.data); !why.empty()) return why;
    if (auto why = codec_option_refusal(config, layout); !why.empty()) return why;
    if (auto why = gradient_refusal(config); !why.empty()) return why;
    if (auto why = loss_scale_refusal(config, layout, *m); !why.empty()) return why;
    if (auto why = runtime::transport_refusal(config.transport, map.ranks_as, config.device); !why.empty()) return why;
    if (auto why = config.algorithm ? config.algorithm->transport_refusal(config.transport) : ""; !why.empty())
      return why;
    if (!exchanges(config, layout)) return {};
    if (auto why = exchange_refusal(config, *m, axis_shape(layout, map.node_of)); !why.empty()) return why;
    // The fabric binds the algorithm to all of its groups, and the first of them has all ranks.
    if (!config.algorithm || layout.mesh.replica_ranks() == 1) return {};
    const auto why = config.algorithm->refusal(allreduce::shape_of(map.node_of));
    return why.empty() ? why : fmt::format("{} (a mesh's algorithm also serves all ranks together)", why);
  } catch (const core::UsageError& e) {
    return e.what();
  }
}

dataparallel::RankFabricOptions fabric_options(const TrainingConfig& config, const Layout& layout,
                                               const DataFacts& facts) {
  const LargestPart part = largest_part(config, layout, facts);
  const CommunicationPattern communication = config.strategy->info().communication;
  const bool encodes = encodes_sums(communication) && exchanges(config, layout);
  return {.exchange = {.max_bytes = std::max({part.parameters, part.peers.largest_sum_bytes, part.norm_message}),
                       .algorithm = exchanges(config, layout) ? config.algorithm : nullptr,
                       .codec = encodes ? compression::without_clip(config.codec) : nullptr},
          .codec_seed = config.seed,
          .transport = config.transport,
          // Parameters, gradients, evaluation weights, and a word for barriers.
          .memory_bytes =
              3 * (part.parameters + slack) + slack + part.peers.memory_bytes + part.strategy + part.norm_memory,
          .uses_reduce_scatter = communication == CommunicationPattern::collectives ||
                                 communication == CommunicationPattern::sharded_buckets ||
                                 dataparallel::needs_norm_sums(layout.mesh, config.optimizer),
          .background_threads = config.threads,
          .groups = 1 + dataparallel::Mesh::groups(layout.mesh)};
}

std::optional<WantedTable> wanted_table(const TrainingConfig& config, const DataFacts& facts, const NodeMap& map,
                                        std::vector<int> ranks) {
  const Layout layout = layout_of(config, map.ranks(), 0);
  const auto use = table_use(config, layout, map);
  if (!use) return std::nullopt;
  constexpr std::size_t least = 1 << 10;  // a bucket may be as small as the smallest tensor
  const std::size_t most = std::max(least, fabric_options(config, layout, facts).exchange.max_bytes);
  return WantedTable{.use = *use, .ranks = std::move(ranks), .map = map, .least_bytes = least, .most_bytes = most};
}

}  // namespace gradmeter::bench
