// SPDX-License-Identifier: Apache-2.0
// What the tests over generated logs and traces share: chance from a fixed seed, and the rows that a reading should
// have.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "core/random.hpp"
#include "importers/support.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::importers {

inline constexpr int logs_of_a_tool = test::sanitized ? 200 : 2000;

class Chance {
 public:
  explicit Chance(std::uint64_t stream) : random_(20261128, stream) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_.below(next_++, n)); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class List>
  const auto& of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  core::Random random_;
  std::uint64_t next_ = 0;
};

/// A row as it should be read.
struct TrueRow {
  core::Factors factors;
  double seconds = 0;  ///< 0: no time
  core::Status status = core::Status::ok;
  bool operator<(const TrueRow& b) const { return key() < b.key(); }
  std::string key() const { return fmt::format("{} {:.9e} {}", factors.key(), seconds, core::name(status)); }
};

/// A name of another tool and ours.
struct Named {
  const char *theirs, *ours;
};

inline core::Factors true_factors(const std::string& kind, std::int64_t ranks, std::int64_t size) {
  core::Factors f;
  f[core::Factor::collective] = kind;
  if (ranks > 0) f[core::Factor::ranks] = ranks;
  f[core::Factor::size_bytes] = size;
  return f;
}

/// Rows of a reading as in the truth.
inline std::vector<TrueRow> rows_of(const Reading& reading) {
  std::vector<TrueRow> out;
  for (const auto& p : reading.run.points) {
    TrueRow row{.factors = p.factors, .seconds = 0, .status = p.status};
    if (!core::is_null(p.metrics[core::Metric::time_s])) row.seconds = number(p, core::Metric::time_s);
    out.push_back(std::move(row));
  }
  return out;
}

/// The first row that was read and is none of the log's.
inline std::string untrue_row(std::vector<TrueRow> truth, std::vector<TrueRow> found) {
  std::ranges::sort(truth, {}, &TrueRow::key);
  std::ranges::sort(found, {}, &TrueRow::key);
  std::vector<TrueRow> untrue;
  std::ranges::set_difference(found, truth, std::back_inserter(untrue), {}, &TrueRow::key, &TrueRow::key);
  return untrue.empty() ? "" : untrue.front().key();
}

}  // namespace gradmeter::importers
