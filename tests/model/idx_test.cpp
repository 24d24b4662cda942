// SPDX-License-Identifier: Apache-2.0
#include "model/data/sources.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/error.hpp"
#include "core/random.hpp"
#include "model/data/dataset.hpp"

namespace gradmeter::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Bytes = std::vector<std::uint8_t>;

void put(Bytes& bytes, std::uint32_t word) {
  for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
}

Bytes header(std::initializer_list<std::uint32_t> words) {
  Bytes bytes;
  for (std::uint32_t word : words) put(bytes, word);
  return bytes;
}

/// `count` images of 3 × 2; byte k of all is k·37 mod 256.
Bytes images_file(std::uint32_t count, std::uint32_t rows = 3, std::uint32_t columns = 2) {
  Bytes bytes = header({0x803, count, rows, columns});
  for (std::uint32_t k = 0; k < count * rows * columns; ++k) bytes.push_back(static_cast<std::uint8_t>(k * 37));
  return bytes;
}

/// Labels 0, 3, 6, 9, 2, …
Bytes labels_file(std::uint32_t count) {
  Bytes bytes = header({0x801, count});
  for (std::uint32_t k = 0; k < count; ++k) bytes.push_back(static_cast<std::uint8_t>(k * 3 % 10));
  return bytes;
}

/// A folder of its own for each test.
class Idx : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "gradmeter-idx-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::string write(const std::string& name, const Bytes& bytes) const {
    std::ofstream file(path(name), std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.good());
    return path(name);
  }

  std::string write_gzip(const std::string& name, const Bytes& bytes) const {
    const gzFile file = gzopen(path(name).c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return path(name);
  }

  Bytes read(const std::string& file_path) const {
    std::ifstream file(file_path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
  }

  void write_four(std::uint32_t train, std::uint32_t validation) const {
    write("train-images-idx3-ubyte", images_file(train));
    write("train-labels-idx1-ubyte", labels_file(train));
    write("t10k-images-idx3-ubyte", images_file(validation));
    write("t10k-labels-idx1-ubyte", labels_file(validation));
  }

  std::string directory_;
};

/// The one line with which `work` refuses.
std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const core::UsageError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "(accepted)";
}

std::string images_refusal(const std::string& file_path) {
  return refusal([&] { read_idx_images(file_path); });
}

std::string labels_refusal(const std::string& file_path) {
  return refusal([&] { read_idx_labels(file_path); });
}

TEST_F(Idx, PlainAndGzipFilesGiveWhatWasWritten) {
  const Bytes images = images_file(5), labels = labels_file(5);
  for (const auto& file : {write("plain", images), write_gzip("packed.gz", images)}) {
    const IdxImages read_back = read_idx_images(file);
    EXPECT_EQ(read_back.count, 5u);
    EXPECT_EQ(read_back.rows, 3u);
    EXPECT_EQ(read_back.columns, 2u);
    EXPECT_EQ(read_back.pixels, Bytes(images.begin() + 16, images.end()));
  }
  for (const auto& file : {write("plain", labels), write_gzip("packed.gz", labels)})
    EXPECT_EQ(read_idx_labels(file), Bytes(labels.begin() + 8, labels.end()));
}

TEST_F(Idx, AFileLargerThanOneReadIsReadWhole) {
  const Bytes images = images_file(3, 1000, 901);
  for (const auto& file : {write("plain", images), write_gzip("packed.gz", images)})
    EXPECT_EQ(read_idx_images(file).pixels, Bytes(images.begin() + 16, images.end()));
}

TEST_F(Idx, AMissingFileIsNamed) {
  EXPECT_THAT(images_refusal(path("nowhere")), AllOf(HasSubstr(path("nowhere")), HasSubstr("No such file")));
}

TEST_F(Idx, AFolderIsNotAFile) {
  EXPECT_THAT(images_refusal(directory_), AllOf(HasSubstr(directory_), HasSubstr("cannot be read (Is a directory)")));
}

TEST_F(Idx, AShortFileIsNamedWithBothSizes) {
  Bytes images = images_file(5);
  images.pop_back();
  EXPECT_THAT(images_refusal(write("cut", images)), AllOf(HasSubstr(path("cut")), HasSubstr("ends after 45 of 46")));
  images.resize(13);
  EXPECT_THAT(images_refusal(write("cut", images)), HasSubstr("ends after 13 of 16"));
  EXPECT_THAT(images_refusal(write("empty", {})), HasSubstr("ends after 0 of 4"));
  Bytes labels = labels_file(5);
  labels.pop_back();
  EXPECT_THAT(labels_refusal(write("cut", labels)), AllOf(HasSubstr(path("cut")), HasSubstr("ends after 12 of 13")));
}

TEST_F(Idx, AFileOfTheOtherKindIsCalledByItsName) {
  EXPECT_THAT(images_refusal(write("labels", labels_file(20))),
              AllOf(HasSubstr(path("labels")), HasSubstr("a labels file given where images are expected")));
  EXPECT_THAT(labels_refusal(write("images", images_file(20))),
              AllOf(HasSubstr(path("images")), HasSubstr("an images file given where labels are expected")));
}

TEST_F(Idx, AnotherMagicIsShown) {
  Bytes images = images_file(1);
  images[2] = 0x0D;  // floats
  EXPECT_THAT(images_refusal(write("floats", images)),
              AllOf(HasSubstr(path("floats")), HasSubstr("0x00000d03, not 0x00000803")));
}

TEST_F(Idx, TrailingBytesAreRefused) {
  Bytes images = images_file(5), labels = labels_file(5);
  images.push_back(0);
  labels.push_back(0);
  EXPECT_THAT(images_refusal(write("long", images)), AllOf(HasSubstr(path("long")), HasSubstr("after the 46 bytes")));
  EXPECT_THAT(images_refusal(write_gzip("long.gz", images)), HasSubstr("after the 46 bytes"));
  EXPECT_THAT(labels_refusal(write("long", labels)), AllOf(HasSubstr(path("long")), HasSubstr("after the 13 bytes")));
}

TEST_F(Idx, AbsurdSizesAreRefusedBeforeAnyMemoryIsTaken) {
  constexpr std::uint32_t kMax = 0xFFFFFFFF;
  for (const auto& file :
       {header({0x803, kMax, kMax, kMax}), header({0x803, 1, 0x10000, 0x10000}), header({0x803, 1u << 31, 2, 1}),
        header({0x803, 4, 1u << 31, 1u << 31}), header({0x803, kMax, 28, 28})})
    EXPECT_THAT(images_refusal(write("absurd", file)), AllOf(HasSubstr(path("absurd")), HasSubstr("at most 2 GiB")));
  EXPECT_THAT(labels_refusal(write("absurd", header({0x801, kMax}))), HasSubstr("at most 2 GiB"));
  // Allowed by the limit, but not there: refused as short, and memory only for what is there.
  EXPECT_THAT(images_refusal(write("absurd", header({0x803, 1u << 21, 32, 32}))), HasSubstr("ends after 16 of"));
}

TEST_F(Idx, NothingToTrainOnIsRefused) {
  for (const auto& file : {header({0x803, 0, 28, 28}), header({0x803, 1, 0, 28}), header({0x803, 1, 28, 0})})
    EXPECT_THAT(images_refusal(write("nothing", file)),
                AllOf(HasSubstr(path("nothing")), HasSubstr("nothing to train")));
  EXPECT_THAT(labels_refusal(write("nothing", header({0x801, 0}))), HasSubstr("0 labels"));
}

TEST_F(Idx, ALabelPastNineIsRefusedWithItsPlace) {
  Bytes labels = labels_file(5);
  labels[8 + 3] = 10;
  EXPECT_THAT(labels_refusal(write("eleven", labels)),
              AllOf(HasSubstr(path("eleven")), HasSubstr("label 10 of sample 3")));
}

TEST_F(Idx, ADamagedGzipStreamIsRefused) {
  const Bytes whole = read(write_gzip("labels.gz", labels_file(500)));
  Bytes wrong_sum = whole;
  wrong_sum[wrong_sum.size() - 8] ^= 1;  // the checksum
  EXPECT_THAT(labels_refusal(write("labels.gz", wrong_sum)),
              AllOf(HasSubstr(path("labels.gz")), HasSubstr("gzip stream is damaged"), HasSubstr("data check")));
  Bytes cut(whole.begin(), whole.end() - 9);
  EXPECT_THAT(labels_refusal(write("labels.gz", cut)),
              AllOf(HasSubstr(path("labels.gz")), HasSubstr("gzip stream is damaged"), HasSubstr("end of file")));
  Bytes no_trailer(whole.begin(), whole.end() - 4);
  EXPECT_THAT(labels_refusal(write("labels.gz", no_trailer)), HasSubstr("gzip stream is damaged"));
}

TEST_F(Idx, AFolderOfFourFilesBecomesASplit) {
  write_four(20, 4);
  const DataSplit split = make_data({.source = directory_});
  EXPECT_EQ(split.train->size(), 20u);
  EXPECT_EQ(split.validation->size(), 4u);
  EXPECT_EQ(split.train->name(), "idx:" + directory_);
  EXPECT_EQ(split.train->features(), 6u);
  EXPECT_EQ(split.train->classes(), 10u);
  EXPECT_EQ(dynamic_cast<const ImageDataset&>(*split.train).label(3), 9);
  EXPECT_EQ(dynamic_cast<const ImageDataset&>(*split.train).image(1)[2], (8 * 37) % 256);
}

TEST_F(Idx, FewerSamplesCanBeAskedFor) {
  write_four(20, 4);
  const DataSplit split = make_data({.source = directory_, .train_samples = 7, .validation_samples = 9});
  EXPECT_EQ(split.train->size(), 7u);
  EXPECT_EQ(split.validation->size(), 4u);
  EXPECT_EQ(dynamic_cast<const ImageDataset&>(*split.train).image(6)[5], (41 * 37) % 256);
}

TEST_F(Idx, NamesWithADotAndWithGzAreFound) {
  write("train-images.idx3-ubyte", images_file(20));
  write_gzip("train-labels.idx1-ubyte.gz", labels_file(20));
  write_gzip("t10k-images-idx3-ubyte.gz", images_file(4));
  write("t10k-labels-idx1-ubyte", labels_file(4));
  EXPECT_EQ(make_data({.source = directory_}).train->size(), 20u);
}

TEST_F(Idx, AFolderThatIsNoneOrLacksAFileIsNamed) {
  const auto open = [](const std::string& directory) { return refusal([&] { make_data({.source = directory}); }); };
  EXPECT_THAT(open(path("nowhere")), AllOf(HasSubstr(path("nowhere")), HasSubstr("not a directory")));
  write_four(20, 4);
  EXPECT_EQ(open(directory_), "(accepted)");
  std::filesystem::remove(path("t10k-labels-idx1-ubyte"));
  EXPECT_THAT(open(directory_), AllOf(HasSubstr(directory_), HasSubstr("t10k-labels-idx1-ubyte")));
}

TEST_F(Idx, ImagesAndLabelsThatDifferInNumberAreRefused) {
  write_four(20, 4);
  write("train-labels-idx1-ubyte", labels_file(19));
  EXPECT_THAT(refusal([&] { make_data({.source = directory_}); }),
              AllOf(HasSubstr(path("train-labels-idx1-ubyte")), HasSubstr("19 labels"), HasSubstr("20 images")));
}

TEST_F(Idx, PartsOfDifferentImageSizeAreRefused) {
  write_four(20, 4);
  for (const auto& [rows, columns] : {std::array{3u, 5u}, std::array{4u, 2u}}) {
    write("t10k-images-idx3-ubyte", images_file(4, rows, columns));
    EXPECT_THAT(refusal([&] { make_data({.source = directory_}); }),
                AllOf(HasSubstr(path("t10k-images-idx3-ubyte") + ": holds images of " + std::to_string(rows) + "x"),
                      HasSubstr("of 3x2: they must be equal")));
  }
}

/// One file with up to four bits flipped and, half of the time, its end cut off.
Bytes mutate(Bytes bytes, std::uint64_t round) {
  const core::Random random(20260101, round);
  const std::uint64_t flips = random.below(0, 5);
  for (std::uint64_t k = 1; k <= flips; ++k) {
    const std::uint64_t bit = random.below(k, 8 * bytes.size());
    bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ (1u << bit % 8));
  }
  if (random.below(10, 2) == 1) bytes.resize(random.below(11, bytes.size() + 1));
  return bytes;
}

TEST_F(Idx, NoDamageGetsPastTheReaderButAsAUsageError) {
  const Bytes plain = images_file(6), labels = labels_file(40);
  const Bytes packed = read(write_gzip("packed", plain)), packed_labels = read(write_gzip("packed", labels));
  std::size_t refused = 0;
  for (std::uint64_t round = 0; round < 1000; ++round) {
    const auto images_of = [&](const Bytes& good) {
      const Bytes bad = mutate(good, round);
      const std::string file = write("fuzz", bad);
      try {
        const IdxImages images = read_idx_images(file);
        EXPECT_EQ(images.pixels.size(), images.count * images.rows * images.columns);
        // The checksum vouches for what came through a gzip stream.
        if (&good == &packed) {
          EXPECT_EQ(images.pixels, Bytes(plain.begin() + 16, plain.end())) << round;
        }
      } catch (const core::UsageError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(file), Not(HasSubstr("\n"))));
        ++refused;
      }
    };
    images_of(plain);
    images_of(packed);
    for (const Bytes& good : {labels, packed_labels}) {
      const std::string file = write("fuzz", mutate(good, round));
      try {
        for (std::uint8_t label : read_idx_labels(file)) EXPECT_LT(label, 10);
      } catch (const core::UsageError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(file), Not(HasSubstr("\n"))));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 2000u);  // of 4000, a tenth untouched
}

}  // namespace
}  // namespace gradmeter::model
