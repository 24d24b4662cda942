// The operations that a fabric over ranks submits to its engine: a collective, a send, a receive.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "dataparallel/ranks/engine.hpp"

namespace gradmeter::dataparallel {

/// Runs one call of a collective that other operations share, one after another (`order`: its group).
class CollectiveOperation final : public EngineOperation {
 public:
  /// `label` and `world_ranks` (of the group's members) must outlive it.
  CollectiveOperation(const char* label, int order, runtime::EventPtr ready, allreduce::Collective& a,
                      allreduce::Call call, const std::vector<int>& world_ranks)
      : EngineOperation(label, order, std::move(ready)), collective_(a), call_(call), world_ranks_(world_ranks) {}

 private:
  void start() override;
  bool advance() override;
  allreduce::Waiting waiting() const override { return collective_.waiting(); }
  int world_rank(int peer) const override { return world_ranks_[static_cast<std::size_t>(peer)]; }

  allreduce::Collective& collective_;
  allreduce::Call call_;
  const std::vector<int>& world_ranks_;
  std::optional<runtime::Traffic> sent_before_;
  std::optional<std::uint64_t> due_before_;
  std::optional<allreduce::CodingTime> coding_before_;
};

/// Messages do not wait for collectives, nor for each other: they have a transport of their own.
class SendOperation final : public EngineOperation {
 public:
  SendOperation(runtime::EventPtr ready, runtime::Transport& t, int peer, std::span<const std::byte> data,
                const std::vector<int>& world_ranks);

 private:
  void start() override;
  bool advance() override;
  allreduce::Waiting waiting() const override { return {.peer = peer_}; }
  int world_rank(int peer) const override { return world_ranks_[static_cast<std::size_t>(peer)]; }

  runtime::Transport& transport_;
  int peer_;
  std::span<const std::byte> data_;
  const std::vector<int>& world_ranks_;
  runtime::MessageHandle ticket_;
};

class ReceiveOperation final : public EngineOperation {
 public:
  ReceiveOperation(runtime::EventPtr ready, runtime::Transport& t, int peer, std::span<std::byte> data,
                   const std::vector<int>& world_ranks);

 private:
  void start() override;
  bool advance() override;
  allreduce::Waiting waiting() const override { return {.peer = peer_}; }
  int world_rank(int peer) const override { return world_ranks_[static_cast<std::size_t>(peer)]; }

  runtime::Transport& transport_;
  int peer_;
  std::span<std::byte> data_;
  const std::vector<int>& world_ranks_;
  runtime::MessageHandle ticket_;
};

}  // namespace gradmeter::dataparallel
