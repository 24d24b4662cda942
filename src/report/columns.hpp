// Columns of tables and of CSV, each described once: its head, and what a row has in it.
#pragma once
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// Columns of a text table whose rows are made from `Row`: a point, or what stands in one row together.
template <class Row>
class Columns {
 public:
  using Cell = std::function<std::string(const Row&)>;

  void add(core::Column column, Cell cell) {
    columns_.push_back(std::move(column));
    cells_.push_back(std::move(cell));
  }
  core::Table table() const { return core::Table(columns_); }
  std::vector<std::string> cells(const Row& row) const {
    std::vector<std::string> out;
    for (const auto& cell : cells_) out.push_back(cell(row));
    return out;
  }

 private:
  std::vector<core::Column> columns_;
  std::vector<Cell> cells_;
};

/// CSV: one line a point, every column with its unit in its name; null is empty. It begins with status and reason.
class CsvColumns {
 public:
  CsvColumns();
  CsvColumns& add(std::initializer_list<core::Factor>);
  CsvColumns& add(std::initializer_list<core::Metric>);
  /// Keys of core::statistics. "time_median_s": a time's metric ends in "_s", its statistics stand before that.
  CsvColumns& statistics(core::Metric time, std::initializer_list<std::string_view> keys);
  /// How many samples the time has, and what ended them.
  CsvColumns& samples(core::Metric time, const std::string& name);
  CsvColumns& stop(core::Metric time);

  /// Each line ended.
  std::string header() const;
  std::string row(const core::Point&) const;

 private:
  struct Column {
    std::string name;
    std::function<core::Value(const core::Point&)> value;
  };
  std::string line(const std::function<std::string(const Column&)>& cell) const;
  std::vector<Column> columns_;
};

}  // namespace gradmeter::report
