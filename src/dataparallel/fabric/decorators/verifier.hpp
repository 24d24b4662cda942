// SPDX-License-Identifier: Apache-2.0
// Checks the calls of chosen steps against all ranks' inputs. They are calls of the measured run, with its own data.
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

// Short sums of long buffers, by which ranks check a collective's result against its inputs without another
// collective of that size (projection.cpp).

/// The product of x with pseudo-random weights, and |x|^2. Weight i depends on seed and i alone; its sign is random and
/// its size from 1/2 to below 1. So projections add up as the vectors do (Freivalds 1977), and one element that is
/// wrong by e changes the projection by e/2 at least. If all weights had one size, half of all errors that are equal in
/// two places would cancel out.
struct Projection {
  double product = 0, square = 0;
};
/// The projection of x, where x[0] has weight number `first`. Cost: one pass.
Projection project(std::span<const float> x, std::uint64_t seed, std::uint64_t first = 0);

/// The sum over 32-bit words of word · odd key, modulo 2^64. Every change of one word changes it; a change of several
/// words does so except with a chance of one in 2^32. Hashes of parts add up if `first` is the key number of each
/// part's first word. Words of 0 add nothing. The bytes after the last whole word count as one word. Cost: one pass.
std::uint64_t linear_hash(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t first = 0);

/// Checks the bits of messages on arrival. Its ports write a hash of header and payload into a message's header, and
/// check it when the message arrives. A worker's port writes hashes while the verifier is armed. A server's port does
/// so for workers whose last message had a hash, so that answers to verified messages are verified too. Any thread may
/// use it. It must outlive its ports.
class MessageVerifier {
 public:
  Ports wrap(Ports, std::function<bool()> worker_is_armed);
  /// The numbers of verified messages with a payload that the worker has posted and received so far.
  std::uint64_t posted() const { return posted_; }
  std::uint64_t received() const { return received_; }
  /// Describes the first message since the last call that arrived with other bits than were sent; empty: there was
  /// none.
  std::string take_fault();

 private:
  class Checked;
  void report_fault(const Message&);
  std::atomic<std::uint64_t> posted_{0}, received_{0};
  std::mutex mutex_;
  std::string fault_;
};

/// A fabric that forwards everything. While it is armed, each rank takes a projection of each call's input and output
/// (see `project`). Nothing else is sent in the step; `verdict` adds up the inputs' projections later.
///
/// All-reduce and reduce-scatter of fp32: with w the weights, |w·y − Σ w·x_r| must be within what rounding explains.
/// The rounding error of a sum of P elements is at most √P·u·Σ|x_r| with a probability of practically 1 (Higham & Mary,
/// SISC 2019). The weights are independent of these errors, so they add up like a random walk: 16·√P·u·Σ‖x_r‖ (divided
/// by P for an average; u = 2^-24) is beyond 8 standard deviations. Weights are at least a half, so an error of one
/// element is sure to be found if it is at least four times that: 1.1e-4 for two ranks' gradients of length 10 each.
/// All-gather, broadcast and all messages copy, so the bits must be the same (linear_hash). A message of a verified
/// step may be received after the step, if the receive says so (Fabric::receive_of_last_step).
/// All-reduces with a codec must have the same bits on all ranks. They must also be the sum of all ranks' inputs and of
/// the differences that encoding makes (allreduce::CodingDifference), as each rank reports them. That holds for all
/// codecs up to the rounding of fp32, with and without feedback, since the rank that encodes knows exactly what is
/// lost, or kept for later. The tolerance is twice that of sums, applied to inputs, losses and what is kept. Whether a
/// codec loses more than it may can only be checked with known data.
///
/// Cost: nothing unless it is armed; else two passes over inputs and outputs. A rank keeps a few numbers for a call,
/// and P for a reduce-scatter and for messages. With a codec it keeps as many numbers as the call has elements, and
/// where these are encoded hop by hop without feedback, twice as many again.
class Verifier final : public ForwardingFabric {
 public:
  /// coded: all-reduces with a tensor layout use a codec. `world`: all ranks; it must outlive this object.
  Verifier(Fabric& inner, const runtime::Communicator& world, bool coded);
  ~Verifier() override;
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  /// For each group, verifies the next step in which the ranks of that group make calls. All ranks must call it before
  /// the same step.
  void arm();
  /// Allows infinite and NaN gradients, since steps with them are skipped. Only a result without them is then a fault.
  void allow_overflow() { may_overflow_ = true; }
  void disarm();
  /// number: the name of the step in the text of a fault.
  void begin_step(std::uint64_t number);
  void end_step();
  /// True where any call of the last step was verified on this rank, so that its time is not a usual step's.
  bool verified_last_step() const { return verified_last_; }
  /// True where this group has made verified calls since `arm`.
  bool verified(Group g) const { return !armed_.at(static_cast<std::size_t>(g.id)); }
  /// True where messages with a payload have been verified in both directions since the beginning.
  bool messages_verified() const { return message_verifier_.posted() > 0 && message_verifier_.received() > 0; }
  /// Collective over all ranks, once this rank has waited for all its calls. Returns in one line what was wrong in the
  /// steps verified since the last call; empty: nothing.
  std::string verdict();

  Group split(int color, int key) override;
  Ticket start(const FabricCall&) override;
  void wait(const Ticket&) override;
  Ports open(Group, const PortOptions&) override;

 private:
  struct Call;
  struct Messages;
  struct VerifiedGroup;
  bool takes(const FabricCall&);
  VerifiedGroup& verified_group(Group g) { return *verified_groups_[static_cast<std::size_t>(g.id)]; }
  std::uint64_t next_number(Group);
  Ticket note(Ticket, Call);
  Messages& messages(Group);
  void note_send(const FabricCall&);
  Call note_given(const FabricCall&);
  void note_result(Call&);
  void project_sum(Call&, const FabricCall&);
  void project_coded(Call&, const FabricCall&);
  static void check_summable(const FabricCall&);
  static std::string text_of(const Call&);
  void check_group(VerifiedGroup&);
  void check_call(const Call&, std::span<const double> given);
  void check_sum(const Call&, double right, double norm, double allowed);
  void report_fault(std::string);

  const runtime::Communicator& world_;
  bool coded_;
  bool in_step_ = false, verified_last_ = false, may_overflow_ = false;
  std::uint64_t step_ = 0, messages_before_ = 0;
  std::vector<char> armed_, called_;  ///< by group: whether a verified step is wanted; whether this step has made calls
  std::vector<char> verified_step_;   ///< by group: whether the last step that ended was verified
  std::vector<std::unique_ptr<VerifiedGroup>> verified_groups_;
  std::unordered_map<const Operation*, Call> under_way_;
  std::string fault_;  ///< the first fault on this rank
  Group port_group_{};
  MessageVerifier message_verifier_;
};

}  // namespace gradmeter::dataparallel
