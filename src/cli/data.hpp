// Facts of the data, known before models and batches are checked against it.
#pragma once
#include <cstddef>
#include <string>

#include "runtime/communicator.hpp"

namespace gradmeter::cli {

struct DataShape {
  std::size_t features = std::size_t{28} * 28, classes = 10;  ///< the built-in digits'
  std::size_t labels = 1;                                     ///< of a sample
  std::size_t train_samples = SIZE_MAX;  ///< what the files hold; the built-in digits never run out
};

/// An empty directory is the built-in digits: nothing is read.
/// Cost: the files are read once. Errors: UsageError of one line.
DataShape read_data_shape(const std::string& directory);

/// Collective: one rank of each node reads the files as its node has them.
/// Errors: Refused on all ranks; it names the rank where only some of them found an error.
DataShape agree_on_data(const runtime::Communicator& world, const std::string& directory);

/// Errors: UsageError when the files hold fewer samples than one step takes.
void check_enough(const DataShape&, const std::string& directory, std::size_t batch_global);

}  // namespace gradmeter::cli
