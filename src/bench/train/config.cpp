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
std::string codec_option_refusal(const TrainingConfig& c, const Layout& l) {
  if (!exchange_factors(c, l).codec || !c.codec) return {};
  if (compression::clip_of(c.codec) > 0 && l.mesh.replica_ranks() > 1) {
    return fmt::format("{} clips by the norm of all tensors, and with mesh {} no rank has them all; leave out clip",
                       c.codec->label, l.mesh.text());
  }
  if (c.strategy->info().communication == CommunicationPattern::client_server &&
      compression::warm_up_steps(c.codec->parsed) > 0) {
    return fmt::format("{}: servers have no density warm-up; leave out warmup, or take the strategy sync",
                       c.codec->label);
  }
  return {};
}

std::string loss_scale_refusal(const TrainingConfig& c, const Layout& l, const model::Model& m) {
  if (!c.loss_scale.used()) return {};
  const auto& strategy = c.strategy->info();
  const std::string text = "--loss-scale " + c.loss_scale.text();
  if (strategy.optimizer.empty() || !m.learns())
    return fmt::format("{}: {} takes no gradient of a loss, so nothing would change; leave it out", text,
                       strategy.optimizer.empty() ? c.strategy->name : m.name());
  if (!c.loss_scale.adapts()) return {};
  if (!strategy.may_skip_steps)
    return fmt::format("{}: with {} ranks cannot skip a step together; take sync, sharded or independent, or a number",
                       text, c.strategy->name);
  if (l.mesh.replica_ranks() > 1)
    return fmt::format(
        "{}: with mesh {} each rank has a part of the gradient, and would skip other steps; take a number", text,
        l.mesh.text());
  if (exchange_factors(c, l).codec && c.codec && c.codec->exchange != compression::Exchange::schedule)
    return fmt::format("{}: {} may hide numbers that are not finite; take a codec that sends all elements, as bf16",
                       text, c.codec->info->name);
  return {};
}

std::string gradient_refusal(const TrainingConfig& c) {
  if (!c.own_gradients) return {};
  if (c.precision != kernels::Precision::bf16)
    return fmt::format("--gradients own is for --precision bf16: gradients of products in {} are exchanged in fp32",
                       kernels::name(c.precision));
  const auto pattern = c.strategy->info().communication;
  if (pattern == CommunicationPattern::all_reduce || pattern == CommunicationPattern::nothing) return {};
  return fmt::format("--gradients own: {} exchanges no gradients, or has them in fp32; take sync", c.strategy->name);
}

std::string exchange_refusal(const TrainingConfig& c, const model::Model& m, allreduce::RankShape shape) {
  if (!c.algorithm) return {};
  if (auto why = c.algorithm->fault_refusal(c.injection.messages); !why.empty()) return why;
  if (!c.codec || !encodes_sums(c.strategy->info().communication)) return c.algorithm->refusal(shape);
  if (auto why = dataparallel::codec_refusal(c.codec, c.optimizer); !why.empty()) return why;
  const allreduce::ExchangeSpec spec{
      .max_bytes = m.element_count() * sizeof(float), .algorithm = c.algorithm, .codec = c.codec, .shape = shape};
  if (auto why = allreduce::codec_refusal(spec, allreduce::CollectiveKind::all_reduce, {}); !why.empty()) return why;
  const auto buckets = dataparallel::make_buckets(m.tensors(), m.element_count(), 0);
  if (buckets.empty()) return {};  // a stage of a pipeline without tensors exchanges nothing
  return allreduce::tensor_layout_refusal(spec, buckets.front().parts);
}

}  // namespace

allreduce::RankShape axis_shape(const Layout& l, std::span<const int> node_of) {
  std::vector<int> nodes;
  for (int d = 0; d < l.mesh.data; ++d) {
    auto at = l.place;
    at.data = d;
    nodes.push_back(node_of[static_cast<std::size_t>(l.mesh.rank(at))]);
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
          .gradients = own_gradients ? "bf16" : "fp32"};
}

compression::CodecChoicePtr TrainingConfig::gradient_codec(compression::CodecChoicePtr given) const {
  // min=0: every tensor; ef=off: a gradient that is in bf16 already loses nothing that feedback could bring back.
  return own_gradients ? compression::find_codec("bf16:ef=off,min=0") : std::move(given);
}

Layout layout_of(const TrainingConfig& c, int ranks, int rank) {
  Layout l{.mesh = c.mesh.complete(ranks)};
  l.place = l.mesh.place(rank);
  l.workers = c.strategy->make(c.strategy_options())->workers(l.mesh.data);
  if (l.workers >= 1) return l;
  throw core::UsageError(
      fmt::format("the servers of {} leave no worker among the {} ranks of a data axis: start more ranks",
                  c.strategy->name, l.mesh.data));
}

namespace {

/// The precision of the loss. Where products and updates are in logarithms, so is the loss; else it is fp32.
kernels::Precision loss_precision(const TrainingConfig& c) {
  const bool everywhere = kernels::info(c.precision).logarithmic_sums &&
                          dataparallel::update_format_of(c.optimizer_name()).starts_with("lns16");
  return everywhere ? c.precision : kernels::Precision::fp32;
}

}  // namespace

std::string_view operation_device(std::string_view device) { return device == "cpu" ? "host" : "cuda"; }

bool is_rounded_by_software(const TrainingConfig& c, const DataFacts& d) {
  return model::is_rounded_by_software(c.model, {.features = d.features,
                                                 .classes = d.classes,
                                                 .labels = d.labels,
                                                 .precision = c.precision,
                                                 .device = operation_device(c.device)});
}

model::ModelRequest model_request(const TrainingConfig& c, const Layout& l, const DataFacts& d, model::Peers* peers) {
  const std::size_t piece = std::max(c.batch_per_rank, validation_piece);
  return {.features = d.features,
          .classes = d.classes,
          .labels = d.labels,
          .precision = c.precision,
          .loss_precision = loss_precision(c),
          .part = l.mesh.part(l.place, c.accumulate, piece, peers),
          .worker = static_cast<std::uint64_t>(l.place.data),
          .device = operation_device(c.device)};
}

std::unique_ptr<model::Model> sized_model(const TrainingConfig& c, const Layout& l, const DataFacts& d) {
  return model::make_model(c.model, model_request(c, l, d, nullptr));
}

ExchangeFactors exchange_factors(const dataparallel::StrategyChoice& strategy) {
  const CommunicationPattern pattern = strategy.info().communication;
  const bool buckets = pattern == CommunicationPattern::all_reduce || pattern == CommunicationPattern::blocks;
  return {
      .algorithm = buckets || pattern == CommunicationPattern::collectives || pattern == CommunicationPattern::changes,
      .codec = encodes_sums(pattern) || pattern == CommunicationPattern::client_server,
      .transport = pattern != CommunicationPattern::nothing,
      .overlap = buckets || uses_ports(pattern) || pattern == CommunicationPattern::overlapped_messages ||
                 strategy.overlaps_changes(),
      .bucket = buckets};
}

ExchangeFactors exchange_factors(const TrainingConfig& c, const Layout& l) {
  ExchangeFactors found = exchanges(c, l) ? exchange_factors(*c.strategy) : ExchangeFactors{};
  if (found.algorithm && c.algorithm && !c.algorithm->uses_transport())
    found.transport = false;  // a vendor's algorithm moves its bytes itself
  found.transport |= l.mesh.replica_ranks() > 1;
  return found;
}

ExchangeFactors& ExchangeFactors::operator|=(const ExchangeFactors& o) {
  algorithm |= o.algorithm, codec |= o.codec, transport |= o.transport, overlap |= o.overlap, bucket |= o.bucket;
  return *this;
}

bool exchanges(const TrainingConfig& c, const Layout& l) { return c.strategy->communicates() && l.mesh.data > 1; }

bool exchanges_buckets(const TrainingConfig& c, const Layout& l) {
  return c.strategy->info().communication == CommunicationPattern::all_reduce && exchanges(c, l) &&
         l.mesh.replica_ranks() == 1;
}

std::optional<allreduce::TableUse> table_use(const TrainingConfig& c, const Layout& l, const NodeMap& map) {
  const bool chooses = exchange_factors(c, l).algorithm && c.algorithm && c.algorithm->is_plain_auto();
  if (!chooses || l.mesh.replica_ranks() > 1) return std::nullopt;
  using enum runtime::TransportKind;
  const auto transport = c.transport != automatic ? c.transport : map.nodes() == 1 ? shm : hybrid;
  return allreduce::TableUse{.shape = axis_shape(l, map.node_of), .transport = transport};
}

bool needs_progress_thread(const TrainingConfig& c, const Layout& l) {
  if (uses_ports(c.strategy->info().communication)) return true;
  return c.overlap == Overlap::bucketed && exchange_factors(c, l).overlap;
}

std::string refusal(const TrainingConfig& c, const DataFacts& d, const NodeMap& map) {
  try {
    const Layout l = layout_of(c, map.ranks(), 0);
    const auto m = sized_model(c, l, d);
    if (c.batch_per_rank % c.accumulate != 0) {
      return fmt::format("batch {} does not divide into {} micro-batches", c.batch_per_rank, c.accumulate);
    }
    const auto optimizer = dataparallel::make_optimizer(c.optimizer_name(), {.elements = 1});
    const auto strategy = c.strategy->make(c.strategy_options());
    if (const auto format = dataparallel::update_format_of(c.optimizer_name());
        format != "fp32" && !c.strategy->info().only_optimizer_changes_weights) {
      return fmt::format(
          "{} changes weights in fp32 beside its optimizer, so they are not in {}; use sync, sharded or ps-sync",
          c.strategy->name, format);
    }
    if (auto why = strategy->refusal(*optimizer, l.mesh.data); !why.empty()) return why;
    if (auto why = codec_option_refusal(c, l); !why.empty()) return why;
    if (auto why = gradient_refusal(c); !why.empty()) return why;
    if (auto why = loss_scale_refusal(c, l, *m); !why.empty()) return why;
    if (auto why = runtime::transport_refusal(c.transport, map.ranks_as, c.device); !why.empty()) return why;
    if (auto why = c.algorithm ? c.algorithm->transport_refusal(c.transport) : ""; !why.empty()) return why;
    if (!exchanges(c, l)) return {};
    if (auto why = exchange_refusal(c, *m, axis_shape(l, map.node_of)); !why.empty()) return why;
    // The fabric binds the algorithm to all of its groups, and the first of them has all ranks.
    if (!c.algorithm || l.mesh.replica_ranks() == 1) return {};
    const auto why = c.algorithm->refusal(allreduce::shape_of(map.node_of));
    return why.empty() ? why : fmt::format("{} (a mesh's algorithm also serves all ranks together)", why);
  } catch (const core::UsageError& e) {
    return e.what();
  }
}

dataparallel::RankFabricOptions fabric_options(const TrainingConfig& c, const Layout& l, const DataFacts& d) {
  const LargestPart part = largest_part(c, l, d);
  const CommunicationPattern communication = c.strategy->info().communication;
  const bool encodes = encodes_sums(communication) && exchanges(c, l);
  return {.exchange = {.max_bytes = std::max({part.parameters, part.peers.largest_sum_bytes, part.norm_message}),
                       .algorithm = exchanges(c, l) ? c.algorithm : nullptr,
                       .codec = encodes ? compression::without_clip(c.codec) : nullptr},
          .codec_seed = c.seed,
          .transport = c.transport,
          // Parameters, gradients, evaluation weights, and a word for barriers.
          .memory_bytes =
              3 * (part.parameters + slack) + slack + part.peers.memory_bytes + part.strategy + part.norm_memory,
          .scatters = communication == CommunicationPattern::collectives ||
                      communication == CommunicationPattern::blocks || dataparallel::shares_norms(l.mesh, c.optimizer),
          .background_threads = c.threads,
          .groups = 1 + dataparallel::Mesh::groups(l.mesh)};
}

std::optional<WantedTable> wanted_table(const TrainingConfig& c, const DataFacts& d, const NodeMap& map,
                                        std::vector<int> ranks) {
  const Layout l = layout_of(c, map.ranks(), 0);
  const auto use = table_use(c, l, map);
  if (!use) return std::nullopt;
  constexpr std::size_t least = 1 << 10;  // a bucket may be as small as the smallest tensor
  const std::size_t most = std::max(least, fabric_options(c, l, d).exchange.max_bytes);
  return WantedTable{.use = *use, .ranks = std::move(ranks), .map = map, .least_bytes = least, .most_bytes = most};
}

}  // namespace gradmeter::bench
