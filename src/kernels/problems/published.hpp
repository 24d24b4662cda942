// Times that DeepBench's authors published for the same problems on machines of their time, for comparison.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// One machine in one precision: "v100-mixed", "knl7250-fp32", "t4-int8". mixed: fp16 on tensor cores, sums in fp32;
/// fp16: stored in fp16, computed in fp32.
struct PublishedSet {
  std::string name, platform, precision;
  std::size_t gemm = 0, conv = 0, rnn = 0, sparse = 0;  ///< times, each pass by itself
};
std::vector<PublishedSet> published_sets();

class PublishedTimes {
 public:
  /// Errors: UsageError that names the sets there are.
  explicit PublishedTimes(std::string_view name);
  const std::string& name() const { return name_; }
  /// Of the same shape and pass, whatever our precision; a training result before one of inference where `training`.
  /// 0 s: nothing was published.
  core::Seconds find(const Problem&, bool training) const;

 private:
  std::string name_;
  std::map<std::string, double> training_, inference_;  ///< by shape and pass
};

}  // namespace gradmeter::kernels
