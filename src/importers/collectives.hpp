// SPDX-License-Identifier: Apache-2.0
// Helpers for logs of collectives: units, names of collectives and element types, and checks that a row's columns
// agree.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/element.hpp"
#include "core/result.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"

namespace gradmeter::importers {

/// The number of ranks that the log states (`in_log`; 0: it states none), or else the user's. Errors: UsageError
/// "line N: …" if the two differ; line 0: the error names no line.
std::int64_t checked_ranks(std::int64_t in_log, const UserFacts&, std::size_t line);
/// The same for the collective: `in_log` is empty if the log does not state it.
std::string checked_collective(const std::string& in_log, const UserFacts&, std::size_t line);

/// The bracketed units of a table's head: B, us, GB/s from "(B) Time(us) [GB/s]".
std::vector<std::string> units_of(std::string_view head);
/// The seconds in a unit of time ("us", "usec", "ms" …), and the bytes a second in a unit of rate ("GB/s", "MiB/s",
/// "Mbytes/sec", "Gbit/s" …). Errors: UsageError "line N: …" for another unit.
double unit_seconds(std::string_view unit, std::size_t line);
double unit_bytes_per_s(std::string_view unit, std::size_t line);

/// Our name of a collective: "allreduce" for all_reduce_perf and for Allreduce; empty for names that are not known.
std::optional<std::string> collective_of(std::string_view name);

/// nccl_kind: the collective of a program of nccl-tests ("all_reduce_perf"), or the program's name if we have no such
/// collective. nccl_type: our name of an element type of nccl-tests ("half"); its unsigned types, which we do not have,
/// keep their names. Errors: UsageError for a type that nccl-tests does not have.
std::string nccl_kind(std::string_view program);
std::string nccl_type(std::string_view name, std::size_t line);

/// The version of NCCL that has this code: "2.28.9" for 22809, "2.7.8" for 2708.
std::string nccl_version(std::int64_t code);

/// Appended to `Imported::not_stated` for a log of nccl-tests with -C. Its times are the CPU's, but its rates are those
/// of the whole call, so the importers leave the rates out.
inline constexpr const char* note_on_cpu_rates = "; the rates of the CPU's times (-C: those in the log are left out)";

/// Our name of an element type of MPI or NCCL, such as MPI_CHAR, MPI_FLOAT or ncclFloat; other types keep their names.
std::string mpi_element(std::string_view name);

/// The element type for a name of PyTorch and others: float32, Float, c10::BFloat16, Half, Long; empty for other names.
std::optional<core::Element> element_of(std::string_view name);

/// Makes a point of the experiment allreduce, with the user's interconnect if it is given. size: [bytes]; ranks 0:
/// the user's (UserFacts).
core::Point collective_point(const std::string& collective, std::int64_t ranks, std::int64_t size, const UserFacts&);
/// The summary for a log that gives only the mean over all iterations: its median is that mean, its other statistics
/// are NaN. `Imported::not_stated` says so.
core::Summary summary_of_mean(double seconds);
/// A summary of the times of iterations one after another. These depend on each other, and the log does not say how, so
/// they are one block and have no interval.
core::Summary summary_of_iterations(std::span<const double> seconds);
/// Sets the time, and the rates that follow from it and the point's size and ranks.
void set_time_and_rates(core::Point&, double seconds);
/// Marks a point as mistrusted because its columns contradict each other; does nothing if its status is no longer ok.
/// `why`: "400 floats are not 400 bytes".
void mistrust(core::Point&, const std::string& why, Faults&);
/// Checks that the point's size and time agree with these rates of the same row, up to a factor of 2.2, since tools
/// count a collective's bytes differently; else marks it mistrusted. All rates are in bytes a second. `digit`: the
/// value of one unit in the last digit of a printed rate [B/s].
void check_rates(core::Point&, double algbw, double busbw, double digit, Faults&);
/// Checks that busbw/algbw is right for the collective on the point's ranks; else marks the point mistrusted. Only
/// rates of three digits or more are checked, and only all-reduces, all-gathers and reduce-scatters, whose ratio tells
/// the number of ranks. `digit`: see `check_rates`.
void check_bus_factor(core::Point&, double algbw, double busbw, double digit, Faults&);
/// True if `ratio` is within 2 % of `factor`: rates of three digits allow no closer comparison. False if there is no
/// factor.
bool is_near(double ratio, std::optional<double> factor);
/// The number of ranks in each group, which must be the same for all groups. Errors: UsageError "line N: ...".
std::int64_t size_of_groups(const std::map<std::int64_t, std::int64_t>& ranks_by_group, std::size_t line);
/// The reason why rows of nccl-tests with this operation (empty: none) and root (-1: none) cannot be of this
/// collective; empty: they can.
std::string collective_refusal(const std::string& collective, const std::string& op, std::int64_t root);
/// Checks that a mean of times lies between the shortest and the longest time [s]; else marks the point mistrusted.
void check_order(core::Point&, double least, double mean, double most, Faults&);
/// Adds a property to the factor `problem`, which tells apart calls of one collective and size: root=3, non-blocking.
void add_problem(core::Point&, const std::string& what);
/// True if the sizes that OSU, IMB, Chakra and NCCL's Inspector give for this collective are those of one rank's part,
/// not of the whole buffer. For an all_to_all it is true, although Chakra's size is that of the whole buffer.
bool gives_size_of_one_part(std::string_view collective);
/// Multiplies the size by the number of ranks if the log's size is one rank's part, since our sizes are of the whole
/// buffer. `always`: the size is one rank's part even if gives_size_of_one_part() is false. Errors: UsageError "line N:
/// …" if the ranks are unknown.
void set_whole_size(core::Point&, std::size_t line, bool always = false);
/// Sets the metric `wrong` to `elements`, the log's count of wrong elements, and marks the point wrong if there are
/// any.
void set_wrong(core::Point&, double elements);
/// busbw divided by algbw, by the collective and the number of ranks; empty if ranks are unknown, or if no factor is
/// defined for the collective.
std::optional<double> bus_factor(const std::string& collective, std::int64_t ranks);

}  // namespace gradmeter::importers
