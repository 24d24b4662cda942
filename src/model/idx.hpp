// IDX, the format of MNIST and similar sets: two zero bytes, the element type (0x08: bytes), the number of dimensions,
// each dimension as a big-endian 32-bit number, then the elements. Plain and gzip files are both read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/dataset.hpp"

namespace gradmeter::model {

/// pixels [count × rows × columns], row-major, none of the three 0.
struct IdxImages {
  std::size_t count = 0, rows = 0, columns = 0;
  std::vector<std::uint8_t> pixels;
};

/// Errors: UsageError of one line that names the file, when it is missing, not of this kind, cut short, too long,
///         damaged, or announces more than 2 GiB. Memory never exceeds twice what the file really holds.
/// Source: Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits", file formats.
IdxImages read_idx_images(const std::string& path);
/// Labels 0 … 9. Errors: as above, and on a label past 9.
std::vector<std::uint8_t> read_idx_labels(const std::string& path);

/// Reads the four files under their usual names (train-images-idx3-ubyte, …; also with a dot for the last hyphen, also
/// .gz) and keeps at most the first `train_most` and `validation_most` samples.
/// Name:   "idx:DIRECTORY" for both parts.
/// Errors: UsageError as above, on a missing file, on images and labels that differ in number, on parts that differ in
///         image size.
DataSplit read_idx_directory(const std::string& directory, std::size_t train_most, std::size_t validation_most);

}  // namespace gradmeter::model
