#include "report/page/sentences.hpp"

#include <map>
#include <utility>

#include "analysis/findings.hpp"
#include "core/format.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {

namespace {

/// The first of each kind and experiment; what is left out is counted, and --findings has it.
std::vector<std::string> first_sentences(std::span<const core::Run> runs) {
  constexpr std::size_t most_of_a_kind = 3;
  std::map<std::pair<std::string, analysis::FindingKind>, std::size_t> told;
  std::vector<std::string> out;
  std::size_t more = 0;
  for (const auto& finding : analysis::findings(runs)) {
    if (++told[{finding.experiment, finding.kind}] > most_of_a_kind) {
      ++more;
    } else {
      out.push_back(finding.sentence);
    }
  }
  if (more > 0) out.push_back(fmt::format("And {} more: gradmeter report FILES --findings - has all of them.", more));
  return out;
}

}  // namespace

std::vector<std::string> sentences(std::span<const analysis::Side> sides,
                                   std::span<const analysis::Comparison> comparisons) {
  std::vector<std::string> out;
  for (const auto& side : sides) {
    for (const auto& sentence : first_sentences(side.runs)) {
      out.push_back(sides.size() > 1 ? fmt::format("{}: {}", side.name, sentence) : sentence);
    }
  }
  for (const auto& c : comparisons) {
    out.push_back(fmt::format("{} against {}: {}", c.b_name, c.a_name, comparison_summary(c)));
    out.push_back(comparison_verdict(c));
  }
  return out;
}

}  // namespace gradmeter::report
