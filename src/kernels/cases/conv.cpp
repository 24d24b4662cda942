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
        seed_(o.seed),
        op_(p, o.sets, {.backend = o.backend, .algorithm = o.search}, *o.device) {
    for (std::size_t i = 0; i < o.sets; ++i)
      for (const Operand& input : op_.op().inputs()) op_.set_input(i, input.name, drawn(input.name, i));
    op_.bind();
  }

  void run(std::size_t set) override { op_.run(set); }
  runtime::Queue* queue() override { return op_.queue(); }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    run(0);
    PlainNumbers result = op_.output(0, names_of(problem_.pass).result);
    const auto elements = static_cast<double>(result.size());
    const double of_one = flops(problem_) / elements;
    const auto count = std::clamp(flops_at_most / of_one, 16.0, elements);
    const auto places = sample_places(result.size(), static_cast<std::size_t>(count), 1);
    if (inject_error) result.add(places[places.size() / 2], 0.5 * usual_result(of_one / 2));
    return checked_elements(result, places);
  }

  std::string implementation() const override { return op_.op().implementation(); }

 private:
  PlainNumbers drawn(std::string_view operand, std::size_t set) const {
    const std::uint64_t own = operand == "input" ? 0 : operand == "filters" ? 1 : 2;
    return op_.draw(operand, seed_ + 3 * set + own, random_range(problem_.precision));
  }

  /// Root mean square of a sum of so many products of two random numbers.
  double usual_result(double terms) const {
    double product = 1;
    for (const Operand& o : op_.op().inputs()) product *= usual_size(*o.format);
    return product * std::sqrt(std::max(terms, 1.0));
  }

  KernelCaseCheck checked_elements(const PlainNumbers& result, const std::vector<std::size_t>& places) const {
    const Names names = names_of(problem_.pass);
    const auto left = drawn(names.left, 0).floats(), right = drawn(names.right, 0).floats();
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
  std::uint64_t seed_;
  OpCase op_;
};

}  // namespace

std::unique_ptr<KernelCase> make_conv_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<ConvCase>(p, o);
}

}  // namespace gradmeter::kernels
