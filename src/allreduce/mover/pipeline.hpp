// One slice's progress through a plan. Several pipelines run side by side on channels of their own.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/mover/coded_slice.hpp"
#include "allreduce/mover/submitter.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/slices.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::allreduce {

/// Scratch that a pipeline keeps between calls. `landing` is empty where peers' memory is read directly.
struct PipelineScratch {
  std::span<std::byte> alternate, landing;
};

/// Submit: AtOnce or Submitter. Cost: what bench_executor prints; results/allreduce.md has it: 12 to 34 ns a step
/// alone.
template <class Submit>
class Pipeline {
 public:
  /// `coded`: for coded plans, which need no alternate.
  Pipeline(runtime::Transport& t, int channel, PipelineScratch scratch, Submit submit,
           std::optional<CodedSlice> coded = {})
      : transport_(t), channel_(channel), scratch_(scratch), work_(std::move(submit)), coded_(std::move(coded)) {}

  /// Begins one slice of the call's buffers. Plan and call must live until it is done.
  void launch(const Plan& plan, const Call& call, CallMemory memory, const Slice& slice);
  /// Advances as far as it can without blocking; true when anything moved.
  bool advance();
  bool busy() const { return plan_ != nullptr; }
  Waiting waiting() const;
  CodingTime coding() const { return coded_ ? coded_->time() : CodingTime{}; }

 private:
  enum class Phase : std::uint8_t { encode, send, post, receive, finish, copy, end };

  Phase first_phase() const { return round_ < plan_->rounds.size() ? Phase::encode : Phase::copy; }
  const PlanRound& round() const { return plan_->rounds[round_]; }
  bool encode();
  bool post_sends();
  bool sendable();
  bool may_land(const ReceiveStep&);
  bool post_receives();
  bool receive();
  bool receive_direct();
  bool reduce_one(const ReduceStep&);
  bool finish_round();
  bool copy_rest();
  bool end_slice();
  void copy(const std::vector<CopyStep>&);
  void sum(const ReduceStep&, const Extent&);
  bool operands_arrived(const ReduceStep&);
  const std::byte* view(std::uint32_t receive);
  bool fenced(std::uint32_t fence);
  std::size_t bytes(const Extent& e) const { return e.elements * width_; }
  std::byte* at(Place, const Extent&) const;
  /// The memory that a message of these blocks is sent from, or received into.
  std::span<std::byte> message(Place, Blocks) const;

  runtime::Transport& transport_;
  int channel_;
  PipelineScratch scratch_;
  [[no_unique_address]] Submit work_;
  std::optional<CodedSlice> coded_;
  const Plan* plan_ = nullptr;
  const Call* call_ = nullptr;
  CallMemory memory_;
  Slice slice_;
  std::size_t width_ = 1;  ///< of an element [bytes]
  std::size_t round_ = 0;
  Phase phase_ = Phase::encode;
  std::uint32_t next_receive_ = 0, next_reduction_ = 0;  ///< done so far in this round
  std::vector<runtime::MessageHandle> sends_, receives_;
  std::vector<const std::byte*> views_;  ///< by receive of this round; null: not arrived yet
  Sources sources_;
  std::uint32_t left_ = 0;  ///< own sends that have left, in order
};

}  // namespace gradmeter::allreduce
