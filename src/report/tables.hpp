// The tables of each experiment as text, their legends, and the columns of their CSV. Each has a source of its own.
#pragma once
#include <span>
#include <string>

#include "analysis/comparison.hpp"
#include "core/result.hpp"
#include "report/columns.hpp"

namespace gradmeter::report {

// scale_table.cpp

/// Points of one sweep; curves in the order of their first point. A curve is the points of one model and one batch;
/// each gets a heading that names its baseline, and columns that line up and carry units. Rows that were not measured
/// show why.
std::string scale_tables(std::span<const core::Point>, std::size_t width = core::any_width);

/// What the columns mean, for below the last table.
std::string scale_legend(std::span<const core::Point>);

// train_table.cpp

std::string train_header();
/// One line, for an epoch's point.
std::string train_row(const core::Point&);

// collective_table.cpp

/// One table for each collective, type, operation, buffers and cadence, in the order of their first point; rows by
/// size, each with its half out of place and its half in place, where there is such a point. Rows that were not
/// measured show why.
std::string collective_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// What the columns mean, for below the last table.
std::string collective_legend();

const CsvColumns& collective_csv();

// collective_winners.cpp

/// The fastest algorithm of each size and placement with the vendor's beside it, where several were measured: of the
/// findings "fastest_exchange". Empty where there is nothing to choose.
std::string collective_winners(std::span<const core::Point>, std::size_t width = core::any_width);

// codec_comparison.cpp

/// Each point with a codec and the one without at otherwise equal factors; empty when there is no such pair.
std::string codec_comparison(std::span<const core::Point>, std::size_t width = core::any_width);
std::string codec_comparison_legend();

// codec_table.cpp

/// One table for each size, distribution and problem, in the order of their first point. Rows that were not measured
/// show why.
std::string codec_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// What the columns mean, for below the last table.
std::string codec_legend();

const CsvColumns& codec_csv();

// comparison_table.cpp

/// "42 points: 3 slower, 1 faster, 38 same".
std::string comparison_summary(const analysis::Comparison&);
/// One sentence: what is slower, what faster, each where it is most, with both geometric means; or that no difference
/// is shown.
std::string comparison_verdict(const analysis::Comparison&);
/// What the points have in common, then a row for each of the first `most`, those that matter first.
std::string comparison_table(const analysis::Comparison&, std::size_t most, std::size_t width = core::any_width);
/// The factors in which the point differs from others.
std::string comparison_label(const analysis::Comparison&, const analysis::ComparedPoint&);
std::string comparison_legend(double tolerance);
/// All points, one a line.
std::string comparison_csv(const analysis::Comparison&);

// comparison_junit.cpp

/// JUnit's XML: a suite for each comparison, a case for each point, a failure for each that does not pass the bar.
std::string comparison_junit(std::span<const analysis::Comparison>, double bar);

// exchange_error_table.cpp

/// A row for each codec and exchange, a column for each number of ranks; refused points have their reason below.
std::string exchange_error_tables(std::span<const core::Point>, std::size_t width = core::any_width);

// replay_table.cpp

/// One table a trace: the trace's own step and its replays, with their parts.
std::string replay_tables(std::span<const core::Point>, std::size_t width = core::any_width);
std::string replay_legend();

// infer_table.cpp

/// One table for each model, in order of appearance.
std::string infer_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// What the columns and marks mean.
std::string infer_legend();
const CsvColumns& infer_csv();

// kernel_table.cpp

/// One table for each operation, pass, precision and cache state, in order of appearance; after them the curves over
/// the mini-batch, where points have one.
std::string kernel_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// What the columns and marks mean.
std::string kernel_legend();
const CsvColumns& kernel_csv();

// kernel_curve.cpp

/// One table for each shape, pass and cache state among the points that have a batch: a line a batch, GFLOP/s and the
/// share of the roofline for each precision, and how many times the first precision's rate the others have. Empty where
/// no point has a batch.
std::string kernel_curves(std::span<const core::Point>, std::size_t width = core::any_width);

// link_table.cpp

/// One part for each pattern, size and transport: matrices over the ranks with what stands out below them, or a table
/// by pairs at once. A matrix that is too wide gives its quartiles.
std::string link_tables(std::span<const core::Point>, std::size_t width = core::any_width);
std::string link_legend();
const CsvColumns& link_csv();

// soak_table.cpp

/// One table for each soak: a line a rank, below it disturbances, drift and outliers.
std::string soak_tables(std::span<const core::Point>, std::size_t width = core::any_width);
std::string soak_legend();
const CsvColumns& soak_csv();

}  // namespace gradmeter::report
