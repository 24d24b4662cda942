// SPDX-License-Identifier: Apache-2.0
#include "bench/train/training.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {
namespace {

using model::Dataset;
using model::ImageDataset;

struct Sizes {
  std::size_t samples = 0, features = 0, classes = 0;
  std::size_t bytes() const { return samples * (features + 1); }
};

Sizes sizes_of(const Dataset* d) {
  return d ? Sizes{.samples = d->size(), .features = d->features(), .classes = d->classes()} : Sizes{};
}

/// A data set whose bytes, images and then labels, are in the shared memory of the node's first rank.
class NodeDataset final : public ImageDataset {
 public:
  NodeDataset(std::string name, Sizes s, std::shared_ptr<void> owner, std::span<const std::byte> bytes)
      : name_(std::move(name)),
        sizes_(s),
        owner_(std::move(owner)),
        bytes_(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()) {}
  const std::string& name() const override { return name_; }
  std::size_t size() const override { return sizes_.samples; }
  std::size_t features() const override { return sizes_.features; }
  std::size_t classes() const override { return sizes_.classes; }
  std::span<const std::uint8_t> image(std::size_t i) const override {
    return bytes_.subspan(i * sizes_.features, sizes_.features);
  }
  std::int32_t label(std::size_t i) const override { return bytes_[sizes_.samples * sizes_.features + i]; }

 private:
  std::string name_;
  Sizes sizes_;
  std::shared_ptr<void> owner_;  ///< owns the bytes
  std::span<const std::uint8_t> bytes_;
};

void copy(const ImageDataset& from, std::span<std::byte> to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto image = from.image(i);
    std::memcpy(to.data() + i * image.size(), image.data(), image.size());
    to[from.size() * image.size() + i] = static_cast<std::byte>(from.label(i));
  }
}

/// Reads the files on the first rank of the node; on other ranks the result is empty. Errors: UsageError of the first
/// rank, on all ranks of the node.
model::DataSplit read_once(const runtime::Communicator& node, const model::DataOptions& o) {
  model::DataSplit read;
  std::string fault;
  if (node.rank() == 0) {
    try {
      read = model::make_data(o);
    } catch (const core::UsageError& e) {
      fault = e.what();
    }
  }
  if (fault = node.broadcast_text(fault); !fault.empty()) throw core::UsageError(fault);
  return read;
}

}  // namespace

model::DataSplit load_data(const runtime::Communicator& world, const model::DataOptions& o) {
  if (!model::reads_images(o)) return model::make_data(o);
  const auto node = world.split_by_node();
  const model::DataSplit read = read_once(node, o);
  const std::array<Sizes, 2> s =
      node.broadcast_value(std::array{sizes_of(read.train.get()), sizes_of(read.validation.get())});
  const std::string name = node.broadcast_text(read.train ? read.train->name() : "");
  const std::size_t total_bytes = s[0].bytes() + s[1].bytes();
  const runtime::SharedParts shared = runtime::share_memory(node, node.rank() == 0 ? total_bytes : 0);
  const std::span<std::byte> bytes = shared.of(0);
  const auto train = bytes.first(s[0].bytes()), validation = bytes.subspan(s[0].bytes(), s[1].bytes());
  if (read.train) {
    copy(dynamic_cast<const ImageDataset&>(*read.train), train);
    copy(dynamic_cast<const ImageDataset&>(*read.validation), validation);
  }
  node.barrier();
  return {.train = std::make_shared<NodeDataset>(name, s[0], shared.owner, train),
          .validation = std::make_shared<NodeDataset>(name, s[1], shared.owner, validation)};
}

}  // namespace gradmeter::bench
