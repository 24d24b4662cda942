#include "core/format.hpp"
#include "report/cells.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

/// The ratio, and the figures of which it is the quotient.
std::string properties(const analysis::Comparison& c, const analysis::ComparedPoint& p) {
  if (p.a.empty() || p.b.empty()) return "";
  std::string out = "      <properties>\n";
  const auto add = [&](const std::string& name, double value) {
    out += fmt::format("        <property name=\"{}\" value=\"{}\"/>\n", name, value);
  };
  add(fmt::format("first_geometric_mean_{}", core::name(c.selection.metric)), analysis::geometric_mean(p.a));
  add(fmt::format("second_geometric_mean_{}", core::name(c.selection.metric)), analysis::geometric_mean(p.b));
  add("ratio", p.ratio.ratio);
  return out + "      </properties>\n";
}

std::string test_case(const analysis::Comparison& c, const analysis::ComparedPoint& p, double bar) {
  const auto why = analysis::why_below(p, bar);
  const std::string open = fmt::format(R"(    <testcase classname="gradmeter.{}" name="{}")",
                                       markup_text(p.sample.experiment), markup_text(p.sample.factors.key()));
  const std::string failure = why ? fmt::format("      <failure message=\"{}\"/>\n", markup_text(*why)) : "";
  return fmt::format("{}>\n{}{}    </testcase>\n", open, properties(c, p), failure);
}

}  // namespace

std::string comparison_junit(std::span<const analysis::Comparison> comparisons, double bar) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& c : comparisons) {
    out += fmt::format("  <testsuite name=\"{} against {}, bar {}\" tests=\"{}\" failures=\"{}\">\n",
                       markup_text(c.b_name), markup_text(c.a_name), bar, c.points.size(),
                       analysis::below_bar(c, bar).size());
    for (const auto& p : c.points) out += test_case(c, p, bar);
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace gradmeter::report
