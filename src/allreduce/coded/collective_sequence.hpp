// SPDX-License-Identifier: Apache-2.0
// A collective composed of other collectives' calls, one after another, with local work between them.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/executor/submitter.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::allreduce {

/// Splits a call that exchanges several tensors into one call for each tensor. Each of these calls gets the tensor's
/// part of the buffers, of the residuals and of the CodingDifference. The tensor's offset among all exchanged elements
/// identifies its random draws and its state. Without tensors, the buffer counts as one tensor. The object cannot be
/// copied, since the calls refer to its members. Cost: O(tensors).
class TensorCalls {
 public:
  TensorCalls() = default;
  TensorCalls(const TensorCalls&) = delete;
  TensorCalls& operator=(const TensorCalls&) = delete;
  void assign(const Call&);
  std::span<const Call> calls() const { return calls_; }
  bool differences_asked() const { return whole_ != nullptr; }
  /// Adds the `term_squares` of all tensors' differences to the `term_squares` of the whole call's difference. Call it
  /// once the tensors' differences have been filled in.
  void add_squares();

 private:
  std::vector<TensorPart> tensors_;
  std::vector<CodingDifference> differences_;
  std::vector<Call> calls_;
  CodingDifference* whole_ = nullptr;  ///< the difference of the whole call; null: none is asked for
};

/// A collective that is made of other collectives. The derived class binds them and hands them over with `add_part`.
/// With a queue, local work is submitted to the queue, and the next inner call waits until that work is done.
class CollectiveSequence : public Collective {
 public:
  /// queue: as in ExchangeSpec.
  CollectiveSequence(std::string name, runtime::Queue* queue);
  const std::string& name() const final { return name_; }
  bool takes_device_memory() const final { return submitter_.has_value(); }
  bool holds_up_other_calls() const final;
  void start(const Call&) final;
  bool advance() final;
  Waiting waiting() const final { return is_part_running_ ? current_step_.part->waiting() : Waiting{}; }
  /// The sum over the parts; null if the bytes of any part are not counted.
  std::optional<runtime::Traffic> sent() const final;
  std::optional<std::uint64_t> bytes_required() const final;
  std::optional<CodingTime> coding() const override;

 protected:
  /// The next step of the sequence, which is the call of one part. If `part` is null, there is no call: with
  /// `waits_for_local_work`, `next` is called again once the local work is done; else the collective is complete.
  struct SequenceStep {
    Collective* part = nullptr;
    Call call{};
    bool waits_for_local_work = false;
  };
  static SequenceStep wait_for_local_work() { return {.waits_for_local_work = true}; }
  static Call in_place(core::Element element, std::span<std::byte> memory, Op op = Op::sum) {
    const runtime::Buffer buffer(element, memory);
    return {.in = buffer, .out = buffer, .op = op};
  }
  /// Called at the start of each call, before its first `next`.
  virtual void begin(const Call&) = 0;
  /// Returns the step with this number. Steps are counted from 0 in each call of the sequence, waits included. `next`
  /// is called when the previous step is complete. It must not read or write the buffers itself, but only in local work
  /// (`run_local`).
  virtual SequenceStep next(std::size_t number) = 0;

  Collective& add_part(std::unique_ptr<Collective>);
  /// Runs local work: at once, or in the queue if there is one. The work may refer only to members of the derived
  /// class, which must not change until the work is done.
  template <class Work>
  void run_local(std::string_view label, const Work& work) {
    if (!submitter_) return work();
    submitter_->run(label, 0, work);
  }
  /// If the call asks for differences, runs `note`, which must fill in the differences of all tensors, and then
  /// `add_squares`, as local work.
  template <class Note>
  void record_differences(TensorCalls& tensors, const Note& note) {
    if (!tensors.differences_asked()) return;
    run_local("difference", [&tensors, note] {
      note();
      tensors.add_squares();
    });
  }
  template <class Work>
  void run_encoding(const Work& work) {
    run_timed("encode", own_coding_time_.encode_s, work);
  }
  template <class Work>
  void run_decoding(const Work& work) {
    run_timed("decode", own_coding_time_.decode_s, work);
  }

 private:
  template <class Work>
  void run_timed(std::string_view label, double& seconds, const Work& work) {
    run_local(label, [&seconds, work] {
      const runtime::Timed timed(seconds);
      work();
    });
  }
  void proceed();
  SequenceStep next_step() { return next(steps_taken_++); }

  std::string name_;
  std::optional<Submitter> submitter_;  ///< empty without a queue
  std::vector<std::unique_ptr<Collective>> parts_;
  SequenceStep current_step_;
  std::size_t steps_taken_ = 0;                        ///< how often `next` has returned in this call
  bool is_running_ = false, is_part_running_ = false;  ///< whether the sequence's call is under way, and an inner call
  CodingTime own_coding_time_;
};

// Functions that fill in a call's CodingDifference.

/// The factor of one rank's numbers in the result: 1/ranks for an average, 1 for a sum.
inline float contribution_factor(const Call& c, float ranks) { return c.op == Op::average ? 1.0f / ranks : 1.0f; }

/// Fills in the difference of a call that asks for one. `sent` is this rank's term of the sum, not yet divided if the
/// call is an average. Call this function before the call's input is overwritten.
inline void record_difference(const Call& c, float ranks, std::span<const float> sent) {
  CodingDifference* d = c.tensor_layout.difference;
  const std::span<const float> in = c.in.values<float>();
  const float factor = contribution_factor(c, ranks);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    d->values[i] = factor * (sent[i] - in[i]);
    const auto of_input = static_cast<double>(factor * in[i]), of_sent = static_cast<double>(factor * sent[i]);
    d->term_squares += of_input * of_input + of_sent * of_sent;
  }
}

// The state that a collective with a codec keeps from call to call, as a value that can be moved out and back in.

/// Moves the state out of `from`, which is then as newly made.
template <class T>
CodecState take_values(T& from) {
  return std::make_shared<T>(std::exchange(from, T{}));
}
/// Puts back a state that `take_values` has taken out of an object of the same type.
template <class T>
void restore_values(const CodecState& state, T& to) {
  to = std::move(*static_cast<T*>(state.get()));
}

}  // namespace gradmeter::allreduce
