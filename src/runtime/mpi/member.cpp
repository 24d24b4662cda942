#include <time.h>

#include <array>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/mpi/transport.hpp"

namespace gradmeter::runtime {
namespace {

constexpr int small_message_tag = 0;
std::size_t round_up_to_page(std::size_t n) { return (n + page_bytes - 1) / page_bytes * page_bytes; }

class MpiMember final : public GroupMember {
 public:
  explicit MpiMember(MPI_Comm owned) : comm_(owned) {
    check_mpi(MPI_Comm_set_errhandler(owned, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(owned, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(owned, &size_), "MPI_Comm_size");
  }
  MPI_Comm get() const { return comm_.get(); }

  RanksAs ranks_as() const override { return RanksAs::processes; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<GroupMember> split(int color, int key) const override {
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(get(), color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
    return make_mpi_member(part);
  }
  std::unique_ptr<GroupMember> split_by_node() const override {
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part), "MPI_Comm_split_type");
    return make_mpi_member(part);
  }
  std::unique_ptr<GroupMember> duplicate() const override {
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(get(), &copy), "MPI_Comm_dup");
    return make_mpi_member(copy);
  }

  void barrier() const override { check_mpi(MPI_Barrier(get()), "MPI_Barrier"); }
  void sleeping_barrier() const override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(get(), &request), "MPI_Ibarrier");
    constexpr timespec nap{0, 1'000'000};
    for (int done = 0;;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return;
      nanosleep(&nap, nullptr);
    }
  }
  void broadcast(std::span<std::byte> bytes, int root) const override {
    check_mpi(MPI_Bcast(bytes.data(), mpi_count(bytes.size()), MPI_BYTE, root, get()), "MPI_Bcast");
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const override {
    const int n = mpi_count(mine.size());
    check_mpi(MPI_Allgather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, get()), "MPI_Allgather");
  }
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) const override {
    const int n = mpi_count(mine.size());
    check_mpi(MPI_Gather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, 0, get()), "MPI_Gather");
  }
  void combine(std::span<double> values, Combine c) const override {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), mpi_count(values.size()), MPI_DOUBLE, mpi_op(c), get()),
              "MPI_Allreduce");
  }
  void send(int peer, std::span<const std::byte> bytes) const override {
    check_mpi(MPI_Send(bytes.data(), mpi_count(bytes.size()), MPI_BYTE, peer, small_message_tag, get()), "MPI_Send");
  }
  void receive(int peer, std::span<std::byte> bytes) const override {
    check_mpi(
        MPI_Recv(bytes.data(), mpi_count(bytes.size()), MPI_BYTE, peer, small_message_tag, get(), MPI_STATUS_IGNORE),
        "MPI_Recv");
  }
  SharedParts share(std::size_t bytes) const override;
  std::unique_ptr<Transport> connect(int channels, std::vector<int> node_of) const override {
    return std::make_unique<MpiTransport>(get(), channels, std::move(node_of));
  }

 private:
  Handle<CommunicatorTraits> comm_;
  int rank_ = 0, size_ = 0;
};

/// A shared window of MPI 3. Its own base may be only 8-byte aligned: the parts begin at a page.
SharedParts MpiMember::share(std::size_t bytes) const {
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  void* mine = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const auto size = static_cast<MPI_Aint>(round_up_to_page(bytes) + page_bytes);
  const int error = MPI_Win_allocate_shared(size, 1, info, get(), &mine, &window);
  MPI_Info_free(&info);
  check_mpi(error, "MPI_Win_allocate_shared");
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
  SharedParts out{.parts = {}, .owner = std::make_shared<Handle<WindowTraits>>(window)};
  for (int r = 0; r < size_; ++r) {
    MPI_Aint length = 0;
    int unit = 0;
    void* base = nullptr;
    check_mpi(MPI_Win_shared_query(window, r, &length, &unit, &base), "MPI_Win_shared_query");
    auto* aligned = reinterpret_cast<std::byte*>(round_up_to_page(reinterpret_cast<std::size_t>(base)));
    out.parts.emplace_back(aligned, static_cast<std::size_t>(length) - page_bytes);
  }
  const auto own = out.parts[static_cast<std::size_t>(rank_)];
  std::memset(own.data(), 0, own.size());
  barrier();
  return out;
}

}  // namespace

std::unique_ptr<GroupMember> make_mpi_member(MPI_Comm owned) {
  if (owned == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiMember>(owned);
}

MPI_Comm mpi_handle(const Communicator& c) {
  if (c.ranks_as() != RanksAs::processes) {
    throw core::BackendError("MPI", "communicator", "these ranks are threads, which MPI knows nothing of");
  }
  return static_cast<const MpiMember&>(c.member()).get();  // the only member of processes
}

MPI_Op mpi_op(Combine c) {
  const std::array<MPI_Op, 4> ops{MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
  return ops[static_cast<std::size_t>(c)];
}

}  // namespace gradmeter::runtime
