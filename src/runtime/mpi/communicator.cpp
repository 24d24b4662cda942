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
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {
namespace {

using namespace core::literals;

/// A channel is a tag. `node_of[r]` is rank r's node (to count bytes that leave a node). Cost: one MPI_Isend or
/// MPI_Irecv a message; one MPI_Testsome a pass over all that are under way.
class MpiTransport final : public Transport {
 public:
  /// Collective over the parent, which is duplicated.
  MpiTransport(MPI_Comm parent, int channels, std::vector<int> node_of);
  /// Cancels receives without a message; a send under way is an error of the caller.
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
  bool send_done(MessageHandle& t) override { return completed(t); }
  const std::byte* try_receive(MessageHandle& t) override;
  void progress() override;

 private:
  MessageHandle track(MPI_Request, void* place);
  bool completed(MessageHandle&);

  Handle<CommunicatorTraits> comm_;
  int rank_ = 0, size_ = 0, channels_;
  std::vector<int> node_of_;
  bool one_node_;
  // Slot i of the three belongs to one message; ids are slot + 1, so that a default handle names none of them.
  std::vector<MPI_Request> requests_;
  std::vector<char> done_;
  std::vector<std::size_t> free_;
  std::vector<int> indices_;
};

MpiTransport::MpiTransport(MPI_Comm parent, int channels, std::vector<int> node_of)
    : channels_(channels),
      node_of_(std::move(node_of)),
      one_node_(std::all_of(node_of_.begin(), node_of_.end(), [&](int n) { return n == node_of_.front(); })) {
  const MPI_Request all_here = begin("MPI_Ibarrier", [&](MPI_Request* r) { return MPI_Ibarrier(parent, r); });
  finish(all_here, "MPI_Ibarrier");  // so that no rank waits long in its turn
  const MpiTurn turn;
  check_mpi(MPI_Comm_dup(parent, comm_.receive()), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_.get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_.get(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
}

MpiTransport::~MpiTransport() {
  if (!may_free()) return;
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    const MpiTurn turn;
    // A request that cannot be cancelled ends with its communicator.
    if (MPI_Cancel(&request) == MPI_SUCCESS) release_mpi(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  }
}

// Measured: 256 KiB within a node; over TCP 512 KiB and more won (1.02-1.36x) and 128 KiB lost (0.78x).
std::size_t MpiTransport::message_bytes() const { return one_node_ ? (256_KiB).value : (1_MiB).value; }

MessageHandle MpiTransport::track(MPI_Request request, void* place) {
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
  return {slot + 1, place};
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

bool MpiTransport::completed(MessageHandle& t) {
  if (t.id == 0) return true;
  const std::size_t slot = t.id - 1;
  if (!done_[slot]) return false;
  free_.push_back(slot);
  t.id = 0;
  return true;
}

const std::byte* MpiTransport::try_receive(MessageHandle& t) {
  return completed(t) ? static_cast<const std::byte*>(t.place) : nullptr;
}

void MpiTransport::progress() {
  if (requests_.size() == free_.size()) return;
  int count = 0;
  const MpiTurn turn;
  check_mpi(MPI_Testsome(mpi_count(requests_.size()), requests_.data(), &count, indices_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  // MPI_UNDEFINED (negative): all tracked requests have completed and wait to be asked for.
  for (int i = 0; i < count; ++i) done_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])] = 1;
}

/// Sums have a tag of their own: a message may be under way while all ranks sum.
enum Tag : int { small_message, summand };
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
  /// For calls that MPI has only as blocking ones: all ranks meet first, so that none waits long in its turn.
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

/// Recursive doubling. Beyond a power of two the first ranks go in pairs, of which the odd rank waits for the result.
/// All ranks combine the same operands in the same order.
void MpiMember::combine(std::span<double> values, Combine c) const {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size_))), beyond = size_ - power;
  const bool paired = rank_ < 2 * beyond;
  const int place = paired ? rank_ / 2 : rank_ - beyond;
  const auto rank_at = [&](int other) { return other < beyond ? 2 * other : other + beyond; };
  if (paired && rank_ % 2 == 1) {
    finish(start_send(rank_ - 1, summand, std::as_bytes(values)), "MPI_Isend");
    return receive(rank_ - 1, summand, std::as_writable_bytes(values));
  }
  std::vector<double> theirs(values.size());
  const auto take = [&](bool mine_first) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = mine_first ? combined(values[i], theirs[i], c) : combined(theirs[i], values[i], c);
    }
  };
  if (paired) {
    receive(rank_ + 1, summand, std::as_writable_bytes(std::span(theirs)));
    take(true);
  }
  for (int distance = 1; distance < power; distance *= 2) {
    const int peer = rank_at(place ^ distance);
    const MPI_Request sent = start_send(peer, summand, std::as_bytes(values));
    receive(peer, summand, std::as_writable_bytes(std::span(theirs)));
    finish(sent, "MPI_Isend");
    take(rank_ < peer);
  }
  if (paired) finish(start_send(rank_ + 1, summand, std::as_bytes(values)), "MPI_Isend");
}

/// A shared window of MPI 3. Its own base may be only 8-byte aligned: the parts begin at a page.
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
  return static_cast<const MpiMember&>(c.member()).get();  // processes have no other kind of member
}

MPI_Op mpi_op(Combine c) {
  const std::array<MPI_Op, 4> ops{MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
  return ops[static_cast<std::size_t>(c)];
}

}  // namespace gradmeter::runtime
