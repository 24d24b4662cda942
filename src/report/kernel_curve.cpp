#include "report/tables.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/format.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// The problem without its batch, which the curve runs over: `batch` where a problem has that key, else `n`.
std::string shape_of_all(const Point& p) {
  std::string all = text(p.factors[Factor::problem]);
  const std::size_t colon = all.find(':') + 1;
  const std::string values = fmt::format(",{}", all.substr(colon));
  for (const char* key : {",batch=", ",n="}) {
    const std::size_t at = values.find(key);
    if (at == std::string::npos) continue;
    const std::size_t end = std::min(values.find(',', at + 1), values.size());
    const std::string rest = values.substr(0, at) + values.substr(end);
    return all.substr(0, colon) + (rest.empty() ? "" : rest.substr(1));
  }
  return all;
}

std::string curve_heading(const Point& p) {
  const auto& search = p.factors[Factor::search];
  return fmt::format("{} · {} · {}{} · over the mini-batch", shape_of_all(p), text(p.factors[Factor::pass]),
                     text(p.factors[Factor::cache]),
                     core::is_null(search) ? "" : fmt::format(" · {} search", text(search)));
}

std::string curve(const std::vector<const Point*>& points, std::size_t width) {
  using enum core::Align;
  std::vector<std::string> precisions;
  std::map<std::int64_t, std::map<std::string, const Point*>> by_batch;
  for (const Point* p : points) {
    const std::string precision = text(p->factors[Factor::precision]);
    if (std::ranges::find(precisions, precision) == precisions.end()) precisions.push_back(precision);
    by_batch[integer(p->factors[Factor::batch_per_rank])][precision] = p;
  }
  std::vector<core::Column> columns{{"batch", "", right}};
  for (const auto& name : precisions) {
    columns.insert(columns.end(), {{name, "GFLOP/s", right}, {"roofline", "%", right, 1}});
    if (name != precisions.front()) columns.push_back({fmt::format("/{}", precisions.front()), "", right});
  }
  core::Table table(columns);
  for (const auto& [batch, of] : by_batch) {
    std::vector<std::string> cells{fmt::format("{}", batch)};
    const auto first = of.find(precisions.front());
    const double base = first == of.end() ? NAN : first->second->metrics.number(Metric::flops_per_s);
    for (const auto& name : precisions) {
      const auto it = of.find(name);
      const double rate = it == of.end() ? NAN : it->second->metrics.number(Metric::flops_per_s);
      const double share = it == of.end() ? NAN : it->second->metrics.number(Metric::roofline);
      cells.insert(cells.end(), {digits(rate * 1e-9), std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-"});
      if (name != precisions.front()) cells.push_back(digits(rate / base));
    }
    table.add_row(std::move(cells));
  }
  return table.to_string(width);
}

}  // namespace

std::string kernel_curves(std::span<const Point> points, std::size_t width) {
  std::vector<Point> swept;
  for (const Point& p : points) {
    if (!core::is_null(p.factors[Factor::batch_per_rank])) swept.push_back(p);
  }
  std::string out;
  for (const auto& [name, of] : by_name(swept, curve_heading)) out += fmt::format("{}\n{}\n", name, curve(of, width));
  return out;
}

}  // namespace gradmeter::report
