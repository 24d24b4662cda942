// Lists of problems as CSV: DeepBench's, which are part of the program, and users' own.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// A text file that is part of the program: data/deepbench/NAME.csv or data/kernels/NAME.csv.
struct EmbeddedFile {
  std::string_view name, text;
};
std::span<const EmbeddedFile> embedded_lists();

struct ListedProblem {
  Problem problem;
  std::size_t line = 0;  ///< of the file, from 1
};
/// "problems.csv:3:7: 'x' is no number of at least 1 for n".
struct ProblemList {
  std::vector<ListedProblem> problems;
  std::vector<std::string> faults;  ///< of rows that were left out
};

/// The first line that is no comment (#) names the columns, and so the operation:
///   gemm      m,n,k[,trans_a,trans_b,packed,count]      sparse  m,n,k,sparsity[,format]
///   conv      w,h,c,n,k,filter_w,filter_h[,pad_w,pad_h,stride_w,stride_h]
///   rnn       hidden,batch,timesteps,cell[,input]  pointwise  kind,elements[,fused]
/// besides any of: pass, precision, application. Other columns are read over. Values may stand in double quotes.
/// A row that is wrong is left out, with its file, line and column. Cost: O(size).
/// Errors: UsageError when the first line names no operation's columns.
ProblemList parse_problems(std::string_view text, const std::string& file);
/// Errors: UsageError when the file cannot be read, and as above.
ProblemList read_problems(const std::string& path);

/// DeepBench's lists of one operation: set "training", "server" or "device"; empty where it has none.
/// training has each problem in all of its passes, and pointwise work, which is a list of our own.
std::vector<Problem> deepbench(KernelKind, std::string_view set);
std::span<const std::string_view> deepbench_sets();

}  // namespace gradmeter::kernels
