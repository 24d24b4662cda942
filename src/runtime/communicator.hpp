// Ranks that work together, as processes of MPI or as threads of one process: who they are, and the small messages
// by which they agree. What is measured travels over a Transport.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// How the ranks of a run exist.
enum class RanksAs : std::uint8_t { processes, threads };
std::string_view name(RanksAs);

enum class Combine { sum, min, max, product };
double combined(double a, double b, Combine);

/// May what is freed together be freed now? While an exception is on its way out it is left undone, since the peers may
/// be elsewhere; the rank is about to end then.
bool may_free() noexcept;

/// Every rank's memory begins at a multiple of it.
inline constexpr std::size_t page_bytes = 4096;

/// Each rank's part of memory that all ranks of a group see, by rank, and what keeps it mapped. Freeing is collective
/// where ranks are processes.
struct SharedParts {
  std::vector<std::span<std::byte>> parts;
  std::shared_ptr<void> owner;
};

/// One rank's membership of a group: what processes and threads do in different ways. Calls are collective over the
/// group, but for `send` and `receive`.
class GroupMember {
 public:
  GroupMember() = default;
  virtual ~GroupMember() = default;
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;

  virtual RanksAs ranks_as() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Null for a negative colour.
  virtual std::unique_ptr<GroupMember> split(int color, int key) const = 0;
  virtual std::unique_ptr<GroupMember> split_by_node() const = 0;
  virtual std::unique_ptr<GroupMember> duplicate() const = 0;
  virtual void barrier() const = 0;
  virtual void sleeping_barrier() const = 0;
  virtual void broadcast(std::span<std::byte> bytes, int root) const = 0;
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const = 0;
  /// `all` is empty on every rank but 0.
  virtual void gather(std::span<const std::byte> mine, std::span<std::byte> all) const = 0;
  /// In place, element by element. In the order of recursive doubling, the same for processes and
  /// threads: equal bits on all ranks.
  virtual void combine(std::span<double> values, Combine) const = 0;
  /// Blocking; one message at a time between two ranks. `receive` must name the exact size.
  virtual void send(int peer, std::span<const std::byte>) const = 0;
  virtual void receive(int peer, std::span<std::byte>) const = 0;
  /// Zero-filled, 4096-byte aligned.
  virtual SharedParts share(std::size_t bytes) const = 0;
  /// Messages between any buffers of the group. `node_of`: by rank, for the count of bytes that leave a node.
  /// Errors: UsageError for threads, which have shm alone.
  virtual std::unique_ptr<Transport> connect(int channels, std::vector<int> node_of) const = 0;
  /// True once a rank of the group has ended by an error; null: the launcher ends the others then.
  virtual const std::atomic<bool>* abandoned() const { return nullptr; }
};

/// A group of ranks that talk to each other. Calls marked collective must be made by all of them.
class Communicator {
 public:
  Communicator() = default;  ///< null: of no rank
  explicit Communicator(std::unique_ptr<GroupMember>);
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_null() const { return !member_; }
  const GroupMember& member() const { return *member_; }
  RanksAs ranks_as() const { return member_->ranks_as(); }

  /// Collective. Ranks of one colour form a group; a negative colour gives a null communicator.
  Communicator split(int color, int key) const { return Communicator(member_->split(color, key)); }
  /// Collective. The ranks that share memory with this one.
  Communicator split_by_node() const { return Communicator(member_->split_by_node()); }
  /// Collective.
  Communicator duplicate() const { return Communicator(member_->duplicate()); }

  void barrier() const { member_->barrier(); }
  /// Collective. For ranks with nothing to do while others measure: sleeps between tests, so that it costs no core.
  void sleeping_barrier() const { member_->sleeping_barrier(); }

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void broadcast(std::span<T> values, int root = 0) const { member_->broadcast(std::as_writable_bytes(values), root); }
  template <class T>
  T broadcast_value(T value, int root = 0) const {
    broadcast(std::span<T>(&value, 1), root);
    return value;
  }
  std::string broadcast_text(std::string text, int root = 0) const;
  /// Everybody's values, in rank order, on every rank.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(std::span<const T> mine)
  const {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(size_));
    member_->all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span<T>(all)));
    return all;
  }
  template <class T>
  std::vector<T> all_gather_value(const T& mine) const {
    return all_gather(std::span<const T>(&mine, 1));
  }
  std::vector<std::string> all_gather_text(const std::string& mine) const;
  /// Everybody's values, in rank order, on rank 0; elsewhere none.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> gather_value(const T& mine)
  const {
    std::vector<T> all(rank_ == 0 ? static_cast<std::size_t>(size_) : 0);
    member_->gather(std::as_bytes(std::span<const T>(&mine, 1)), std::as_writable_bytes(std::span<T>(all)));
    return all;
  }
  double max(double value) const { return combined(value, Combine::max); }
  /// In place, element by element. Collective.
  void max(std::span<double> values) const { member_->combine(values, Combine::max); }
  double sum(double value) const { return combined(value, Combine::sum); }
  /// In place, element by element. Collective.
  void sum(std::span<double> values) const { member_->combine(values, Combine::sum); }
  bool any(bool mine) const { return max(mine ? 1.0 : 0.0) > 0; }
  bool all(bool mine) const { return !any(!mine); }

  /// Not collective: blocking, one message at a time between two ranks, of a size that both know.
  template <class T>
  void send_value(int peer, const T& value) const {
    member_->send(peer, std::as_bytes(std::span<const T>(&value, 1)));
  }
  template <class T>
  T receive_value(int peer) const {
    T value{};
    member_->receive(peer, std::as_writable_bytes(std::span<T>(&value, 1)));
    return value;
  }
  void send_text(int peer, const std::string& text) const;
  std::string receive_text(int peer) const;

 private:
  double combined(double value, Combine c) const {
    member_->combine(std::span(&value, 1), c);
    return value;
  }

  std::unique_ptr<GroupMember> member_;
  int rank_ = 0, size_ = 0;
};

}  // namespace gradmeter::runtime
