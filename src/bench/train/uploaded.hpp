// SPDX-License-Identifier: Apache-2.0
// Batches on their way from the host to the device that trains on them, while earlier steps are still under way.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "core/element.hpp"
#include "runtime/device.hpp"

namespace gradmeter::bench {

/// The largest number of places (pinned buffers of `bytes` bytes, each for one upload): 16, enough for the steps that a
/// host submits ahead; but if 16 places take more than 64 MiB, as many as fit into 64 MiB, and at least 2.
constexpr std::size_t most_upload_buffers(std::size_t bytes) {
  constexpr std::size_t most = 16, most_bytes = std::size_t{64} << 20;
  return std::clamp<std::size_t>(most_bytes / std::max<std::size_t>(bytes, 1), 2, most);
}

/// Numbers that the host writes and a device reads. Where the device is the host, both use one memory. Else the host
/// writes to pinned memory: each time to another place, since copies from earlier places may still be under way.
template <class T>
class Uploaded {
 public:
  Uploaded(runtime::Device& device, std::size_t count)
      : device_(device), count_(count), memory_(device.allocate(core::element_of<T>, count)) {}
  /// The memory into which the host writes the numbers that are uploaded next. Waits while all places are in use.
  std::span<T> host() {
    if (!memory_.buffer.on_device()) return memory_.buffer.values<T>();
    if (!is_open_) open();
    return places_[next_].numbers();
  }
  runtime::Buffer device() const { return memory_.buffer; }
  /// Copies the numbers to the device after the host has written them.
  void upload(runtime::Queue& queue) {
    if (!memory_.buffer.on_device()) return;
    Place& place = places_[next_];
    queue.copy("upload", place.numbers(), memory_.buffer);
    place.copied = queue.record();
    next_ = (next_ + 1) % places_.size();
    is_open_ = false;
  }

 private:
  /// Pinned memory for one upload, in whole pages, so that no page belongs to two places.
  struct Place {
    Place(runtime::Device& device, std::size_t elements)
        : memory(static_cast<std::byte*>(operator new (paged(elements), std::align_val_t{page}))),
          count(elements),
          pinned(device.pin({memory.get(), paged(elements)})) {}
    static constexpr std::size_t page = 4096;
    static std::size_t paged(std::size_t count) { return (count * sizeof(T) + page - 1) / page * page; }
    std::span<T> numbers() const { return {reinterpret_cast<T*>(memory.get()), count}; }
    struct Free {
      void operator()(std::byte* p) const { operator delete (p, std::align_val_t{page}); }
    };
    std::unique_ptr<std::byte, Free> memory;
    std::size_t count;
    std::shared_ptr<void> pinned;
    runtime::EventPtr copied = {};  ///< reached when the last copy from here has been made
  };

  /// Makes `next_` a place that the host may write to: the oldest place if its copy has been made, else a new place. If
  /// there are the most places already, waits for the oldest place's copy.
  void open() {
    const bool is_free = !places_.empty() && (!places_[next_].copied || places_[next_].copied->reached());
    if (!is_free && places_.size() < most_upload_buffers(Place::paged(count_))) {
      places_.emplace(places_.begin() + static_cast<std::ptrdiff_t>(next_), device_, count_);
    } else if (!is_free) {
      places_[next_].copied->wait();
    }
    is_open_ = true;
  }

  runtime::Device& device_;
  std::size_t count_;
  runtime::OwnedBuffer memory_;
  std::vector<Place> places_;  ///< `next_` is the index of the least recently used place
  std::size_t next_ = 0;
  bool is_open_ = false;  ///< true: the host may write to the place `next_`
};

}  // namespace gradmeter::bench
