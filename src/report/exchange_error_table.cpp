#include "report/tables.hpp"

#include <cmath>
#include <set>

#include "core/format.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string error_heading(const Point& p) {
  const core::Bytes size{static_cast<std::size_t>(integer(p.factors[Factor::size_bytes]))};
  return fmt::format("error of the {}: ‖sum - exact‖² / ‖exact‖² · {} gradients of {} · ranks are threads",
                     text(p.factors[Factor::op]), text(p.factors[Factor::distribution]), core::to_text(size));
}

std::string row_name(const Point& p) {
  return fmt::format("{}\n{}", text(p.factors[Factor::codec]), text(p.factors[Factor::algorithm]));
}

std::string remark(const std::vector<const Point*>& points) {
  std::set<std::string> why;
  for (const Point* p : points) {
    if (p->status != core::Status::ok) why.insert(why_not(*p));
  }
  return fmt::format("{}", fmt::join(why, "; "));
}

std::string table(const std::vector<const Point*>& points, std::size_t width) {
  std::set<std::int64_t> ranks;
  std::vector<Point> of;
  for (const Point* p : points) ranks.insert(integer(p->factors[Factor::ranks])), of.push_back(*p);
  std::vector<core::Column> columns{{"codec", "", core::Align::left}, {"exchange", "", core::Align::left}};
  for (const auto p : ranks) columns.push_back({fmt::format("P={}", p), "", core::Align::right});
  core::Table out(columns);
  for (const auto& [name, row] : by_name(of, row_name)) {
    std::vector<std::string> cells{text(codec_label(*row.front())), text(row.front()->factors[Factor::algorithm])};
    cells.resize(columns.size(), "-");
    for (const Point* p : row) {
      const auto column = std::distance(ranks.begin(), ranks.find(integer(p->factors[Factor::ranks])));
      cells[2 + static_cast<std::size_t>(column)] = error_text(p->metrics.number(Metric::error));
    }
    out.add_row(std::move(cells), remark(row));
  }
  return out.to_string(width);
}

}  // namespace

std::string exchange_error_tables(std::span<const Point> points, std::size_t width) {
  std::string out;
  for (const auto& [name, of] : by_name(points, error_heading)) out += fmt::format("{}\n{}\n", name, table(of, width));
  return out;
}

}  // namespace gradmeter::report
