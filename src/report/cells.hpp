// Shared by the tables: the text of a value, a share of noise, an exchange in a cell, and which points are grouped.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace gradmeter::report {

/// "-" for null.
std::string text(const core::Value&);
/// Three significant digits where there are decimals, "-" where the number is not finite.
std::string digits(double);
/// "1.20–1.24" in the cell's unit: seconds × `per_second`; "-" where there is no interval.
std::string interval(const core::Value& time, double per_second);
bool is_true(const core::Value&);
/// 0 where it is no whole number.
std::int64_t integer(const core::Value&);
/// The codec's short name, where the point has one; the file has every parameter.
const core::Value& codec_label(const core::Point&);
/// Three digits, "0" for nothing at all, "-" where it is not finite.
std::string error_text(double);
/// Quoted where CSV asks for it (RFC 4180).
std::string csv_quoted(const std::string&);
/// A text as a cell of CSV. One that a spreadsheet would take for a formula (= + - @) begins with an apostrophe.
std::string csv_text(const std::string&);
/// One cell of CSV: empty for null and for what is not finite.
std::string csv_cell(const core::Value&);
/// Text for XML and HTML, attributes included, without the characters that XML 1.0 does not have (core::printable).
std::string markup_text(std::string_view);
/// "skipped: why", for a row's note; empty where the point was measured.
std::string why_not(const core::Point&);
/// How steady the machine was above a table of these points: by the canary in their turns, the cores that others took
/// and the points' own waiting for a core. Says how many points are disturbed, and by what.
std::string machine_line(std::span<const core::Point* const>);
/// "slow: rank 3 on node1; busy: node2" for a row's note: the rank whose median stands out, and the host whose cores
/// others used (of a noisy point on several nodes, which a median of short calls does not show).
std::string slow_and_busy(const core::Point&);
/// More busy threads than cores: marked "*".
bool oversubscribed(const core::Point&);
/// Names shortened as far as the points stay distinct: canonical ones to "qsgd4", "qsgd4:bucket=128".
using Labels = std::map<std::string, std::string>;
Labels short_labels(std::span<const core::Point>, core::Factor);
/// "ring/shm", with a codec "ring/shm qsgd4"; a vendor has no transport; "-" where nothing is exchanged.
std::string exchange(const core::Point&, const Labels&);

/// A measured point with a codec, and the same one without.
struct CodecPair {
  const core::Point* coded;
  const core::Point* plain;
  /// How many times shorter the codec makes it: of the medians, and its bounds from both intervals.
  core::Summary gain() const;
};
/// In the order of the points; of several without a codec the last counts.
std::vector<CodecPair> codec_pairs(std::span<const core::Point* const>);

/// Points of one name, names in order of appearance.
struct NamedPoints {
  std::string name;
  std::vector<const core::Point*> points;
};
std::vector<NamedPoints> by_name(std::span<const core::Point>, const std::function<std::string(const core::Point&)>&);

}  // namespace gradmeter::report
