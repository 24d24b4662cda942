// A collective with injected faults: --inject of `allreduce`.
#pragma once
#include <memory>
#include <string>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/injection.hpp"

namespace gradmeter::bench {

/// What is injected on this rank, and the calls that it has made so far of all its collectives.
struct InjectedFaults {
  core::Injection injection;
  int rank = 0, ranks = 1;
  std::uint64_t calls = 0;

  /// Must this rank's calls be altered?
  bool concerns_calls() const {
    const auto is_here = [this](const auto& fault) { return fault && fault->rank == rank; };
    return is_here(injection.slow) || is_here(injection.flip) || is_here(injection.omit);
  }
};

/// flip: from the call of that number on (the first is 0) one element of this rank's result is wrong. omit: from that
/// call on the rank gives zeros to all-reduces and reduce-scatters; its input is overwritten. slow: before a call the
/// rank computes for factor - 1 times as long as its last call of so many bytes took. To its peers the call then takes
/// `factor` times as long; the first call of a length is not slowed.
/// All else is the collective's own.
class InjectedCollective final : public allreduce::Collective {
 public:
  /// `faults` and the queue outlive it. Null: buffers are the host's.
  InjectedCollective(std::unique_ptr<allreduce::Collective>, allreduce::CollectiveKind, InjectedFaults& faults,
                     runtime::Queue* = nullptr);
  const std::string& name() const override { return inner_->name(); }
  const std::string& serves(std::uint64_t bytes) const override { return inner_->serves(bytes); }
  bool takes_device_memory() const override { return inner_->takes_device_memory(); }
  bool reads_device() const override { return inner_->reads_device(); }
  void start(const allreduce::Call&) override;
  bool advance() override;
  allreduce::Waiting waiting() const override { return inner_->waiting(); }
  std::optional<runtime::Traffic> sent() const override { return inner_->sent(); }
  std::optional<std::uint64_t> bytes_due() const override { return inner_->bytes_due(); }
  std::optional<allreduce::CodingTime> coding() const override { return inner_->coding(); }
  std::unique_ptr<allreduce::CodecState> take_state() override { return inner_->take_state(); }
  void restore_state(std::unique_ptr<allreduce::CodecState> s) override { inner_->restore_state(std::move(s)); }

 private:
  void on_host(const runtime::Work& work);
  void flip();
  void omit();

  std::unique_ptr<allreduce::Collective> inner_;
  allreduce::CollectiveKind collective_kind_;
  InjectedFaults& faults_;
  runtime::Queue* queue_;
  double slower_ = 1;
  allreduce::Call call_{};
  bool running_ = false;
  double begin_ = 0, last_s_ = 0;
  std::size_t last_bytes_ = 0;
};

}  // namespace gradmeter::bench
