// How far the results of a recurrent layer may be from the reference's.
#pragma once
#include <span>
#include <vector>

#include "kernels/cases/element_check.hpp"

namespace gradmeter::kernels {

/// The checked numbers of one tensor.
struct ComparedTensor {
  std::vector<double> result, reference;
  double usual() const;  ///< root mean square of the reference; 1 where all of it is zero
};

/// Adds half its tensor's usual size to the middle one of all elements.
void corrupt_one(std::span<ComparedTensor>);
/// Elements that the reference has as exact zeros (behind a relu) are checked, not counted as suspicious zeros.
KernelCaseCheck checked_elements(std::span<const ComparedTensor>, const Problem&);

}  // namespace gradmeter::kernels
