// Where the samples come from: drawn here, or read from files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "model/dataset.hpp"

namespace gradmeter::model {

struct DataOptions {
  /// Empty: the built-in digits. "language:…": the built-in language. A directory: MNIST's four files. Else a text,
  /// "FILE" or "FILE:steps=35".
  std::string source = {};
  std::size_t train_samples = 60'000;       ///< drawn; of files, at most the first so many
  std::size_t validation_samples = 10'000;  ///< as above
  std::uint64_t seed = 1;                   ///< of the built-in digits
};

/// Whether samples are drawn, as many as are asked for.
bool is_drawn(const DataOptions&);
/// Whether files of images are read.
bool reads_images(const DataOptions&);

/// Both parts have equal features and classes and share no sample. Equal options give equal bytes on every rank.
/// Cost:   of the built-in digits, see make_digits: what is asked for is drawn, and nothing else; of files, all of
/// them. Errors: UsageError of one line, see make_digits, read_idx_directory, make_language,
/// read_text.
DataSplit make_data(const DataOptions&);

}  // namespace gradmeter::model
