// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes: groups by MPI's collectives, and messages by MPI point to point, between nodes or between
// any buffers.
#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/units.hpp"
#include "runtime/clock.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {
namespace {

using namespace core::literals;

/// Sends each channel's messages with a tag of its own. `node_of[r]`: rank r's node, by which bytes between nodes are
/// counted. Cost: one MPI_Isend or MPI_Irecv for each message, and one MPI_Testsome over all open messages in each call
/// of `progress`.
class MpiTransport final : public Transport {
 public:
  /// Collective over `parent`, which it duplicates.
  MpiTransport(MPI_Comm parent, int channels, std::vector<int> node_of);
  /// Cancels receives whose message has not arrived. The caller must have waited for all sends.
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int channels() const override { return channels_; }
  bool zero_copy_from(int) const override { return false; }
  std::size_t message_bytes() const override;
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle& handle) override { return completed(handle); }
  const std::byte* try_receive(MessageHandle& handle) override;
  void progress() override;

 private:
  MessageHandle track(MPI_Request, void* address);
  bool completed(MessageHandle&);

  Handle<CommunicatorTraits> comm_;
  int rank_ = 0, size_ = 0, channels_;
  std::vector<int> node_of_;
  bool one_node_;
  // Element i of `requests_` and `done_` belongs to one message, whose id is i + 1, since 0, the id of a default
  // handle, stands for no message. `free_` holds unused indices; `indices_` is what MPI_Testsome writes.
  std::vector<MPI_Request> requests_;
  std::vector<char> done_;
  std::vector<std::size_t> free_;
  std::vector<int> indices_;
};

MpiTransport::MpiTransport(MPI_Comm parent, int channels, std::vector<int> node_of)
    : channels_(channels),
      node_of_(std::move(node_of)),
      one_node_(std::all_of(node_of_.begin(), node_of_.end(), [&](int n) { return n == node_of_.front(); })) {
  const MPI_Request arrival = begin("MPI_Ibarrier", [&](MPI_Request* r) { return MPI_Ibarrier(parent, r); });
  finish(arrival, "MPI_Ibarrier");  // so that no rank waits long for others while it holds its turn
  const MpiTurn turn;
  check_mpi(MPI_Comm_dup(parent, comm_.out_address()), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_.get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_.get(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
}

MpiTransport::~MpiTransport() {
  if (!may_call_collectives()) return;
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    const MpiTurn turn;
    // A request that cannot be cancelled ends with its communicator.
    if (MPI_Cancel(&request) == MPI_SUCCESS) note_mpi_error(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  }
}

// Measured within a node, 256 KiB is best. Over TCP, messages of 512 KiB and more are 1.02 to 1.36 times as fast, and
// those of 128 KiB 0.78 times.
std::size_t MpiTransport::message_bytes() const { return one_node_ ? (256_KiB).value : (1_MiB).value; }

MessageHandle MpiTransport::track(MPI_Request request, void* address) {
  if (free_.empty()) {
    requests_.push_back(MPI_REQUEST_NULL);
    done_.push_back(0);
    indices_.push_back(0);
    free_.push_back(requests_.size() - 1);
  }
  const std::size_t slot = free_.back();
  free_.pop_back();
  requests_[slot] = request;
  done_[slot] = 0;
  return {slot + 1, address};
}

MessageHandle MpiTransport::send(int peer, int channel, std::span<const std::byte> data) {
  const MPI_Request request = begin("MPI_Isend", [&](MPI_Request* r) {
    return MPI_Isend(data.data(), mpi_count(data.size()), MPI_BYTE, peer, channel, comm_.get(), r);
  });
  traffic_.bytes += data.size();
  ++traffic_.messages;
  if (node_of_[static_cast<std::size_t>(peer)] != node_of_[static_cast<std::size_t>(rank())]) {
    traffic_.bytes_between_nodes += data.size();
  }
  return track(request, nullptr);
}

MessageHandle MpiTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  const MPI_Request request = begin("MPI_Irecv", [&](MPI_Request* r) {
    return MPI_Irecv(landing.data(), mpi_count(landing.size()), MPI_BYTE, peer, channel, comm_.get(), r);
  });
  return track(request, landing.data());
}

bool MpiTransport::completed(MessageHandle& handle) {
  if (handle.id == 0) return true;
  const std::size_t slot = handle.id - 1;
  if (!done_[slot]) return false;
  free_.push_back(slot);
  handle.id = 0;
  return true;
}

const std::byte* MpiTransport::try_receive(MessageHandle& handle) {
  return completed(handle) ? static_cast<const std::byte*>(handle.address) : nullptr;
}

void MpiTransport::progress() {
  if (requests_.size() == free_.size()) return;
  int count = 0;
  const MpiTurn turn;
  check_mpi(MPI_Testsome(mpi_count(requests_.size()), requests_.data(), &count, indices_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  // `count` is MPI_UNDEFINED, which is negative, if all requests are complete and only their messages have not yet been
  // asked for.
  for (int i = 0; i < count; ++i) done_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])] = 1;
}

/// The tags of `send`/`receive` and of `combine`. They differ, since a message may be under way while all ranks
/// combine.
enum Tag : int { small_message, combine_message };
std::size_t round_up_to_page(std::size_t n) { return (n + page_bytes - 1) / page_bytes * page_bytes; }

class MpiMember final : public GroupMember {
 public:
  explicit MpiMember(MPI_Comm owned) : comm_(owned) {
    const MpiTurn turn;
    check_mpi(MPI_Comm_set_errhandler(owned, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(owned, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(owned, &size_), "MPI_Comm_size");
  }
  MPI_Comm get() const { return comm_.get(); }

  RanksAs ranks_as() const override { return RanksAs::processes; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<GroupMember> split(int color, int key) const override {
    return make_together("MPI_Comm_split", [&](MPI_Comm* part) {
      return MPI_Comm_split(get(), color < 0 ? MPI_UNDEFINED : color, key, part);
    });
  }
  std::unique_ptr<GroupMember> split_by_node() const override {
    return make_together("MPI_Comm_split_type", [&](MPI_Comm* part) {
      return MPI_Comm_split_type(get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, part);
    });
  }
  std::unique_ptr<GroupMember> duplicate() const override {
    return make_together("MPI_Comm_dup", [&](MPI_Comm* copy) { return MPI_Comm_dup(get(), copy); });
  }

  void barrier() const override {
    if (!MpiTurn::is_shared()) return check_mpi(MPI_Barrier(get()), "MPI_Barrier");
    complete("MPI_Ibarrier", [&](MPI_Request* r) { return MPI_Ibarrier(get(), r); });
  }
  void sleeping_barrier() const override {
    const MPI_Request arrived = begin("MPI_Ibarrier", [&](MPI_Request* r) { return MPI_Ibarrier(get(), r); });
    static constexpr timespec nap{0, 1'000'000};
    finish(arrived, "MPI_Ibarrier", [] { nanosleep(&nap, nullptr); });
  }
  bool arrive_within(core::Seconds limit) const override {
    struct Late {};
    const double end = host_clock() + limit.value;
    try {
      const MPI_Request arrived = begin("MPI_Ibarrier", [&](MPI_Request* r) { return MPI_Ibarrier(get(), r); });
      finish(arrived, "MPI_Ibarrier", [end] {
        if (host_clock() >= end) throw Late();
        constexpr timespec nap{0, 1'000'000};
        nanosleep(&nap, nullptr);
      });
      return true;
    } catch (const Late&) {
      return false;
    }
  }
  void broadcast(std::span<std::byte> bytes, int root) const override {
    const int n = mpi_count(bytes.size());
    complete("MPI_Ibcast", [&](MPI_Request* r) { return MPI_Ibcast(bytes.data(), n, MPI_BYTE, root, get(), r); });
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const override {
    const int n = mpi_count(mine.size());
    complete("MPI_Iallgather", [&](MPI_Request* r) {
      return MPI_Iallgather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, get(), r);
    });
  }
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) const override {
    const int n = mpi_count(mine.size());
    complete("MPI_Igather", [&](MPI_Request* r) {
      return MPI_Igather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, 0, get(), r);
    });
  }
  void combine(std::span<double> values, Combine) const override;
  void send(int peer, std::span<const std::byte> bytes) const override {
    finish(start_send(peer, small_message, bytes), "MPI_Isend");
  }
  void receive(int peer, std::span<std::byte> bytes) const override { receive(peer, small_message, bytes); }
  SharedParts share(std::size_t bytes) const override;
  std::unique_ptr<Transport> connect(int channels, std::vector<int> node_of) const override {
    return std::make_unique<MpiTransport>(get(), channels, std::move(node_of));
  }

 private:
  template <class Start>
  void complete(const char* call, Start start) const {
    finish(begin(call, start), call);
  }
  MPI_Request start_send(int peer, Tag tag, std::span<const std::byte> bytes) const {
    const int n = mpi_count(bytes.size());
    return begin("MPI_Isend",
                 [&](MPI_Request* r) { return MPI_Isend(bytes.data(), n, MPI_BYTE, peer, tag, get(), r); });
  }
  void receive(int peer, Tag tag, std::span<std::byte> bytes) const {
    const int n = mpi_count(bytes.size());
    complete("MPI_Irecv", [&](MPI_Request* r) { return MPI_Irecv(bytes.data(), n, MPI_BYTE, peer, tag, get(), r); });
  }
  /// For calls that MPI has only in blocking form. A barrier comes first, so that no rank waits long for others while
  /// it holds its turn.
  template <class Make>
  std::unique_ptr<GroupMember> make_together(const char* call, Make make) const {
    barrier();
    MPI_Comm duplicate = MPI_COMM_NULL;
    {
      const MpiTurn turn;
      check_mpi(make(&duplicate), call);
    }
    return make_mpi_member(duplicate);
  }

  SharedParts allocate(std::size_t bytes) const;

  Handle<CommunicatorTraits> comm_;
  int rank_ = 0, size_ = 0;
};

/// Recursive doubling. If the number of ranks is a power of two plus `beyond`, the first 2 · beyond ranks form pairs;
/// the odd rank of a pair sends its values to the even one, and then waits for the result. All ranks combine the same
/// operands in the same order.
void MpiMember::combine(std::span<double> values, Combine c) const {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size_))), beyond = size_ - power;
  const bool is_paired = rank_ < 2 * beyond;
  const int position = is_paired ? rank_ / 2 : rank_ - beyond;
  const auto rank_of_position = [&](int other_position) {
    return other_position < beyond ? 2 * other_position : other_position + beyond;
  };
  if (is_paired && rank_ % 2 == 1) {
    finish(start_send(rank_ - 1, combine_message, std::as_bytes(values)), "MPI_Isend");
    return receive(rank_ - 1, combine_message, std::as_writable_bytes(values));
  }
  std::vector<double> theirs(values.size());
  const auto combine_theirs = [&](bool mine_first) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = mine_first ? combined(values[i], theirs[i], c) : combined(theirs[i], values[i], c);
    }
  };
  if (is_paired) {
    receive(rank_ + 1, combine_message, std::as_writable_bytes(std::span(theirs)));
    combine_theirs(true);
  }
  for (int distance = 1; distance < power; distance *= 2) {
    const int peer = rank_of_position(position ^ distance);
    const MPI_Request sent = start_send(peer, combine_message, std::as_bytes(values));
    receive(peer, combine_message, std::as_writable_bytes(std::span(theirs)));
    finish(sent, "MPI_Isend");
    combine_theirs(rank_ < peer);
  }
  if (is_paired) finish(start_send(rank_ + 1, combine_message, std::as_bytes(values)), "MPI_Isend");
}

/// Uses a shared window of MPI 3. MPI may align a part to 8 bytes only, so each part begins at the next page.
SharedParts MpiMember::share(std::size_t bytes) const {
  SharedParts out = allocate(bytes);
  const auto own = out.parts[static_cast<std::size_t>(rank_)];
  std::memset(own.data(), 0, own.size());
  barrier();
  return out;
}

SharedParts MpiMember::allocate(std::size_t bytes) const {
  barrier();  // as in make_together
  const MpiTurn turn;
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  void* mine = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const auto size = static_cast<MPI_Aint>(round_up_to_page(bytes) + page_bytes);
  const int error = MPI_Win_allocate_shared(size, 1, info, get(), &mine, &window);
  const int freed = MPI_Info_free(&info);
  check_mpi(error, "MPI_Win_allocate_shared");
  check_mpi(freed, "MPI_Info_free");
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
  return static_cast<const MpiMember&>(c.member()).get();  // ranks that are processes always have an MpiMember
}

MPI_Op mpi_op(Combine c) {
  const std::array<MPI_Op, 4> ops{MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
  return ops[static_cast<std::size_t>(c)];
}

}  // namespace gradmeter::runtime
