// Is what PowerSGD returns as a sum the projection of the exact one?
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace gradmeter::bench {

/// With orthonormal columns of P, the codec's X = P·Pᵀ·M of the sum M has <X, M> = <X, X>. Where the last row of the
/// matrix is short, the result lacks that row's other elements: 0 in M, but not in X. They are found from what is
/// there, and counted. For any combination y of the columns of X, and any column d, <y, M_d> = <y, X_d>. Take
/// y = Σ x_c·X_c over the elements x_c of the last row that are there: y's last element is Σ x_c², so the missing
/// element of column d is <y, M_d - X_d> over the other rows, divided by Σ x_c².
class ProjectedSum {
 public:
  /// result [n]: a view; times `scale` it is the sum. columns: of the matrix by rows, over 0. Cost: a pass over the
  /// result; 8 bytes a row and 8 bytes a column.
  ProjectedSum(std::span<const float> result, std::size_t columns, double scale);
  /// Elements of the exact sum, the first of which is element `first`; each once.
  void add(std::size_t first, std::span<const double> exact);
  /// Empty: it is the projection, within 1e-3 of its square.
  std::string fault() const;

 private:
  double at(std::size_t i) const { return scale_ * static_cast<double>(result_[i]); }

  std::span<const float> result_;
  std::size_t columns_, in_last_row_;  ///< 0: the last row is not short
  double scale_, product_ = 0, square_ = 0, last_row_square_ = 0;
  std::vector<double> combination_, missing_;  ///< y; the missing elements times Σ x_c²
};

}  // namespace gradmeter::bench
