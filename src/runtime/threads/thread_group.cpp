// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/thread_group.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/host/host.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::runtime {
namespace {

/// The state that all groups of one world share.
struct World {
  std::atomic<bool> abandoned{false};
  SpinPolicy spin_policy;
};

/// The state that the members of one group share. In a collective every rank publishes a copy of its data, waits at a
/// barrier, reads the others' and waits again. The group owns the copies, so they can be read even after a member has
/// failed.
struct SharedGroup {
  SharedGroup(std::size_t n, std::shared_ptr<World> w) : size(n), world(std::move(w)), published(n) {}
  const std::size_t size;
  const std::shared_ptr<World> world;
  alignas(64) std::atomic<std::size_t> arrived{0};
  alignas(64) std::atomic<std::uint64_t> phase{0};
  std::vector<std::shared_ptr<const void>> published;  ///< by rank

  std::mutex mutex;  ///< protects the members below
  std::condition_variable posted;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> messages;  ///< by (sender, receiver)
};

using Bytes = std::vector<std::byte>;

class ThreadMember final : public GroupMember {
 public:
  ThreadMember(std::shared_ptr<SharedGroup> group, int rank)
      : group_(std::move(group)), rank_(rank), backoff_(group_->world->spin_policy) {}

  RanksAs ranks_as() const override { return RanksAs::threads; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->size); }
  const std::atomic<bool>* abandoned() const override { return &group_->world->abandoned; }

  std::unique_ptr<GroupMember> split(int color, int key) const override;
  std::unique_ptr<GroupMember> split_by_node() const override { return duplicate(); }
  std::unique_ptr<GroupMember> duplicate() const override { return split(0, rank_); }
  void barrier() const override {
    wait_for_all([this] { backoff_.wait(); });
    backoff_.reset();
  }
  void sleeping_barrier() const override {
    wait_for_all([] {
      constexpr timespec nap{0, 1'000'000};
      nanosleep(&nap, nullptr);
    });
  }
  bool arrive_within(core::Seconds limit) const override {
    struct Late {};
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit.value);
    try {
      wait_for_all([end] {
        if (std::chrono::steady_clock::now() >= end) throw Late();
        constexpr timespec nap{0, 1'000'000};
        nanosleep(&nap, nullptr);
      });
      return true;
    } catch (const Late&) {
      return false;
    }
  }
  void broadcast(std::span<std::byte> bytes, int root) const override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) const override;
  void combine(std::span<double> values, Combine) const override;
  void send(int peer, std::span<const std::byte>) const override;
  void receive(int peer, std::span<std::byte>) const override;
  SharedParts share(std::size_t bytes) const override;
  std::unique_ptr<Transport> connect(int, std::vector<int>) const override {
    throw core::UsageError(
        "transport mpi needs ranks as processes; use --transport shm, or mpirun without --thread-ranks");
  }

 private:
  void check_abandoned() const {
    if (group_->world->abandoned.load(std::memory_order_relaxed)) throw PeerFailed();
  }
  template <class Wait>
  void wait_for_all(Wait wait) const;
  template <class T>
  void publish(T data) const {
    group_->published[static_cast<std::size_t>(rank_)] = std::make_shared<T>(std::move(data));
    barrier();
  }
  template <class T>
  void publish(std::span<T> values) const {
    publish(std::vector<std::remove_const_t<T>>(values.begin(), values.end()));
  }
  /// Waits until all ranks have read what was published.
  void end_reading() const {
    barrier();
    group_->published[static_cast<std::size_t>(rank_)].reset();
  }
  template <class T>
  const T& published_by(std::size_t rank) const {
    return *static_cast<const T*>(group_->published[rank].get());
  }
  void copy_all(std::span<std::byte> all) const;

  std::shared_ptr<SharedGroup> group_;
  int rank_;
  mutable Backoff backoff_;
};

template <class Wait>
void ThreadMember::wait_for_all(Wait wait) const {
  SharedGroup& group = *group_;
  const std::uint64_t phase =
      group.phase.load(std::memory_order_relaxed);  // the phase stays until this rank has arrived
  if (group.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == group.size) {
    group.arrived.store(0, std::memory_order_relaxed);
    group.phase.store(phase + 1, std::memory_order_release);
    return;
  }
  while (group.phase.load(std::memory_order_acquire) == phase) {
    check_abandoned();
    wait();
  }
}

void ThreadMember::broadcast(std::span<std::byte> bytes, int root) const {
  publish(rank_ == root ? bytes : std::span<std::byte>());
  if (rank_ != root) std::ranges::copy(published_by<Bytes>(static_cast<std::size_t>(root)), bytes.begin());
  end_reading();
}

void ThreadMember::copy_all(std::span<std::byte> all) const {
  for (std::size_t r = 0; r < group_->size; ++r) {
    const Bytes& part = published_by<Bytes>(r);
    std::ranges::copy(part, all.begin() + static_cast<std::ptrdiff_t>(r * part.size()));
  }
}

void ThreadMember::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const {
  publish(mine);
  copy_all(all);
  end_reading();
}

void ThreadMember::gather(std::span<const std::byte> mine, std::span<std::byte> all) const {
  publish(mine);
  if (rank_ == 0) copy_all(all);
  end_reading();
}

/// Combines the ranks' values in the order of MpiMember::combine (mpi/communicator.cpp), so that bits are equal. If the
/// number of ranks is a power of two plus `beyond`, the first 2 · beyond ranks are combined in pairs. Then neighbours
/// are combined until one value is left.
double combined(std::vector<double> values, Combine c) {
  std::size_t power = 1;
  while (2 * power <= values.size()) power *= 2;
  const std::size_t beyond = values.size() - power;
  std::vector<double> partial;
  for (std::size_t i = 0; i < beyond; ++i) partial.push_back(combined(values[2 * i], values[2 * i + 1], c));
  partial.insert(partial.end(), values.begin() + static_cast<std::ptrdiff_t>(2 * beyond), values.end());
  for (; power > 1; power /= 2) {
    for (std::size_t i = 0; i < power / 2; ++i) partial[i] = combined(partial[2 * i], partial[2 * i + 1], c);
  }
  return partial.front();
}

void ThreadMember::combine(std::span<double> values, Combine c) const {
  publish(values);
  std::vector<double> results, operands(group_->size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t r = 0; r < operands.size(); ++r) operands[r] = published_by<std::vector<double>>(r)[i];
    results.push_back(combined(operands, c));
  }
  end_reading();
  std::copy(results.begin(), results.end(), values.begin());
}

void ThreadMember::send(int peer, std::span<const std::byte> bytes) const {
  {
    const std::lock_guard lock(group_->mutex);
    group_->messages[{rank_, peer}].emplace_back(bytes.begin(), bytes.end());
  }
  group_->posted.notify_all();
}

void ThreadMember::receive(int peer, std::span<std::byte> bytes) const {
  std::unique_lock lock(group_->mutex);
  auto& queue = group_->messages[{peer, rank_}];
  while (queue.empty()) {
    check_abandoned();
    group_->posted.wait_for(lock, std::chrono::milliseconds(20));
  }
  if (queue.front().size() != bytes.size()) {
    throw core::BackendError("runtime", "receive",
                             fmt::format("{} bytes came where {} were due", queue.front().size(), bytes.size()));
  }
  std::copy(queue.front().begin(), queue.front().end(), bytes.begin());
  queue.pop_front();
}

std::unique_ptr<GroupMember> ThreadMember::split(int color, int key) const {
  struct Membership {
    int color, key, rank;
  };
  const Membership mine{color, key, rank_};
  std::vector<Membership> members(group_->size);
  all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(members)));
  std::erase_if(members, [&](const Membership& w) { return w.color != color; });
  std::stable_sort(members.begin(), members.end(),
                   [](const Membership& a, const Membership& b) { return a.key < b.key; });
  const int leader = members.front().rank;
  std::shared_ptr<SharedGroup> group;
  if (leader == rank_) group = std::make_shared<SharedGroup>(members.size(), group_->world);
  publish(group);
  if (leader != rank_) group = published_by<std::shared_ptr<SharedGroup>>(static_cast<std::size_t>(leader));
  end_reading();
  if (color < 0) return nullptr;
  const auto at = std::find_if(members.begin(), members.end(), [&](const Membership& w) { return w.rank == rank_; });
  return std::make_unique<ThreadMember>(std::move(group), static_cast<int>(at - members.begin()));
}

SharedParts ThreadMember::share(std::size_t bytes) const {
  const auto mine = std::make_shared<PrivateArena>(bytes);
  publish(mine);
  auto arenas = std::make_shared<std::vector<std::shared_ptr<PrivateArena>>>();
  SharedParts out;
  for (std::size_t r = 0; r < group_->size; ++r) {
    arenas->push_back(published_by<std::shared_ptr<PrivateArena>>(r));
    out.parts.push_back(arenas->back()->memory());
  }
  end_reading();
  out.owner = std::move(arenas);
  return out;
}

std::atomic<int> running_worlds{0};

}  // namespace

void run_thread_ranks(int ranks, const std::function<void(Communicator)>& body) {
  if (ranks < 1) throw core::UsageError(fmt::format("{} ranks as threads: there must be at least one", ranks));
  auto world = std::make_shared<World>();
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  world->spin_policy = spin_policy_for(ranks, static_cast<int>(cores));
  const auto group = std::make_shared<SharedGroup>(static_cast<std::size_t>(ranks), world);
  std::mutex mutex;
  std::exception_ptr first;
  ++running_worlds;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      // Threads that this one makes inherit its name. NoiseGauge finds the threads of a rank by that name.
      pthread_setname_np(pthread_self(), fmt::format("rank {}", r).c_str());
      try {
        body(Communicator(std::make_unique<ThreadMember>(group, r)));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        world->abandoned = true;
      }
    });
  }
  for (auto& t : threads) t.join();
  --running_worlds;
  if (first) std::rethrow_exception(first);
}

void bind_to_share(const Communicator& world) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;  // fails with over 1024 CPUs
  std::vector<std::size_t> cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &usable)) cpus.push_back(cpu);
  }
  const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
  if (cpus.size() < ranks) return;
  cpu_set_t share;
  CPU_ZERO(&share);
  for (std::size_t i = cpus.size() * rank / ranks; i < cpus.size() * (rank + 1) / ranks; ++i) CPU_SET(cpus[i], &share);
  (void)sched_setaffinity(0, sizeof share, &share);
}

bool thread_ranks_running() { return running_worlds > 0; }

void throw_if_abandoned(const Communicator& c) {
  const auto* abandoned = c.member().abandoned();
  if (abandoned && abandoned->load(std::memory_order_relaxed)) throw PeerFailed();
}

}  // namespace gradmeter::runtime
