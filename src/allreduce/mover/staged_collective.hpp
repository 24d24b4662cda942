// A collective of the host's memory for buffers of a device: through the memory where transports reach them.
#pragma once
#include <memory>

#include "allreduce/collective.hpp"

namespace gradmeter::allreduce {

/// A call copies its input there when the queue got so far, exchanges, and copies the result back: three parts after
/// one another, each of the whole buffer. Both ends of a call are the queue's: what is submitted before comes first,
/// and `advance` says true once the device holds the result. Everything else is the inner one's.
class StagedCollective final : public Collective {
 public:
  /// The queue is of a device that `is_staged`, and outlives it.
  StagedCollective(std::unique_ptr<Collective> inner, runtime::Queue& queue)
      : inner_(std::move(inner)), queue_(queue) {}
  ~StagedCollective() override;
  const std::string& name() const override { return inner_->name(); }
  const std::string& serves(std::uint64_t bytes) const override { return inner_->serves(bytes); }
  bool takes_device_memory() const override { return true; }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override { return inner_->waiting(); }
  std::optional<runtime::Traffic> sent() const override { return inner_->sent(); }
  std::optional<std::uint64_t> bytes_due() const override { return inner_->bytes_due(); }
  std::optional<CodingTime> coding() const override { return inner_->coding(); }
  std::unique_ptr<CodecState> take_state() override { return inner_->take_state(); }
  void restore_state(std::unique_ptr<CodecState> s) override { inner_->restore_state(std::move(s)); }

 private:
  enum class Part : std::uint8_t { idle, leaving, exchanging, arriving };
  void exchange();

  std::unique_ptr<Collective> inner_;
  runtime::Queue& queue_;
  Call call_{};
  runtime::EventPtr copied_;
  Part part_ = Part::idle;
};

}  // namespace gradmeter::allreduce
