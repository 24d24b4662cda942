#include "report/page/sentences.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/format.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {

namespace {

/// The first of each kind and experiment; what is left out is counted, and --findings has it.
std::vector<std::string> first_sentences(std::span<const analysis::Finding> findings) {
  constexpr std::size_t most_of_a_kind = 3;
  std::map<std::pair<std::string, analysis::FindingKind>, std::size_t> told;
  std::vector<std::string> out;
  std::size_t more = 0;
  for (const auto& finding : findings) {
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

Said say(std::span<const analysis::Side> sides, std::span<const std::vector<analysis::Finding>> findings,
         std::span<const analysis::Comparison> comparisons) {
  Said out;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    for (const auto& sentence : first_sentences(findings[i]))
      out.sentences.push_back(sides.size() > 1 ? fmt::format("{}: {}", sides[i].name, sentence) : sentence);
    const auto advised = std::ranges::find_if(findings[i], [](const auto& f) { return !f.next.empty(); });
    if (out.next.empty() && advised != findings[i].end()) out.next = advised->next;
  }
  for (const auto& c : comparisons) {
    out.sentences.push_back(fmt::format("{} against {}: {}", c.b_name, c.a_name, comparison_summary(c)));
    out.sentences.push_back(comparison_verdict(c));
  }
  return out;
}

}  // namespace gradmeter::report
