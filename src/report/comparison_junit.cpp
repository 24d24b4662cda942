#include "core/format.hpp"
#include "report/cells.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

std::string test_case(const analysis::ComparedPoint& p, double bar) {
  const auto why = analysis::why_below(p, bar);
  const std::string open = fmt::format(R"(    <testcase classname="gradmeter.{}" name="{}")",
                                       markup_text(p.sample.experiment), markup_text(p.sample.factors.key()));
  if (!why) return fmt::format("{}/>\n", open);
  return fmt::format("{}>\n      <failure message=\"{}\"/>\n    </testcase>\n", open, markup_text(*why));
}

}  // namespace

std::string comparison_junit(std::span<const analysis::Comparison> comparisons, double bar) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& c : comparisons) {
    out += fmt::format("  <testsuite name=\"{} against {}, bar {}\" tests=\"{}\" failures=\"{}\">\n",
                       markup_text(c.b_name), markup_text(c.a_name), bar, c.points.size(),
                       analysis::below_bar(c, bar).size());
    for (const auto& p : c.points) out += test_case(p, bar);
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace gradmeter::report
