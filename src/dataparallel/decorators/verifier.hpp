// Checks the calls of single steps against all ranks' inputs: the calls that are measured, on their own data.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataparallel/decorators/forwarding.hpp"
#include "dataparallel/decorators/message_verifier.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::dataparallel {

/// A fabric that forwards everything. While it is armed, each rank takes a projection of each call's input and output
/// (see projection.hpp); nothing else travels in the step, and `verdict` adds up the inputs' projections.
///
/// All-reduce and reduce-scatter of fp32: with w the weights, |w·y − Σ w·x_r| must be within what rounding explains.
/// Rounding one element's P summands errs by √P·u·Σ|x_r| with a probability of practically 1 (Higham & Mary, SISC
/// 2019). The weights are independent of these errors, so they add up as a random walk: 16·√P·u·Σ‖x_r‖ (over P for an
/// average; u = 2^-24) is beyond 8 standard deviations. Weights are at least a half, so an error of one element is sure
/// to be found from four times that on: with two ranks' gradients of length 10 each from 1.1e-4 on.
/// All-gather, broadcast and all messages copy: their bits must be the same (linear_hash). A message of a verified step
/// may be received after it, by a receive that says so (Fabric::receive_of_last_step).
/// All-reduces with a codec must have the same bits on all ranks, and be the sum of all ranks' inputs and of the
/// differences that encoding makes (allreduce::CodingDifference), as each rank's compressor reports them. That holds
/// for all codecs within fp32, with and without feedback, since what is lost, or kept for later, is known to the bit
/// where it is encoded. Allowed is twice as much as for sums, of what was given, kept and lost. Only known data can
/// show that no more is lost than the codec may lose.
///
/// Cost: nothing unless armed; else two passes over inputs and outputs. A rank keeps a few numbers for a call, and P
/// for a reduce-scatter and for messages; with a codec as many as the call has, and where they are encoded hop by hop
/// without feedback twice as many again.
class Verifier final : public ForwardingFabric {
 public:
  /// coded: all-reduces with a tensor layout go through a codec. `world`: all ranks; it must outlive this.
  Verifier(Fabric& inner, const runtime::Communicator& world, bool coded);
  ~Verifier() override;
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  /// Verifies the next step in which the ranks of a group make calls, for each group. All ranks in the same step.
  void arm();
  /// Gradients may be infinite or no numbers, since such steps are skipped: not a fault, unless a result hides it.
  void allow_overflow() { may_overflow_ = true; }
  void disarm();
  /// number: the step's name in the text of a fault.
  void begin_step(std::uint64_t number);
  void end_step();
  /// Was any call of the last step verified on this rank, so that its time is not that of a step?
  bool verified_last_step() const { return verified_last_; }
  /// Has this group made verified calls since `arm`?
  bool verified(Group g) const { return !armed_.at(static_cast<std::size_t>(g.id)); }
  /// Have messages with a payload been verified in both directions, since the beginning?
  bool messages_verified() const { return message_verifier_.posted() > 0 && message_verifier_.received() > 0; }
  /// Collective over all ranks, while this rank has waited for all its calls: what was wrong in the
  /// steps verified since the last call, in a line; empty: nothing.
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
  std::vector<char> armed_, called_;  ///< by group: a verified step is wanted; this step has made calls
  std::vector<char> verified_step_;   ///< by group: the last step that ended was verified
  std::vector<std::unique_ptr<VerifiedGroup>> verified_groups_;
  std::unordered_map<const Operation*, Call> under_way_;
  std::string fault_;  ///< the first on this rank
  Group port_group_{};
  MessageVerifier message_verifier_;
};

}  // namespace gradmeter::dataparallel
