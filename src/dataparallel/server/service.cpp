// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/service.hpp"

#include <algorithm>
#include <vector>

#include "compression/codecs/dgc.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/optimizers/weight_format.hpp"

namespace gradmeter::dataparallel {
namespace {

PortOptions port_options(const Sharding& shards) {
  return {.payload_bytes = std::max<std::size_t>(1, shards.payload_bytes()), .in_flight = 8};
}

}  // namespace

std::string ServerStrategy::refusal(int ranks) const {
  if (workers(ranks) < 1) {
    return fmt::format("{} of {} ranks would only serve and none train; give it fewer servers", options_.servers,
                       ranks);
  }
  if (options_.rule.fresh_only && workers(ranks) > 1 && options_.rule.backups >= workers(ranks)) {
    return fmt::format("{} backup workers of {} leave none whose gradients count; use fewer", options_.rule.backups,
                       workers(ranks));
  }
  if (options_.optimizer != "add") {
    const auto optimizer = make_optimizer(options_.optimizer, {});
    if (optimizer->needs_whole_tensors()) {
      return fmt::format("{} needs whole tensors, but a server holds parts of them; use sgd or momentum",
                         optimizer->name());
    }
  }
  if (options_.optimizer == "add") {
    if (options_.codec && (compression::momentum_of(*options_.codec) > 0 || compression::clip_of(options_.codec) > 0)) {
      return fmt::format(
          "{} gathers gradients with their momentum and clips them, and what is sent here are none; use topk",
          options_.codec->info->name);
    }
  } else if (auto why = codec_refusal(options_.codec, options_.optimizer); !why.empty()) {
    return why;
  }
  if (options_.rule.compensation && options_.codec) {
    return "delay compensation needs the weights that a worker has, which a codec changes; use no codec";
  }
  if (auto why = Coding::refusal(options_.codec); !why.empty() || !options_.codec) return why;
  const auto format = update_format_of(options_.optimizer);
  if (format != "fp32" && Coding::why_dense_weights(*options_.codec).empty()) {
    return fmt::format(
        "workers add up in fp32 what servers send of the weights with codec {}, so their weights are not in {}; use no "
        "codec, or --update fp32",
        options_.codec->info->name, format);
  }
  return {};
}

ServicePlan ServerStrategy::plan(int ranks) const {
  const int workers = this->workers(ranks);
  // Chunks are not clipped, since the worker has clipped its whole gradient.
  const auto senders = static_cast<std::size_t>(std::max(1, workers));
  return {.options = options_,
          .workers = workers,
          .first_server = options_.servers > 0 ? workers : 0,
          .changes = Coding::of_changes(compression::without_clip(options_.codec), senders),
          .weights = Coding::of_weights(options_.codec)};
}

Sharding ServerStrategy::sharding(std::size_t elements, const ServicePlan& plan, int ranks) const {
  const int servers = options_.servers > 0 ? options_.servers : ranks;
  const bool encodes = plan.changes.encodes(Sharding::most_payload_bytes / sizeof(float));
  return {elements, static_cast<std::uint32_t>(servers), plan.changes.grain(),
          encodes ? Sharding::most_payload_bytes : Sharding::dense_payload_bytes};
}

std::size_t ServerStrategy::fabric_bytes(const model::Model& m, int ranks) const {
  const Sharding shards = sharding(m.element_count(), plan(ranks), ranks);
  return port_memory_bytes(port_options(shards), ranks) + Server::elements_needed(shards, 0) * sizeof(float) +
         memory_page_bytes;
}

std::size_t ServerStrategy::bytes_besides_fabric(const model::Model& m, int ranks) const {
  const std::size_t elements = m.element_count(), weight_bytes = elements * sizeof(float);
  const std::size_t served = Server::elements_needed(sharding(elements, plan(ranks), ranks), 0);
  const StepRule& rule = options_.rule;
  const auto workers = static_cast<std::size_t>(this->workers(ranks));
  // The number of copies of the served elements: one for the sum of changes, and those of the compensation.
  std::size_t copies = rule.changes_per_step(this->workers(ranks)) > 1 ? 1 : 0;
  if (rule.compensation) copies += workers + 2 + (rule.compensation->adaptive ? 1 : 0);
  const std::size_t state = options_.optimizer == "add" ? 0 : optimizer_bytes(options_.optimizer, served);
  const std::size_t residuals = options_.codec && options_.codec->feedback ? 2 * weight_bytes : 0;
  return weight_bytes + copies * served * sizeof(float) + state + residuals;  // a client keeps what it fetched
}

void ServerStrategy::begin(Worker& worker) {
  Strategy::begin(worker);
  if (const std::string why = refusal(worker.ranks()); !why.empty()) throw core::UsageError(why);
  const ServicePlan plan = this->plan(worker.ranks());
  const Sharding shards = sharding(worker.parameters().count(), plan, worker.ranks());
  Ports ports = worker.fabric().open(worker.axis(), port_options(shards));
  if (const int s = worker.rank() - plan.first_server; s >= 0 && shards.chunks(static_cast<std::uint32_t>(s)) > 0)
    serve(worker, shards, plan, static_cast<std::uint32_t>(s), std::move(ports.server));
  if (worker.rank() >= plan.workers) return;
  if (server_) ports.worker->while_waiting([server = server_] { return server->serve_one_message(); });
  server_client_ = std::make_unique<ServerClient>(worker.fabric(), std::move(ports.worker), shards, plan, worker.rank(),
                                                  worker.parameters());
}

/// Makes this rank's server, and starts it.
void ServerStrategy::serve(Worker& worker, const Sharding& shards, const ServicePlan& plan, std::uint32_t server,
                           std::unique_ptr<Port> port) {
  const Buffer memory = worker.fabric().memory(Server::elements_needed(shards, server));
  const std::span<float> at{reinterpret_cast<float*>(worker.queue().device().transport_address(memory)),
                            memory.count()};
  worker.queue().run_and_wait([&] {
    server_ = std::make_shared<Server>(plan, shards, server, worker.parameters().values<float>(),
                                       worker.model().tensors(), std::move(port), at);
  });
  background_task_ = worker.fabric().launch([server = server_](ExecutionContext& context) { server->run(context); });
}

void ServerStrategy::end(Worker&) {
  if (server_client_) {
    server_client_->settle();
    server_client_->disconnect();
    pushed_ = server_client_->pushed();
    server_client_.reset();  // gives the memory of the last message back to its sender
  }
  if (background_task_) background_task_->join();
  background_task_.reset();
}

std::vector<WeightsInPlace> ServerStrategy::held_weights(const Worker&) const {
  return server_ ? server_->held_weights() : std::vector<WeightsInPlace>();
}

Observations ServerStrategy::observed() const {
  Observations o = server_ ? server_->observed() : Observations{};
  o.updates = server_client_ ? server_client_->pushed() : pushed_;
  return o;
}

Forecast ServerStrategy::forecast(const ForecastInput& input, const RequestCounts& request_counts) const {
  const int ranks = static_cast<int>(input.ranks), workers = this->workers(ranks);
  if (workers < 1 || !Coding::refusal(options_.codec).empty()) return {.exact = false};
  const ServicePlan plan = this->plan(ranks);
  const Sharding shards = sharding(input.elements, plan, ranks);
  const Coding &changes = plan.changes, &weights = plan.weights;
  const bool dedicated = options_.servers > 0;
  const auto clients =
      static_cast<std::uint64_t>(dedicated ? workers : workers - 1);  // the workers on other ranks than a server's
  Forecast out;
  std::uint64_t all_up = 0, all_down = 0, busiest = 0;
  std::vector<std::uint64_t> up, down;  // by server: the bytes from one worker, and to one worker
  for (std::uint32_t i = 0; i < shards.servers(); ++i) {
    const std::uint64_t chunks = shards.chunks(i);
    if (chunks == 0) continue;
    out.messages +=
        clients * (2 * chunks * request_counts.pushes + chunks * request_counts.pulls + request_counts.separate_pulls);
    if (clients > 0 && ((request_counts.pushes > 0 && changes.variable(shards, i)) ||
                        (request_counts.pulls > 0 && weights.variable(shards, i)))) {
      out.exact = false, out.upper_bound = true;
    }
    up.push_back(request_counts.pushes * changes.wire_bytes(shards, i));
    down.push_back(request_counts.pulls * weights.wire_bytes(shards, i));
    all_up += up.back();
    all_down += down.back();
    if (!changes.variable(shards, i)) out.least += clients * up.back();
    if (!weights.variable(shards, i)) out.least += clients * down.back();
  }
  out.bytes = clients * (all_up + all_down);
  for (std::size_t i = 0; i < up.size(); ++i) {  // the bytes that the rank of server i sends and receives
    const std::uint64_t sent = clients * down[i] + (dedicated ? 0 : all_up - up[i]);
    const std::uint64_t received = clients * up[i] + (dedicated ? 0 : all_down - down[i]);
    busiest = std::max({busiest, sent, received});
  }
  // The bytes of a worker whose rank has no server, or a server without chunks.
  if (dedicated || up.size() < static_cast<std::size_t>(workers)) busiest = std::max({busiest, all_up, all_down});
  out.seconds = wire_seconds(input, static_cast<double>(busiest));
  out.least_of_one = out.exact ? busiest : out.least / input.ranks;
  return out;
}

}  // namespace gradmeter::dataparallel
