// Where the samples come from: drawn here, or read from files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "model/dataset.hpp"

namespace gradmeter::model {

struct DataOptions {
  std::string directory = {};               ///< of MNIST's four files; empty for the built-in digits
  std::size_t train_samples = 60'000;       ///< drawn; of files, at most the first so many
  std::size_t validation_samples = 10'000;  ///< as above
  std::uint64_t seed = 1;                   ///< of the built-in digits
};

/// Both parts have equal features and classes and share no sample. Equal options give equal bytes on every rank.
/// Cost:   of the built-in digits, see make_digits: what is asked for is drawn, and nothing else; of files, all of
/// them. Errors: UsageError of one line, see make_digits and read_idx_directory.
DataSplit make_data(const DataOptions&);

}  // namespace gradmeter::model
