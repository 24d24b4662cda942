#include "core/format.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

/// Text of an XML attribute; control characters, which XML 1.0 does not have, become blanks.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string test_case(const analysis::ComparedPoint& p, double bar) {
  const auto why = analysis::why_below(p, bar);
  const std::string open = fmt::format(R"(    <testcase classname="gradmeter.{}" name="{}")",
                                       escaped(p.sample.experiment), escaped(p.sample.factors.key()));
  if (!why) return fmt::format("{}/>\n", open);
  return fmt::format("{}>\n      <failure message=\"{}\"/>\n    </testcase>\n", open, escaped(*why));
}

}  // namespace

std::string comparison_junit(std::span<const analysis::Comparison> comparisons, double bar) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& c : comparisons) {
    out += fmt::format("  <testsuite name=\"{} against {}, bar {}\" tests=\"{}\" failures=\"{}\">\n", escaped(c.b_name),
                       escaped(c.a_name), bar, c.points.size(), analysis::below_bar(c, bar).size());
    for (const auto& p : c.points) out += test_case(p, bar);
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace gradmeter::report
