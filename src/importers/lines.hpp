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

/// Each line without its end, with its number from 1.
void each_line(std::string_view text, const std::function<void(std::string_view line, std::size_t number)>&);
std::vector<std::string> words_of(std::string_view line);

/// Errors: UsageError "line N: 'word' is no number".
double number_of(const std::string& word, std::size_t line);
std::int64_t count_of(const std::string& word, std::size_t line);
[[noreturn]] void refuse_line(std::size_t number, const std::string& why);

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
/// Where the log's size is one rank's part, as OSU, IMB and NCCL's Inspector count an all-gather's, ours is the whole
/// buffer: that times the ranks. Other collectives stay. Errors: UsageError "line N: …" without ranks.
void take_parts(core::Point&, std::size_t line);
/// Elements out of bounds, as the log says: a point that has any is wrong.
void set_wrong(core::Point&, double elements);
/// busbw from algbw: the collective's factor at so many ranks; nothing where ranks are unknown.
std::optional<double> bus_factor(const std::string& collective, std::int64_t ranks);

}  // namespace gradmeter::importers
