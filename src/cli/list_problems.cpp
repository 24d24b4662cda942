#include "cli/list_problems.hpp"

#include <array>

#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/problems/problem_file.hpp"
#include "kernels/problems/problem_text.hpp"
#include "kernels/problems/published.hpp"

namespace gradmeter::cli {
namespace {

using kernels::KernelKind;

constexpr std::array operations{KernelKind::gemm, KernelKind::conv, KernelKind::rnn, KernelKind::sparse,
                                KernelKind::pointwise};

/// One for each set that has problems.
template <class Visit>
void each_set(Visit visit) {
  for (const auto set : kernels::deepbench_sets()) {
    for (const KernelKind op : operations) {
      const auto problems = kernels::deepbench(op, set);
      if (!problems.empty()) visit(fmt::format("{}/{}", set, name(op)), problems);
    }
  }
}

const char* source_of(KernelKind op) { return op == KernelKind::pointwise ? "own" : "DeepBench"; }

}  // namespace

std::vector<Member> problem_sets() {
  std::vector<Member> out;
  each_set([&](const std::string& set, const std::vector<kernels::Problem>& problems) {
    std::size_t forward = 0;
    for (const auto& p : problems) forward += p.pass == kernels::Pass::forward;
    const std::string passes =
        forward == problems.size() ? "" : fmt::format(" in {} passes", problems.size() / forward);
    out.push_back({set, fmt::format("{} problems{}; list problems {} names them", forward, passes, set),
                   source_of(problems.front().operation())});
  });
  return out;
}

std::vector<Member> published_members() {
  std::vector<Member> out;
  for (const auto& s : kernels::published_sets()) {
    std::vector<std::string> counts;
    const auto add = [&](std::size_t n, const char* what) {
      if (n > 0) counts.push_back(fmt::format("{} {}", n, what));
    };
    add(s.gemm, "gemm");
    add(s.conv, "conv");
    add(s.rnn, "rnn");
    add(s.sparse, "sparse");
    out.push_back({s.name, fmt::format("{} {}: times of {}", s.platform, s.precision, fmt::join(counts, ", ")),
                   "DeepBench, 2016-2018"});
  }
  return out;
}

std::vector<Member> problems_of(const std::string& wanted) {
  std::vector<Member> out;
  std::vector<std::string> names;
  each_set([&](const std::string& set, const std::vector<kernels::Problem>& problems) {
    names.push_back(set);
    if (set != wanted) return;
    for (const auto& p : problems) {
      out.push_back({kernels::problem_text(p.shape), std::string(name(p.pass)), p.application});
    }
  });
  if (out.empty()) core::refuse_unknown("list of problems", wanted, names);
  return out;
}

}  // namespace gradmeter::cli
