// SPDX-License-Identifier: Apache-2.0
// Points of collectives: their units, the names of collectives and element types in logs, and whether columns agree.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/element.hpp"
#include "core/result.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"

namespace gradmeter::importers {

/// The number of ranks that the log or else the user says. Errors: UsageError "line N: …" if they differ; 0: no line is
/// named.
std::int64_t ranks_of(std::int64_t said, const Hints&, std::size_t line);
std::string kind_of(const std::string& said, const Hints&, std::size_t line);

/// The bracketed units of a table's head: B, us, GB/s from "(B) Time(us) [GB/s]".
std::vector<std::string> units_of(std::string_view head);
/// Seconds in a "us", "usec", "ms" …; bytes a second in a "GB/s", "MiB/s", "Mbytes/sec", "Gbit/s" … Errors: UsageError
/// "line N: …" for another unit.
double time_unit(std::string_view unit, std::size_t line);
double rate_unit(std::string_view unit, std::size_t line);

/// "allreduce" for all_reduce_perf, Allreduce, "allreduce"; none for other names.
std::optional<std::string> collective_of(std::string_view name);

/// nccl_kind: the collective of a program of nccl-tests ("all_reduce_perf"), or the program's name if it is no kind of
/// ours. nccl_type: our element type for one of nccl-tests ("half", "uint8"), if we have it. Errors: UsageError for a
/// type that nccl-tests does not have.
std::string nccl_kind(std::string_view program);
std::string nccl_type(std::string_view name, std::size_t line);

/// MPI_CHAR, MPI_FLOAT and ncclFloat as our element types; other types keep their names.
std::string mpi_element(std::string_view name);

/// The element type for a name of PyTorch and others: float32, Float, c10::BFloat16, Half, Long; none for other names.
std::optional<core::Element> element_of(std::string_view name);

/// A point of a collective with the facts that every log gives.
core::Point collective_point(const std::string& collective, std::int64_t ranks, std::int64_t size, const Hints&);
/// A summary whose median is the log's one number for all iterations; `not_stated` says that it is a mean.
core::Summary mean_time(double seconds);
/// Sets the time, and the rates that follow from it and the point's size and ranks.
void set_time(core::Point&, double seconds);
/// Marks a point mistrusted, unless it is wrong: its columns contradict each other, "400 floats are not 400 bytes".
void mistrust(core::Point&, const std::string& why, Faults&);
/// Checks that the point's size and time agree with these rates, which the log has beside them; else marks it
/// mistrusted. `digit`: the value of a rate's last printed digit. All in bytes a second.
void check_rates(core::Point&, double algbw, double busbw, double digit, Faults&);
/// Checks that the ratio of the two rates is the collective's at the point's ranks, if the rates have three digits and
/// the collective's ratio depends on the ranks; else marks the point mistrusted.
void check_bus_factor(core::Point&, double algbw, double busbw, double digit, Faults&);
/// Whether `ratio` is within 2 % of `factor`, as rates of three digits are.
bool is_near(double ratio, std::optional<double> factor);
/// The number of ranks in each group, which must be the same. Errors: UsageError "line N: ...".
std::int64_t size_of_groups(const std::map<std::int64_t, std::int64_t>& ranks_by_group, std::size_t line);
/// The reason why rows of nccl-tests with this operation (empty: none) and this root (-1: none) are not of the
/// collective; empty: they can be.
std::string why_not_of(const std::string& collective, const std::string& op, std::int64_t root);
/// Checks that a mean of times lies between the shortest and the longest [s]; else marks the point mistrusted.
void check_order(core::Point&, double least, double mean, double most, Faults&);
/// Notes further properties of the measurement besides collective and size: root=3, non-blocking.
void add_problem(core::Point&, const std::string& what);
/// Whether OSU, IMB, Chakra and NCCL's Inspector give the size of one rank's part for this collective.
bool counts_parts(std::string_view collective);
/// Multiplies the size by the ranks if the log's size is one rank's part, since ours is the whole buffer. `always`:
/// this tool counts parts for this collective, whatever counts_parts() says. Errors: UsageError "line N: …" without
/// ranks.
void take_parts(core::Point&, std::size_t line, bool always = false);
/// Marks a point wrong if the log counts any elements out of bounds.
void set_wrong(core::Point&, double elements);
/// busbw divided by algbw: the collective's factor at this number of ranks; none if ranks are unknown, or if nobody has
/// defined one for the collective.
std::optional<double> bus_factor(const std::string& collective, std::int64_t ranks);

}  // namespace gradmeter::importers
