// The flags of a training, which `train` and `scale` share.
#pragma once
#include "bench/scale/plan.hpp"
#include "cli/data.hpp"
#include "cli/flags/flags.hpp"

namespace gradmeter::cli {

/// train: each flag takes one value; scale: a list, each a factor.
enum class Values { one, list };
void add_training_flags(options::options_description&, Values);

/// As lists, of one value each for train. usual_threads: of a rank, unless `--threads` says. Models and batches must
/// fit the data. Errors: UsageError.
bench::ScaleFactors read_training_flags(const Flags&, const DataShape&, int usual_threads);

/// Canonical names. shrink: divides the widths of layer tables. Errors: UsageError for a model that does not fit the
/// data.
/// device: as tables of operations have it.
std::vector<std::string> parse_models(const std::string& text, std::uint64_t shrink, const DataShape&,
                                      std::string_view device = "host");

/// For what reports times. Errors: UsageError for a precision that software rounds to in one of the models.
void refuse_emulated(const Flags&, const std::vector<std::string>& models, const DataShape&);

/// For what reads a loss. Errors: UsageError, beginning with `what`, for a model that only computes and exchanges.
void require_learning(std::string_view what, const Flags&, const std::vector<std::string>& models, const DataShape&);

/// `--data`; empty: the built-in digits.
std::string data_directory(const Flags&);

/// `--algorithm`, `--codec`, `--transport`, `--overlap`, `--bucket`, where they were given. used: which of them mean
/// something to anything that runs; ranks: the most of any of it. On one rank, where nothing is exchanged, gives a note
/// of those that change nothing, since scripts go over 1, 2, 4 ranks with the same flags. Errors: UsageError for one on
/// more ranks, and with `--strict`.
std::string unused_note(std::string_view command, const Flags&, const bench::Applies& used, int ranks);

}  // namespace gradmeter::cli
