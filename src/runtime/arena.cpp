#include "runtime/arena.hpp"

#include <mpi.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

namespace gradmeter::runtime {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

std::span<std::byte> Arena::take(std::size_t bytes) {
  const std::size_t size = round_up(bytes, page);
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

PrivateArena::PrivateArena(std::size_t bytes, Pages pages) : mapped_(round_up(bytes + 1, huge_page) + huge_page) {
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw core::BackendError("system", "mmap", std::strerror(errno));
  const auto aligned = round_up(reinterpret_cast<std::size_t>(mapping_), huge_page);
  memory_ = {reinterpret_cast<std::byte*>(aligned), round_up(bytes, page)};
  // Advice only: a kernel without transparent huge pages refuses, and small pages serve.
  if (pages == Pages::advised) (void)madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE);
}

PrivateArena::~PrivateArena() { munmap(mapping_, mapped_); }

struct SharedWindow::State {
  Window window;
  std::vector<std::span<std::byte>> parts;
};

SharedWindow::SharedWindow(const Communicator& node, std::size_t bytes) : state_(std::make_unique<State>()) {
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  void* mine = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const auto size = static_cast<MPI_Aint>(round_up(bytes, page) + page);
  const int error = MPI_Win_allocate_shared(size, 1, info, node.get(), &mine, &window);
  MPI_Info_free(&info);
  check_mpi(error, "MPI_Win_allocate_shared");
  state_->window = Window(window);
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
  for (int r = 0; r < node.size(); ++r) {
    MPI_Aint length = 0;
    int unit = 0;
    void* base = nullptr;
    check_mpi(MPI_Win_shared_query(window, r, &length, &unit, &base), "MPI_Win_shared_query");
    auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::size_t>(base), page));
    state_->parts.emplace_back(aligned, static_cast<std::size_t>(length) - page);
  }
  auto own = state_->parts[static_cast<std::size_t>(node.rank())];
  std::memset(own.data(), 0, own.size());
  node.barrier();
}

SharedWindow::~SharedWindow() {
  if (state_->window.get() != MPI_WIN_NULL && may_free()) MPI_Win_unlock_all(state_->window.get());
}

std::span<std::byte> SharedWindow::of(int rank) const { return state_->parts[static_cast<std::size_t>(rank)]; }

SharedArena::SharedArena(const Communicator& node, std::size_t bytes) : window_(node, bytes) {
  memory_ = window_.of(node.rank());
}

}  // namespace gradmeter::runtime
