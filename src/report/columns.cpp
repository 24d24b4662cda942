#include "report/columns.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

/// One of the summary's figures as a value; null where there is no summary.
template <class Figure>
core::Value of_summary(const core::Point& p, core::Metric time, Figure figure) {
  const auto* s = p.metrics[time].as<core::Summary>();
  return s ? core::Value(figure(*s)) : core::Value();
}

double core::Summary::*statistic(std::string_view key) {
  const auto at = std::ranges::find(core::statistics, key, &core::Statistic::key);
  if (at == core::statistics.end()) throw std::logic_error(fmt::format("a summary has no statistic {}", key));
  return at->value;
}

}  // namespace

CsvColumns::CsvColumns() {
  columns_.push_back({"status", [](const core::Point& p) { return std::string(core::name(p.status)); }});
  columns_.push_back({"reason", [](const core::Point& p) { return p.reason; }});
}

CsvColumns& CsvColumns::add(std::initializer_list<core::Factor> factors) {
  for (const auto f : factors) {
    columns_.push_back({std::string(core::name(f)), [f](const core::Point& p) { return p.factors[f]; }});
  }
  return *this;
}

CsvColumns& CsvColumns::add(std::initializer_list<core::Metric> metrics) {
  for (const auto m : metrics) {
    columns_.push_back({std::string(core::name(m)), [m](const core::Point& p) { return p.metrics[m]; }});
  }
  return *this;
}

CsvColumns& CsvColumns::statistics(core::Metric time, std::initializer_list<std::string_view> keys) {
  const std::string name(core::name(time));
  const std::string stem = name.substr(0, name.size() - 2);  // without "_s"
  for (const auto key : keys) {
    const auto value = statistic(key);
    columns_.push_back({fmt::format("{}_{}_s", stem, key), [time, value](const core::Point& p) {
                          return of_summary(p, time, [value](const core::Summary& s) { return s.*value; });
                        }});
  }
  return *this;
}

CsvColumns& CsvColumns::samples(core::Metric time, const std::string& name) {
  columns_.push_back({name, [time](const core::Point& p) {
                        return of_summary(p, time,
                                          [](const core::Summary& t) { return static_cast<std::int64_t>(t.n); });
                      }});
  return *this;
}

CsvColumns& CsvColumns::stop(core::Metric time) {
  columns_.push_back({"stop", [time](const core::Point& p) {
                        return of_summary(p, time,
                                          [](const core::Summary& t) { return std::string(core::name(t.stop)); });
                      }});
  return *this;
}

std::string CsvColumns::header() const {
  return line([](const Column& c) { return c.name; });
}

std::string CsvColumns::row(const core::Point& p) const {
  return line([&p](const Column& c) { return csv_cell(c.value(p)); });
}

std::string CsvColumns::line(const std::function<std::string(const Column&)>& cell) const {
  std::vector<std::string> cells;
  for (const auto& c : columns_) cells.push_back(cell(c));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace gradmeter::report
