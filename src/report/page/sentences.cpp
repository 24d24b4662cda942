#include "report/page/sentences.hpp"

#include "analysis/findings.hpp"
#include "core/format.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {

std::vector<std::string> sentences(std::span<const analysis::Side> sides,
                                   std::span<const analysis::Comparison> comparisons) {
  std::vector<std::string> out;
  for (const auto& side : sides) {
    for (const auto& finding : analysis::findings(side.runs)) {
      out.push_back(sides.size() > 1 ? fmt::format("{}: {}", side.name, finding.sentence) : finding.sentence);
    }
  }
  for (const auto& c : comparisons)
    out.push_back(fmt::format("{} against {}: {}", c.b_name, c.a_name, comparison_summary(c)));
  return out;
}

}  // namespace gradmeter::report
