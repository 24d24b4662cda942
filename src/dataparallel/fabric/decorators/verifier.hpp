// SPDX-License-Identifier: Apache-2.0
// A decorator that checks the results of a fabric's calls against the inputs of all ranks: in the measured run itself
// and on its data, but only in chosen steps.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::dataparallel {

/// Checks the bits of messages. The sending port writes a hash of header and payload to the header, and the receiving
/// port checks it. A worker's port writes hashes while `worker_is_armed` returns true. A server's port writes them in
/// messages to workers whose last message had a hash, so that answers to verified messages are verified too. Any thread
/// may use this object, which must outlive its ports.
class MessageVerifier {
 public:
  /// Returns ports that check messages, around the given ones. worker_is_armed: asked at each message of the worker's
  /// port.
  Ports wrap(Ports, std::function<bool()> worker_is_armed);
  /// The number of verified messages with a payload that the worker has posted, and has received, so far.
  std::uint64_t posted() const { return posted_; }
  std::uint64_t received() const { return received_; }
  /// Returns a text about the first message that arrived with wrong bits since the last call of this function; empty:
  /// there was none.
  std::string take_fault();

 private:
  class CheckedPort;
  void report_fault(const Message&);
  std::atomic<std::uint64_t> posted_{0}, received_{0};
  std::mutex mutex_;
  std::string fault_;
};

/// A fabric that forwards everything. While it is armed, each rank computes checksums of the input and output of every
/// call (`project`, or `linear_hash` for calls that copy). No further data are sent during the step: `take_fault` later
/// adds up the checksums of all ranks' inputs, and compares the sum with the checksum of the output.
///
/// All-reduce and reduce-scatter of fp32: let x_r be the input of rank r, y the output and w the weights. Then
/// |w·y − Σ w·x_r| must not be larger than rounding explains. The rounding error of an element of a sum over P ranks is
/// at most √P·u·Σ|x_r| with a probability of practically 1 (u = 2^-24; Higham & Mary, SISC 2019). The weights are
/// independent of these errors, so the errors of all elements add up like a random walk. The tolerance,
/// 16·√P·u·Σ‖x_r‖ (divided by P for an average), is beyond 8 standard deviations of this walk. Weights are at least
/// 1/2, so a wrong element is sure to be found if its error is at least four times the tolerance: 1.1e-4 for the
/// gradients of two ranks with norms of 10. All-gather, broadcast and all messages copy, so the output must have the
/// bits of the input. A message of a verified step may be received after the step, if the receive says so
/// (Fabric::receive_of_last_step). All-reduce with a codec: the output must have the same bits on all ranks. It must
/// also be the sum of all ranks' inputs and of the differences that encoding makes, as each rank reports them
/// (allreduce::CodingDifference). This holds up to the rounding of fp32 for all codecs, with and without error
/// feedback, since the rank that encodes knows exactly what is lost, or kept for the next step. The tolerance is twice
/// that of a sum, and its norms are those of inputs and differences. Whether a codec loses more than it may is not
/// checked here, since that requires known data.
///
/// Cost: nothing unless armed; else one pass over each input and one over each output (with a codec, two over the
/// output and one over the differences). Memory on a rank: a few numbers for each call, about P numbers for each
/// reduce-scatter, and about P for all messages of a group. An all-reduce with a codec needs as many numbers as it has
/// elements, and three times as many if a schedule encodes on every hop without error feedback.
class Verifier final : public ForwardingFabric {
 public:
  /// world: the communicator of all ranks, which must outlive this object. coded: whether all-reduces with a tensor
  /// layout use a codec.
  Verifier(Fabric& inner, const runtime::Communicator& world, bool coded);
  ~Verifier() override;
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  /// From now on, verifies for each group the next step in which ranks of the group make calls. All ranks must call it
  /// before the same step.
  void arm();
  /// Allows gradients that are infinite or NaN, for runs that skip steps with such gradients. If an input is not
  /// finite, the only fault is then a finite result, because a rank with a finite result would not skip the step.
  void allow_overflow() { may_overflow_ = true; }
  void disarm();
  /// number: the step's number, for the text of a fault.
  void begin_step(std::uint64_t number);
  void end_step();
  /// True if any call of the last step was verified on this rank, which made that step slower than others.
  bool verified_last_step() const { return verified_last_; }
  /// To be asked between `arm` and `disarm`: true if this group has made verified calls since `arm`.
  bool verified(Group g) const { return !armed_.at(static_cast<std::size_t>(g.id)); }
  /// True if the worker has posted and received verified messages with a payload.
  bool messages_verified() const { return message_verifier_.posted() > 0 && message_verifier_.received() > 0; }
  /// Collective over all ranks; this rank must have waited for all its calls. Returns one line about the first fault in
  /// the steps that were verified since `take_fault` was called last; empty: there was no fault.
  std::string take_fault();

  Group split(int color, int key) override;
  Ticket start(const FabricCall&) override;
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;

 private:
  struct VerifiedCall;
  struct Messages;
  struct VerifiedGroup;
  bool verifies(const FabricCall&);  ///< whether the call belongs to a step that is verified
  VerifiedGroup& verified_group(Group g) { return *verified_groups_[static_cast<std::size_t>(g.id)]; }
  std::uint64_t next_number(Group);
  Ticket note(Ticket, VerifiedCall);
  Messages& messages(Group);
  void note_send(const FabricCall&);
  VerifiedCall note_input(const FabricCall&);
  void note_result(VerifiedCall&);
  void project_sum(VerifiedCall&, const FabricCall&);
  void project_coded(VerifiedCall&, const FabricCall&);
  static void check_summable(const FabricCall&);
  static std::string text_of(const VerifiedCall&);
  void check_group(VerifiedGroup&);
  void check_call(const VerifiedCall&, std::span<const double> checksums);
  void check_sum(const VerifiedCall&, double expected, double norm, double allowed_deviations);
  void report_fault(std::string);

  const runtime::Communicator& world_;
  bool coded_;
  bool in_step_ = false, verified_last_ = false, may_overflow_ = false;
  /// The step's number, and the number of messages that were verified before the step.
  std::uint64_t step_ = 0, messages_before_ = 0;
  /// By group: whether the group's next step with calls is to be verified; whether the group has made calls in this
  /// step.
  std::vector<char> armed_, called_;
  std::vector<char> verified_step_;  ///< by group: whether the last step that ended was verified
  std::vector<std::unique_ptr<VerifiedGroup>> verified_groups_;
  std::unordered_map<const PendingCall*, VerifiedCall> under_way_;
  std::string fault_;  ///< the first fault on this rank
  Group port_group_{};
  MessageVerifier message_verifier_;
};

}  // namespace gradmeter::dataparallel
