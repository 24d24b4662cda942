// SPDX-License-Identifier: Apache-2.0
// Groups of ranks that work together, as processes of MPI or as threads of one process: their numbers, and the small
// messages by which they agree. Measured data is sent over a Transport.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/units.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// The ranks of a run are processes or threads.
enum class RanksAs : std::uint8_t { processes, threads };
std::string_view name(RanksAs);

enum class Combine { sum, min, max, product };
double combined(double a, double b, Combine);

/// True if this rank may now call a collective operation that others wait in, such as freeing a communicator. False
/// while an exception propagates: the rank is about to end, and the other ranks may never join the call.
bool may_call_collectives() noexcept;

/// Each rank's part of shared memory begins at a multiple of this many bytes.
inline constexpr std::size_t page_bytes = 4096;

/// Memory that all ranks of a group can read: one part for each rank, by rank, and the owner that keeps the parts
/// mapped. If ranks are processes, freeing the owner is collective.
struct SharedParts {
  std::vector<std::span<std::byte>> parts;
  std::shared_ptr<void> owner;
  std::span<std::byte> of(int rank) const { return parts[static_cast<std::size_t>(rank)]; }
};

/// One rank's membership of a group: the operations that processes and threads implement differently. Calls are
/// collective over the group, except `send` and `receive`.
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
  virtual bool arrive_within(core::Seconds limit) const = 0;
  virtual void broadcast(std::span<std::byte> bytes, int root) const = 0;
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const = 0;
  /// Gathers on rank 0; `all` is empty on the other ranks.
  virtual void gather(std::span<const std::byte> mine, std::span<std::byte> all) const = 0;
  /// Combines in place, element by element, in the order of recursive doubling, for processes and threads alike. All
  /// ranks get equal bits.
  virtual void combine(std::span<double> values, Combine) const = 0;
  /// `send` and `receive` block. Between two ranks there is one message at a time, and `receive` must give the
  /// message's exact size.
  virtual void send(int peer, std::span<const std::byte>) const = 0;
  virtual void receive(int peer, std::span<std::byte>) const = 0;
  /// `bytes`: the size of this rank's part, which may differ between ranks. The parts are zero-filled and aligned to
  /// `page_bytes`.
  virtual SharedParts share(std::size_t bytes) const = 0;
  /// Connects the group's ranks by a transport that can send from any memory. `node_of`: the node of each rank, by
  /// which the transport counts bytes between nodes.
  /// Errors: UsageError for threads, which only have shm.
  virtual std::unique_ptr<Transport> connect(int channels, std::vector<int> node_of) const = 0;
  /// A flag that becomes true once a rank of this world has ended by an error. Null for processes, whose launcher then
  /// ends the other ranks.
  virtual const std::atomic<bool>* abandoned() const { return nullptr; }
};

/// A group of ranks that talk to each other. All ranks must make the collective calls: barriers, broadcasts, gathers,
/// max, sum, any, all, and the calls marked collective.
class Communicator {
 public:
  Communicator() = default;  ///< a null communicator has no rank
  explicit Communicator(std::unique_ptr<GroupMember>);
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_null() const { return !member_; }
  const GroupMember& member() const { return *member_; }
  RanksAs ranks_as() const { return member_->ranks_as(); }

  /// Collective. Ranks of one colour form a group; a negative colour gives a null communicator.
  Communicator split(int color, int key) const { return Communicator(member_->split(color, key)); }
  /// Collective. Gives the ranks that share memory with this one.
  Communicator split_by_node() const { return Communicator(member_->split_by_node()); }
  /// Collective.
  Communicator duplicate() const { return Communicator(member_->duplicate()); }

  void barrier() const { member_->barrier(); }
  /// Collective, for ranks with nothing to do while others measure: a rank checks once a millisecond whether all have
  /// arrived, and sleeps in between, so the wait takes hardly any core time.
  void sleeping_barrier() const { member_->sleeping_barrier(); }

  /// Collective. As `sleeping_barrier`, but returns false if not all ranks have arrived when the limit is over. After a
  /// result of false, this communicator must not be used again.
  bool arrive_within(core::Seconds limit) const { return member_->arrive_within(limit); }

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void broadcast(std::span<T> values, int root = 0) const { member_->broadcast(std::as_writable_bytes(values), root); }
  template <class T>
  T broadcast_value(T value, int root = 0) const {
    broadcast(std::span<T>(&value, 1), root);
    return value;
  }
  std::string broadcast_text(std::string text, int root = 0) const;
  /// Gathers all ranks' values, in rank order, on every rank.
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
  /// Gathers all ranks' values, in rank order, on rank 0; other ranks get none.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> gather_value(const T& mine)
  const {
    std::vector<T> all(rank_ == 0 ? static_cast<std::size_t>(size_) : 0);
    member_->gather(std::as_bytes(std::span<const T>(&mine, 1)), std::as_writable_bytes(std::span<T>(all)));
    return all;
  }
  double max(double value) const { return combined(value, Combine::max); }
  /// Works in place, element by element. Collective.
  void max(std::span<double> values) const { member_->combine(values, Combine::max); }
  double sum(double value) const { return combined(value, Combine::sum); }
  /// Works in place, element by element. Collective.
  void sum(std::span<double> values) const { member_->combine(values, Combine::sum); }
  bool any(bool mine) const { return max(mine ? 1.0 : 0.0) > 0; }
  bool all(bool mine) const { return !any(!mine); }

  /// Sends and receives are between two ranks, not collective. They block. Between two ranks there is one message at a
  /// time, and both ranks know its type.
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

// Functions that compare or collect the values of all ranks without holding all of them on any rank.

/// Collective: true if the values of all ranks that give one are equal. Cost: one all-reduce of 32 bytes.
bool same_on_all(const Communicator&, std::optional<std::uint64_t> mine);

/// The text of the lowest rank that gave one, and whether every rank gave one.
struct FirstReport {
  std::string text = {};  ///< empty: no rank gave one
  int rank = -1;
  bool by_all = false;
};
/// Collective. A rank gives a text if `mine` is not empty.
/// Cost: one small all-reduce if no rank gives a text; else three, and two broadcasts (length and text).
FirstReport first_report(const Communicator&, const std::string& mine);

/// Collective: calls `take` on rank 0 with every rank's text, in rank order. Rank 0 holds one text at a time beside its
/// own. Cost: three messages a rank, one after another.
void collect(const Communicator&, const std::string& mine, const std::function<void(const std::string&)>& take);

}  // namespace gradmeter::runtime
