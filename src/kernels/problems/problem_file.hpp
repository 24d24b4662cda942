// SPDX-License-Identifier: Apache-2.0
// Lists of problems as CSV: those of DeepBench, which are part of the program, and those of users.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/embedded.hpp"
#include "core/units.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// The files data/deepbench/NAME.csv and data/kernels/NAME.csv, which are part of the program.
std::span<const core::EmbeddedFile> embedded_lists();

struct ListedProblem {
  Problem problem;
  std::size_t line = 0;  ///< line in the file, from 1
};
struct ProblemList {
  std::vector<ListedProblem> problems;
  /// One for each row left out: "problems.csv:3:7: 'x' is no whole number of at least 1 for n".
  std::vector<std::string> faults;
};

/// Parses a CSV list of problems. The first line that is no comment (#) names the columns, and so the operation:
///   gemm      m,n,k[,trans_a,trans_b,packed,count]      sparse  m,n,k,sparsity[,format]
///   conv      w,h,c,n,k,filter_w,filter_h[,pad_w,pad_h,stride_w,stride_h]
///   rnn       hidden,batch,timesteps,cell[,input]  pointwise  kind,elements[,fused]
/// There may also be columns pass, precision and application. Other columns are ignored. Values may stand in double
/// quotes.
/// A wrong row is left out, and `faults` names its file, line and column. Cost: O(size).
/// Errors: UsageError when the first line names no operation's columns.
ProblemList parse_problems(std::string_view text, const std::string& file);
/// Errors: UsageError when the file cannot be read; those of `parse_problems`.
ProblemList read_problems(const std::string& path);

/// DeepBench's problems of one operation, in the set "training", "server" or "device"; empty if it has none. "training"
/// has each problem in all of its passes. DeepBench has no pointwise problems; those of "training" are a list of our
/// own.
std::vector<Problem> deepbench(KernelKind, std::string_view set);
std::span<const std::string_view> deepbench_sets();

// Problems as texts, and with other batch sizes.

/// "gemm:m=1760,n=16,k=1760,a=N,b=N": the operation and its shape. Equal texts mean equal shapes.
std::string problem_text(const ProblemShape&);

/// Reads a text as `problem_text` writes it. A parameter that is left out gets the same default as a column that a CSV
/// file leaves out (a=N, pw=0, sw=1, fused=yes); a batch that is left out is 1. Errors: UsageError that says what the
/// operation needs.
ProblemShape parse_shape(std::string_view text);

/// The shape with another mini-batch: n of a dense or sparse product and of a convolution, batch of a recurrent layer.
/// Empty for shapes without such a dimension (pointwise).
std::optional<ProblemShape> with_batch(const ProblemShape&, std::size_t batch);

// Times that DeepBench's authors published for the same problems on machines of their time, for comparison.

/// The times of one machine in one precision: "v100-mixed", "knl7250-fp32", "t4-int8". mixed: fp16 on tensor cores,
/// with sums in fp32; fp16: stored in fp16, computed in fp32.
struct PublishedSet {
  std::string name, platform, precision;
  std::size_t gemm = 0, conv = 0, rnn = 0, sparse = 0;  ///< number of times; each pass counts separately
};
std::vector<PublishedSet> published_sets();

class PublishedTimes {
 public:
  /// Errors: UsageError that names the known sets.
  explicit PublishedTimes(std::string_view name);
  const std::string& name() const { return name_; }
  /// The set's time for this shape and pass; the problem's precision is ignored. If both a training and an inference
  /// result exist, `training` says which one is taken. Our backward pass of a recurrent layer makes all gradients, so
  /// it gets the sum of the published times of both backward passes. By convention 0 s if the time, or one of the two,
  /// was not published.
  core::Seconds find(const Problem&, bool training) const;

 private:
  std::string name_;
  std::map<std::string, double> training_, inference_;  ///< times [s] by shape and pass
};

}  // namespace gradmeter::kernels
