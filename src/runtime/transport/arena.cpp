// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/arena.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"
#include "runtime/host/host.hpp"
#include "runtime/host/random_pages.hpp"

namespace gradmeter::runtime {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

std::span<std::byte> Arena::take(std::size_t bytes) {
  const std::size_t size = round_up(bytes, page_bytes);
  if (size < bytes || size > memory_.size() - used_) {  // neither the rounding nor the sum may wrap
    throw core::BackendError(
        "runtime", "Arena::take",
        fmt::format("{} asked for, {} of {} left", core::to_text(core::Bytes{bytes}),
                    core::to_text(core::Bytes{memory_.size() - used_}), core::to_text(core::Bytes{memory_.size()})));
  }
  auto out = memory_.subspan(used_, bytes);
  used_ += size;
  return out;
}

PrivateArena::PrivateArena(std::size_t bytes, Pages pages) {
  const std::size_t offset = draw_page_offset(bytes);
  mapped_bytes_ = round_up(offset + bytes + 1, huge_page) + huge_page;
  mapping_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw core::BackendError("system", "mmap", std::strerror(errno));
  const auto aligned = round_up(reinterpret_cast<std::size_t>(mapping_), huge_page);
  memory_ = {reinterpret_cast<std::byte*>(aligned + offset), round_up(bytes, page_bytes)};
  // Only advice: a kernel without transparent huge pages refuses it, and small pages are used.
  if (pages == Pages::huge_if_granted) (void)madvise(memory_.data() - offset, offset + memory_.size(), MADV_HUGEPAGE);
}

PrivateArena::~PrivateArena() { munmap(mapping_, mapped_bytes_); }

std::size_t shm_for(std::size_t window_bytes) { return window_bytes + window_bytes / 16; }

SharedParts share_memory(const Communicator& node, std::size_t bytes) {
  if (node.ranks_as() == RanksAs::processes) {
    const auto needs = shm_for(static_cast<std::size_t>(node.sum(static_cast<double>(bytes + 2 * page_bytes))));
    const auto free = node.broadcast_value(shm_free_bytes());
    if (free > 0 && needs > free) throw core::BackendError("shared memory", "window", short_of_shm(needs, free));
  }
  return node.member().share(bytes);
}

SharedArena::SharedArena(const Communicator& node, std::size_t bytes) : parts_(share_memory(node, bytes)) {
  memory_ = parts_.of(node.rank());
}

}  // namespace gradmeter::runtime
