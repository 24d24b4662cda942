// SPDX-License-Identifier: Apache-2.0
// Checks operations while they run within something larger: a training step or a forward pass that is verified.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/op.hpp"

namespace gradmeter::kernels {

/// While a CallCheck lives, it checks the calls that its thread executes on memory of the host, if they were submitted
/// by `Op::run`, on this or any other thread. A call whose output overlaps an input is not checked. Before a call, some
/// elements of each result, drawn at random, are overwritten (except where the call adds to them); after it, they are
/// compared with float64 arithmetic on the operands in memory. So the check finds calls that write nothing, write only
/// half, or leave an older result.
/// - Products and convolutions in fp32, bf16 and int8, and the packing of their operands in fp32 and bf16: numbers must
///   be right within the errors of rounding.
/// - Products without ReLU whose operands and result have up to 2^20 elements together: also, each row of the result,
///   times a drawn vector of ±1, must equal the product of the operands with that vector (Freivalds 1977), so that a
///   single wrong element is found.
/// - Other operations with results in fp32, bf16 or int32, such as recurrent layers: elements must have been written.
/// Cost: the FLOP of the drawn elements (1 % of a result's elements, but at least 4 and at most 16), and for the
/// products with the additional check a pass over their operands. A thread has at most one check at a time.
class CallCheck {
 public:
  explicit CallCheck(std::uint64_t seed);
  ~CallCheck();
  CallCheck(const CallCheck&) = delete;
  CallCheck& operator=(const CallCheck&) = delete;

  /// The fault of the first wrong call, in a line; empty: none.
  const std::string& fault() const { return fault_; }
  std::size_t calls() const { return calls_; }  ///< number of checked calls

  /// The check of the calling thread; null: there is none.
  static CallCheck* current() { return of_thread_; }
  /// Executes the operation, and checks this call.
  void execute(Op&, Op::Inputs, Op::Outputs);

 private:
  struct Place;
  std::vector<Place> draw_places(const Op&, Op::Outputs);
  void check_elements(const Op&, Op::Inputs, Op::Outputs, std::span<const Place>);
  void check_projection(const Op&, Op::Inputs, Op::Outputs, std::span<const double> before);

  // Defined inline for speed: every operation reads it, and the shortest take 0.1 us.
  static inline constinit thread_local CallCheck* of_thread_ = nullptr;

  std::uint64_t seed_;
  std::size_t calls_ = 0;
  std::string fault_;
};

}  // namespace gradmeter::kernels
