// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/mesh.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "dataparallel/optimizers/layerwise.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr int most_ranks = 1 << 20;

int axis_length(std::string_view mesh, std::string_view axis, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= 1 && value <= most_ranks) return value;
  throw core::UsageError(fmt::format("mesh '{}': {} is '{}'; an axis has 1 to {} ranks, as in data=4,tensor=2", mesh,
                                     axis, text, most_ranks));
}

void set(MeshShape& shape, std::string_view mesh, std::string_view key, std::string_view value) {
  static const std::array<std::string, 4> keys{"data", "tensor", "pipeline", "schedule"};
  if (key == "schedule") {
    shape.order = model::find_pipeline_order(value);
  } else if (key == "data") {
    shape.data = axis_length(mesh, key, value);
  } else if (key == "tensor") {
    shape.tensor = axis_length(mesh, key, value);
  } else if (key == "pipeline") {
    shape.pipeline = axis_length(mesh, key, value);
  } else {
    core::refuse_unknown("mesh axis", key, keys);
  }
}

class FabricTransfer final : public model::Transfer {
 public:
  FabricTransfer(Fabric& fabric, Ticket ticket) : fabric_(fabric), ticket_(std::move(ticket)) {}
  void wait() override { fabric_.wait(ticket_); }

 private:
  Fabric& fabric_;
  Ticket ticket_;
};

}  // namespace

MeshShape parse_mesh(std::string_view text) {
  MeshShape shape;
  std::set<std::string_view> seen;
  for (std::string_view rest = text; !rest.empty() || seen.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const bool has_no_value = equals == std::string_view::npos;
    if (has_no_value && key != "data") {
      throw core::UsageError(
          fmt::format("mesh '{}': '{}' is no axis with its ranks; write data=4,tensor=2,pipeline=2", text, item));
    }
    if (!seen.insert(key).second)
      throw core::UsageError(fmt::format("mesh '{}' gives {} twice; give it once", text, key));
    if (!has_no_value) set(shape, text, key, item.substr(equals + 1));
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
    if (rest.empty()) throw core::UsageError(fmt::format("mesh '{}' ends in a comma; take it away", text));
  }
  if (seen.contains("schedule") && shape.pipeline == 1) {
    throw core::UsageError(
        fmt::format("mesh '{}' has a schedule but no pipeline to follow it; add pipeline=2 or leave it out", text));
  }
  return shape;
}

std::string MeshShape::text() const {
  std::vector<std::string> parts;
  if (data > 1) parts.push_back(fmt::format("data={}", data));
  if (tensor > 1) parts.push_back(fmt::format("tensor={}", tensor));
  if (pipeline > 1) parts.push_back(fmt::format("pipeline={}", pipeline));
  if (order != model::PipelineOrder::one_f_one_b) parts.push_back(fmt::format("schedule={}", model::name(order)));
  return parts.empty() ? "data" : fmt::format("{}", fmt::join(parts, ","));
}

MeshShape MeshShape::complete(int world_ranks) const {
  MeshShape full = *this;
  const std::int64_t replica = std::int64_t{tensor} * pipeline;
  if (data == 0) {
    if (world_ranks % replica != 0) {
      throw core::UsageError(
          fmt::format("mesh '{}' holds one copy of the model on {} ranks, which {} ranks do not make whole; start a "
                      "multiple of {}",
                      text(), replica, world_ranks, replica));
    }
    full.data = static_cast<int>(world_ranks / replica);
  } else if (data * replica != world_ranks) {
    throw core::UsageError(fmt::format("mesh '{}' is made of {} ranks, but there are {}; start {} or change an axis",
                                       text(), data * replica, world_ranks, data * replica));
  }
  return full;
}

MeshPlace MeshShape::place(int rank) const {
  return {.data = rank / replica_ranks(), .stage = rank / tensor % pipeline, .tensor = rank % tensor};
}

int MeshShape::rank(MeshPlace p) const { return (p.data * pipeline + p.stage) * tensor + p.tensor; }

model::Part MeshShape::part(MeshPlace p, std::size_t micro_batches, std::size_t batch, model::Peers* peers) const {
  return {.tensor_rank = static_cast<std::size_t>(p.tensor),
          .tensor_ranks = static_cast<std::size_t>(tensor),
          .stage = static_cast<std::size_t>(p.stage),
          .stages = static_cast<std::size_t>(pipeline),
          .micro_batches = micro_batches,
          .order = order,
          .largest_batch = batch,
          .peers = peers};
}

int Mesh::groups(const MeshShape& s) {
  return (s.replica_ranks() > 1 ? 1 : 0) + (s.tensor > 1 ? 1 : 0) + (s.pipeline > 1 ? 1 : 0);
}

// The shape alone decides which splits are made, so all ranks call `split` equally often.
Mesh::Mesh(Fabric& fabric, const MeshShape& shape)
    : shape_(shape.complete(fabric.size(everybody))), place_(shape_.place(fabric.rank(everybody))) {
  if (shape_.replica_ranks() > 1) data_ = fabric.split(place_.stage * shape_.tensor + place_.tensor, place_.data);
  if (shape_.tensor > 1) tensor_ = fabric.split(place_.data * shape_.pipeline + place_.stage, place_.tensor);
  if (shape_.pipeline > 1) pipeline_ = fabric.split(place_.data * shape_.tensor + place_.tensor, place_.stage);
}

void Mesh::send_to_replica(Fabric& fabric, const Buffer& values) const {
  const int last = shape_.pipeline - 1;
  if (shape_.tensor > 1 && place_.stage == last) fabric.wait(fabric.broadcast(tensor(), values, 0, fabric.record()));
  if (shape_.pipeline > 1) fabric.wait(fabric.broadcast(pipeline(), values, last, fabric.record()));
}

void FabricPeers::sum(Buffer values) {
  fabric_.wait(fabric_.all_reduce(mesh_.tensor(), values, allreduce::Op::sum, fabric_.record()));
}

int FabricPeers::rank_of(model::OtherStage n) const {
  switch (n) {
    case model::OtherStage::previous:
      return mesh_.place().stage - 1;
    case model::OtherStage::next:
      return mesh_.place().stage + 1;
    case model::OtherStage::first:
      return 0;
    case model::OtherStage::last:
      break;
  }
  return mesh_.shape().pipeline - 1;
}

model::TransferPtr FabricPeers::send(model::OtherStage to, ConstBuffer values) {
  return std::make_unique<FabricTransfer>(fabric_,
                                          fabric_.send(mesh_.pipeline(), rank_of(to), values, fabric_.record()));
}

model::TransferPtr FabricPeers::receive(model::OtherStage from, Buffer values, runtime::EventPtr ready) {
  return std::make_unique<FabricTransfer>(fabric_,
                                          fabric_.receive(mesh_.pipeline(), rank_of(from), values, std::move(ready)));
}

Forecast forecast_stage(const ForecastInput& forecast_input, int tensor_ranks, const model::PeerTraffic& traffic) {
  ForecastInput input = forecast_input;
  input.ranks = static_cast<std::uint32_t>(tensor_ranks);
  input.ranks_per_node.reset();  // tensor ranks are neighbours, so they are taken to be on one node
  Forecast forecast = forecast_messages(input, input.ranks, traffic.messages, traffic.floats_sent * sizeof(float));
  for (const std::size_t floats : traffic.sums)
    forecast += forecast_collective(input, allreduce::CollectiveKind::all_reduce, floats);
  return forecast;
}

namespace {

Forecast forecast_norms(const ForecastInput& forecast_input, int tensor_ranks, std::span<const model::Tensor> tensors) {
  ForecastInput input = forecast_input;
  input.ranks = static_cast<std::uint32_t>(tensor_ranks);
  input.ranks_per_node.reset();
  const auto parts = std::ranges::count_if(tensors, &model::Tensor::is_part);
  return GroupSums::predict(input, sums_per_tensor * static_cast<std::size_t>(parts));
}

}  // namespace

Forecast forecast_replica(const ForecastInput& forecast_input, const MeshShape& shape, int stage,
                          const model::Model& model, std::size_t batch, const ReplicaWork& work) {
  Forecast forecast =
      forecast_stage(forecast_input, shape.tensor, model.pass_traffic(batch)).times(work.training_passes);
  forecast +=
      forecast_stage(forecast_input, shape.tensor, model.forward_traffic(batch)).times(work.forward_only_passes);
  for (const Bucket& b : work.updates) {
    if (work.shares_norms)
      forecast += forecast_norms(forecast_input, shape.tensor, model.tensors().subspan(b.first_tensor, b.tensor_count));
  }
  if (stage + 1 == shape.pipeline && work.replica_floats > 0) {
    const auto others = static_cast<std::uint64_t>(shape.replica_ranks() - 1);
    forecast += forecast_messages(forecast_input, 1, others, others * work.replica_floats * sizeof(float));
  }
  return forecast;
}

}  // namespace gradmeter::dataparallel
