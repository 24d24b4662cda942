// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/data/sources.hpp"

namespace gradmeter::model {
namespace {

constexpr std::uint32_t kImagesMagic = 0x803, kLabelsMagic = 0x801;
constexpr std::size_t kClasses = 10;
constexpr std::size_t kMostBytes = std::size_t{1} << 31;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

template <typename... Args>
[[noreturn]] void refuse(const std::string& path, fmt::format_string<Args...> text, Args&&... args) {
  throw core::UsageError(path + ": " + fmt::format(text, std::forward<Args>(args)...));
}

/// Reads a plain or gzip file from its beginning.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    errno = 0;
    file_.reset(gzopen(path.c_str(), "rb"));
    if (!file_) refuse(path, "cannot be opened ({}): an IDX file, plain or gzip, is wanted", reason());
  }

  /// Gives fewer bytes than asked for only at the end of the file.
  std::size_t read(std::span<std::uint8_t> into) {
    std::size_t done = 0;
    while (done < into.size()) {
      const auto want = static_cast<unsigned>(std::min(into.size() - done, kChunkBytes));
      errno = 0;
      const int got = gzread(file_.get(), into.data() + done, want);
      if (got < static_cast<int>(want)) check();
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    position_ += done;
    return done;
  }

  std::size_t position() const { return position_; }  ///< uncompressed bytes read
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };

  static std::string reason() { return errno != 0 ? std::strerror(errno) : "out of memory"; }

  /// zlib tells the end of a file from a torn stream or a failed read only through gzerror.
  void check() const {
    int code = Z_OK;
    std::string text = gzerror(file_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    if (code == Z_ERRNO) refuse(path_, "cannot be read ({}): an IDX file, plain or gzip, is wanted", reason());
    if (text.starts_with(path_ + ": ")) text.erase(0, path_.size() + 2);
    refuse(path_, "the gzip stream is damaged ({}): fetch the file again", text);
  }

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::size_t position_ = 0;
};

[[noreturn]] void refuse_short(const Reader& file, std::size_t announced) {
  refuse(file.path(), "ends after {} of {} bytes: the file is cut short, fetch it again", file.position(), announced);
}

template <std::size_t N>
std::array<std::uint32_t, N> read_words(Reader& file) {
  std::array<std::uint8_t, 4 * N> bytes{};
  const std::size_t start = file.position();
  if (file.read(bytes) < bytes.size()) refuse_short(file, start + bytes.size());
  std::array<std::uint32_t, N> words{};
  for (std::size_t i = 0; i < bytes.size(); ++i) words[i / 4] = words[i / 4] << 8 | bytes[i];
  return words;
}

void check_magic(Reader& file, std::uint32_t wanted) {
  const std::uint32_t magic = read_words<1>(file)[0];
  if (magic == wanted) return;
  const std::string_view kind = wanted == kImagesMagic ? "images" : "labels";
  if (magic == kImagesMagic || magic == kLabelsMagic)
    refuse(file.path(), "{} file given where {} are expected (it starts with 0x{:08x}, not 0x{:08x})",
           magic == kImagesMagic ? "an images" : "a labels", kind, magic, wanted);
  refuse(file.path(), "not an IDX file of {}: it starts with 0x{:08x}, not 0x{:08x}", kind, magic, wanted);
}

/// The elements after the header, allocated as they arrive, so that a wrong header cannot make us allocate too much.
std::vector<std::uint8_t> read_rest(Reader& file, std::size_t bytes) {
  const std::size_t announced = file.position() + bytes;
  std::vector<std::uint8_t> rest;
  while (rest.size() < bytes) {
    const std::size_t old = rest.size(), step = std::min(kChunkBytes, bytes - old);
    rest.resize(old + step);
    if (file.read(std::span(rest).subspan(old)) < step) refuse_short(file, announced);
  }
  std::array<std::uint8_t, 1> beyond{};
  // Reading past the last element also makes zlib compare the checksum.
  if (file.read(beyond) != 0)
    refuse(file.path(), "goes on after the {} bytes that its header announces: not the file that it claims to be",
           announced);
  return rest;
}

class IdxDataset final : public ImageDataset {
 public:
  IdxDataset(std::string name, IdxImages images, std::vector<std::uint8_t> labels, std::size_t most)
      : name_(std::move(name)), images_(std::move(images)), labels_(std::move(labels)) {
    if (labels_.size() <= most) return;
    labels_.resize(most);
    images_.pixels.resize(most * features());
    images_.pixels.shrink_to_fit();
  }

  const std::string& name() const override { return name_; }
  std::size_t size() const override { return labels_.size(); }
  std::size_t features() const override { return images_.rows * images_.columns; }
  std::size_t classes() const override { return kClasses; }
  std::span<const std::uint8_t> image(std::size_t i) const override {
    return std::span(images_.pixels).subspan(i * features(), features());
  }
  std::int32_t label(std::size_t i) const override { return labels_[i]; }

 private:
  std::string name_;
  IdxImages images_;
  std::vector<std::uint8_t> labels_;
};

/// "train-images", "idx3" → the first existing file of train-images-idx3-ubyte, train-images.idx3-ubyte and both with
/// .gz.
std::string find_file(const std::string& directory, std::string_view part, std::string_view kind) {
  for (std::string_view suffix : {"", ".gz"}) {
    for (char joint : {'-', '.'}) {
      const auto path = std::filesystem::path(directory) / fmt::format("{}{}{}-ubyte{}", part, joint, kind, suffix);
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) return path.string();
    }
  }
  refuse(directory, "holds no {0}-{1}-ubyte, nor {0}-{1}-ubyte.gz: the folder must hold MNIST's four files", part,
         kind);
}

struct ImageSet {
  std::string images_path;
  IdxImages images;
  std::vector<std::uint8_t> labels;
};

ImageSet read_set(const std::string& directory, std::string_view part) {
  ImageSet result{
      .images_path = find_file(directory, fmt::format("{}-images", part), "idx3"), .images = {}, .labels = {}};
  const std::string labels_path = find_file(directory, fmt::format("{}-labels", part), "idx1");
  result.images = read_idx_images(result.images_path);
  result.labels = read_idx_labels(labels_path);
  if (result.images.count != result.labels.size())
    refuse(labels_path, "holds {} labels, and {} holds {} images: they must come in pairs", result.labels.size(),
           result.images_path, result.images.count);
  return result;
}

}  // namespace

IdxImages read_idx_images(const std::string& path) {
  Reader file(path);
  check_magic(file, kImagesMagic);
  const auto [count, rows, columns] = read_words<3>(file);
  if (count == 0 || rows == 0 || columns == 0)
    refuse(path, "its header announces {} images of {}x{} pixels: nothing to train on", count, rows, columns);
  // The first test keeps the product of the second below 2^63.
  const std::size_t pixels = std::size_t{rows} * columns;
  if (pixels > kMostBytes || count * pixels > kMostBytes)
    refuse(path, "its header announces {} images of {}x{} pixels: at most 2 GiB are read", count, rows, columns);
  return {.count = count, .rows = rows, .columns = columns, .pixels = read_rest(file, count * pixels)};
}

std::vector<std::uint8_t> read_idx_labels(const std::string& path) {
  Reader file(path);
  check_magic(file, kLabelsMagic);
  const std::size_t count = read_words<1>(file)[0];
  if (count == 0) refuse(path, "its header announces 0 labels: nothing to train on");
  if (count > kMostBytes) refuse(path, "its header announces {} labels: at most 2 GiB are read", count);
  auto labels = read_rest(file, count);
  const auto bad = std::find_if(labels.begin(), labels.end(), [](std::uint8_t label) { return label >= kClasses; });
  if (bad != labels.end())
    refuse(path, "label {} of sample {} is past 9: data sets of ten classes are read", *bad, bad - labels.begin());
  return labels;
}

DataSplit read_idx_directory(const std::string& directory, std::size_t train_most, std::size_t validation_most) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    refuse(directory, "not a directory: the folder that holds MNIST's four files is wanted");
  ImageSet train = read_set(directory, "train"), validation = read_set(directory, "t10k");
  const IdxImages &a = train.images, &b = validation.images;
  if (a.rows != b.rows || a.columns != b.columns)
    refuse(validation.images_path, "holds images of {}x{} pixels, and {} of {}x{}: they must be equal", b.rows,
           b.columns, train.images_path, a.rows, a.columns);
  const std::string name = "idx:" + directory;
  return {.train = std::make_shared<IdxDataset>(name, std::move(train.images), std::move(train.labels), train_most),
          .validation = std::make_shared<IdxDataset>(name, std::move(validation.images), std::move(validation.labels),
                                                     validation_most)};
}

}  // namespace gradmeter::model
