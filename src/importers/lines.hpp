// What the formats share: lines with their numbers, words, numbers, and points of collectives.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/element.hpp"
#include "core/result.hpp"
#include "importers/importers.hpp"

namespace gradmeter::importers {

/// What is wrong with a log that can be read all the same, counted.
struct Faults {
  std::size_t without_time = 0;   ///< rows that are no points: their time or rate is 0 or less
  std::size_t without_bytes = 0;  ///< likewise: our sizes begin at one
  std::size_t contradictory = 0;  ///< points that are mistrusted: their columns contradict each other
  std::size_t cut_line = 0;       ///< the last row, where it is too short, or could be since it has no end; 0: none
  std::string why_cut = {};       ///< where it is too short
  /// For a row that is too short, and for one that is not: only the last may be cut. Errors: UsageError "line N: …".
  void add_cut_row(std::size_t number, const std::string& why);
  void add_whole_row() const;
  std::string text() const;
};

/// Each line without its end, with its number from 1. The last one only if it has its end or is no row: a row that was
/// cut may look like a whole one with other numbers.
void each_line(std::string_view text, Faults&, const std::function<void(std::string_view line, std::size_t number)>&);
std::vector<std::string> words_of(std::string_view line);

/// Errors: UsageError "line N: 'word' is no number".
double number_of(const std::string& word, std::size_t line);
std::int64_t count_of(const std::string& word, std::size_t line);
[[noreturn]] void refuse_line(std::size_t number, const std::string& why);

/// What stands in brackets of a table's head: B, us, GB/s of "(B) Time(us) [GB/s]".
std::vector<std::string> units_of(std::string_view head);
/// Seconds of "us", "usec", "ms" …; bytes a second of "GB/s", "MiB/s", "Mbytes/sec", "Gbit/s" …
/// Errors: UsageError "line N: …" for another unit.
double time_unit(std::string_view unit, std::size_t line);
double rate_unit(std::string_view unit, std::size_t line);
bool is_rate_unit(std::string_view unit);

/// "allreduce" of all_reduce_perf, Allreduce, "allreduce"; nothing for a name that no collective has.
std::optional<std::string> collective_of(std::string_view name);

/// The element type that PyTorch and others call float32, Float, c10::BFloat16, Half, Long; nothing for other names.
std::optional<core::Element> element_of(std::string_view name);

/// A point of a collective with what every log says of it.
core::Point collective_point(const std::string& collective, std::int64_t ranks, std::int64_t size, const Hints&);
/// One number for all iterations: a summary whose median it stands for, with nothing else. `silent` says that it is a
/// mean.
core::Summary mean_time(double seconds);
/// The time and the rates that follow from it and the point's size and ranks.
void set_time(core::Point&, double seconds);
/// The point is mistrusted, since its columns contradict each other: "400 floats are not 400 bytes". A wrong one stays
/// so.
void mistrust(core::Point&, const std::string& why, Faults&);
/// Whether the point with its size and time can have these rates, which the log has beside them; else it is mistrusted.
/// `digit`: what the last printed digit of a rate stands for. All in bytes a second.
void check_rates(core::Point&, double algbw, double busbw, double digit, Faults&);
/// Whether a mean of times lies between the shortest and the longest [s]; else the point is mistrusted.
void check_order(core::Point&, double least, double mean, double most, Faults&);
/// Where the log's size is one rank's part, as OSU, IMB and NCCL's Inspector count an all-gather's, ours is the whole
/// buffer: that times the ranks. Other collectives stay. Errors: UsageError "line N: …" without ranks.
void take_parts(core::Point&, std::size_t line);
/// Elements out of bounds, as the log says: a point that has any is wrong.
void set_wrong(core::Point&, double elements);
/// busbw from algbw: the collective's factor at so many ranks; nothing where ranks are unknown.
std::optional<double> bus_factor(const std::string& collective, std::int64_t ranks);

}  // namespace gradmeter::importers
