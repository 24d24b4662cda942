// Convolution, forward and backward. Data is brought into the backend's layouts before anything is timed, as DeepBench
// does.
#include <algorithm>
#include <cmath>

#include "kernels/cases/element_check.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/op_case.hpp"
#include "kernels/reference/conv.hpp"

namespace gradmeter::kernels {
namespace {

/// What a pass computes, and the two operands that it reads.
struct Names {
  std::string_view result, left, right;
};
Names names_of(Pass p) {
  if (p == Pass::backward_data) return {"input gradient", "filters", "output gradient"};
  if (p == Pass::backward_weights) return {"filters gradient", "input", "output gradient"};
  return {"output", "input", "filters"};
}

class ConvCase final : public KernelCase {
 public:
  ConvCase(const Problem& p, const KernelCaseOptions& o)
      : problem_(p),
        s_(std::get<ConvShape>(p.shape)),
        op_(p, o.sets, {.backend = o.backend, .algorithm = o.search}, *o.device),
        seeds_(o.sets) {
    for (std::size_t i = 0; i < o.sets; ++i) redraw(i, o.seed + 3 * i);
    op_.bind();
  }

  void run(std::size_t set) override { op_.run(set); }
  runtime::Queue* queue() override { return op_.queue(); }

  void redraw(std::size_t set, std::uint64_t seed) override {
    seeds_[set] = seed;
    for (const Operand& input : op_.op().inputs()) op_.set_input(set, input.name, drawn(input.name, set));
  }

  void prepare_check(const CheckedCall& call) override {
    op_.poison(call.set, names_of(problem_.pass).result, places_of(call));
  }

  KernelCaseCheck finish_check(const CheckedCall& call) override {
    PlainNumbers result = op_.output(call.set, names_of(problem_.pass).result);
    const auto places = places_of(call);
    if (call.inject_error) result.add(places[places.size() / 2], 0.5 * usual_result(flops_of_one() / 2));
    return checked_elements(call.set, result, places);
  }

  std::string implementation() const override { return op_.op().implementation(); }

 private:
  const Operand& result() const {
    return op_.op().outputs()[index_of(op_.op().outputs(), names_of(problem_.pass).result)];
  }
  double flops_of_one() const { return flops(problem_) / static_cast<double>(result().elements); }
  std::vector<std::size_t> places_of(const CheckedCall& call) const {
    const std::size_t all = result().elements;
    const double count =
        std::clamp(call.flops_at_most / flops_of_one(), 16.0, std::max(16.0, static_cast<double>(all)));
    return sample_places(all, static_cast<std::size_t>(count), call.seed);
  }

  PlainNumbers drawn(std::string_view operand, std::size_t set) const {
    const std::uint64_t own = operand == "input" ? 0 : operand == "filters" ? 1 : 2;
    return op_.draw(operand, seeds_[set] + own, random_range(problem_.precision));
  }

  /// Root mean square of a sum of so many products of two random numbers.
  double usual_result(double terms) const {
    double product = 1;
    for (const Operand& o : op_.op().inputs()) product *= usual_size(*o.format);
    return product * std::sqrt(std::max(terms, 1.0));
  }

  KernelCaseCheck checked_elements(std::size_t set, const PlainNumbers& result,
                                   const std::vector<std::size_t>& places) const {
    const Names names = names_of(problem_.pass);
    const auto left = drawn(names.left, set).floats(), right = drawn(names.right, set).floats();
    ElementCheck element_check;
    for (const std::size_t at : places) {
      const ReferenceSum sum = problem_.pass == Pass::forward         ? conv_forward_at(s_, left, right, at)
                               : problem_.pass == Pass::backward_data ? conv_backward_data_at(s_, right, left, at)
                                                                      : conv_backward_weights_at(s_, left, right, at);
      element_check.add(result.at(at), sum.value, allowed_distance(sum, problem_.precision), sum.terms > 0);
    }
    return element_check.verdict();
  }

  Problem problem_;
  ConvShape s_;
  OpCase op_;
  std::vector<std::uint64_t> seeds_;  ///< of each set's inputs
};

}  // namespace

std::unique_ptr<KernelCase> make_conv_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<ConvCase>(p, o);
}

}  // namespace gradmeter::kernels
