// The collective behind `auto` and tables: each call goes to the member that the chooser selects by size.
#pragma once
#include <memory>
#include <vector>

#include "allreduce/chooser.hpp"
#include "allreduce/collective.hpp"

namespace gradmeter::allreduce {

/// Calls run one at a time, so members may share scratch, provided that they keep nothing in it between calls.
class ChosenCollective final : public Collective {
 public:
  /// members[i] is the chooser's i-th candidate.
  ChosenCollective(std::shared_ptr<const Chooser>, std::vector<std::unique_ptr<Collective>> members);
  const std::string& name() const override { return chooser_->name(); }
  const std::string& serves(std::uint64_t bytes) const override {
    return chooser_->candidates()[chooser_->choose(bytes)]->name;
  }
  bool takes_device_memory() const override;
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override;
  /// The sums over the members. Null for good once a member without counters (a vendor's) has served a call, since the
  /// count would be incomplete.
  std::optional<runtime::Traffic> sent() const override;
  std::optional<std::uint64_t> bytes_due() const override;

 private:
  std::shared_ptr<const Chooser> chooser_;
  std::vector<std::unique_ptr<Collective>> members_;  ///< by candidate
  Collective* current_ = nullptr;                     ///< of the last call
  bool running_ = false, counted_ = true;
};

/// The row `auto`: selects by the request's chooser, else by the shipped table.
std::string auto_refusal(const Request&);
std::unique_ptr<Collective> bind_auto(const Request&, const Site&, const ExecutorOptions&);
/// Members with a schedule share one scratch area. Without a chooser: the most that any transport's shipped table
/// takes.
std::size_t auto_arena_bytes(const Request&, std::uint32_t rank, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
