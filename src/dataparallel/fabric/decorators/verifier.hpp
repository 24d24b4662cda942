// SPDX-License-Identifier: Apache-2.0
// Checks the calls of single steps against all ranks' inputs. These are calls that are measured, with their own data.
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

/// The product of x with pseudo-random weights, and |x|^2. Weight i depends on seed and i alone; it has either sign,
/// and its size is from 1/2 to below 1. So projections add up as the vectors do (Freivalds 1977), and one element that
/// is off by e shows as e/2 at least; weights of one size would hide half of all errors that are equal in two places.
struct Projection {
  double product = 0, square = 0;
};
/// The projection of x, where x[0] has weight number `first`. Cost: one pass.
Projection project(std::span<const float> x, std::uint64_t seed, std::uint64_t first = 0);

/// The sum over 32-bit words of word · odd key, modulo 2^64. It shows every change of one word, and misses a change of
/// several words with a chance of one in 2^32. Hashes of parts add up: word 0 has key number `first`. Words of 0 add
/// nothing. The bytes after the last whole word count as one word. Cost: one pass.
std::uint64_t linear_hash(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t first = 0);

/// Checks the bits of messages on arrival. Its ports write a hash of header and payload into the header of a message,
/// and check it when the message arrives. A worker's port does so while it is armed. A server's port does so for
/// workers whose last message had a hash, so that answers to verified messages are verified too. Any thread may use it.
/// It must outlive its ports.
class MessageVerifier {
 public:
  Ports wrap(Ports, std::function<bool()> worker_is_armed);
  /// The numbers of verified messages with a payload that the worker has posted and received so far.
  std::uint64_t posted() const { return posted_; }
  std::uint64_t received() const { return received_; }
  /// The first message since the last call that differs from what was sent, in a few words; empty: there was none.
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
/// Rounding one element's P summands errs by √P·u·Σ|x_r| with a probability of practically 1 (Higham & Mary, SISC
/// 2019). The weights are independent of these errors, so they add up as a random walk: 16·√P·u·Σ‖x_r‖ (over P for an
/// average; u = 2^-24) is beyond 8 standard deviations. Weights are at least a half, so an error of one element is sure
/// to be found if it is at least four times that: 1.1e-4 for two ranks' gradients of length 10 each.
/// All-gather, broadcast and all messages copy: their bits must be the same (linear_hash). A message of a verified step
/// may be received after the step, by a receive that says so (Fabric::receive_of_last_step).
/// All-reduces with a codec must have the same bits on all ranks, and be the sum of all ranks' inputs and of the
/// differences that encoding makes (allreduce::CodingDifference), as each rank's compressor reports them. That holds
/// for all codecs up to the rounding of fp32, with and without feedback, since what is lost, or kept for later, is
/// known to the bit where it is encoded. The tolerance is twice that of sums, applied to what was given, kept and lost.
/// Only known data can show that no more is lost than the codec may lose.
///
/// Cost: nothing unless it is armed; else two passes over inputs and outputs. A rank keeps a few numbers for a call,
/// and P for a reduce-scatter and for messages. With a codec it keeps as many numbers as the call has, and where they
/// are encoded hop by hop without feedback twice as many again.
class Verifier final : public ForwardingFabric {
 public:
  /// coded: all-reduces with a tensor layout go through a codec. `world`: all ranks; it must outlive this object.
  Verifier(Fabric& inner, const runtime::Communicator& world, bool coded);
  ~Verifier() override;
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  /// For each group, verifies the next step in which the ranks of that group make calls. All ranks must call it before
  /// the same step.
  void arm();
  /// Allows infinite and NaN gradients, since such steps are skipped. Only a result that hides them is a fault.
  void allow_overflow() { may_overflow_ = true; }
  void disarm();
  /// number: the step's name in the text of a fault.
  void begin_step(std::uint64_t number);
  void end_step();
  /// True where any call of the last step was verified on this rank, so that its time is not that of a usual step.
  bool verified_last_step() const { return verified_last_; }
  /// True where this group has made verified calls since `arm`.
  bool verified(Group g) const { return !armed_.at(static_cast<std::size_t>(g.id)); }
  /// True where messages with a payload have been verified in both directions since the beginning.
  bool messages_verified() const { return message_verifier_.posted() > 0 && message_verifier_.received() > 0; }
  /// Collective over all ranks, when this rank has waited for all its calls. Returns in a line what was wrong in the
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
