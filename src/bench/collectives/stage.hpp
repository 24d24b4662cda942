// What the points of a collective sweep share: buffers, networks and bound algorithms.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bench/collectives/injected_collective.hpp"
#include "bench/collectives/plan.hpp"
#include "bench/engine/session.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {

/// in == out for a call in place. Data are given and checked in the host's memory.
struct CollectiveBuffers {
  std::span<std::byte> in, out;
  /// What calls are made on; empty: the same.
  runtime::Buffer device_in = runtime::no_floats, device_out = runtime::no_floats;

  /// So many bytes of them from a page on.
  CollectiveBuffers part(std::size_t first_page, std::size_t bytes, bool in_place) const;
};

/// An algorithm ready to be called. `link` is its transport; null for a vendor's.
struct BoundCollective {
  std::unique_ptr<allreduce::Collective> collective;
  /// What a timed iteration is, where calls are captured; null: calls of `collective`.
  std::unique_ptr<allreduce::Collective> iteration = {};
  runtime::Transport* link = nullptr;
  std::string label;          ///< "allreduce ring", for the watchdog
  bool reads_device = false;  ///< does it work on a device's memory, or on copies in the host's?
};

/// What a set of points of one collective needs in memory on a rank.
struct StageNeeds {
  std::vector<runtime::TransportKind> transports;  ///< at least one: a vendor's arena is the first one's
  std::vector<BufferKind> buffers = {};
  bool out_of_place = false;
  std::size_t max_bytes = 0;
  std::size_t scratch_bytes = 0;  ///< of each network's arena

  static StageNeeds of(std::span<const CollectivePoint>, const NodeMap&, int rank);
  bool has(BufferKind) const;
  std::size_t buffer_bytes() const;  ///< of one set of buffers
  std::size_t resident_bytes() const;
  /// The bytes of all windows on one node, which so many of the `ranks` ranks share.
  std::size_t window_bytes(int ranks_per_node, int ranks) const;
};

/// Collective over the session's world, as are `bind` and the destructor.
/// Errors: BackendError when memory is short; Unavailable, on all ranks, when a device's is.
class CollectiveStage {
 public:
  /// `faults` outlives it.
  CollectiveStage(Session&, const NodeMap&, const StageNeeds&, InjectedFaults& faults);
  ~CollectiveStage();
  CollectiveStage(const CollectiveStage&) = delete;
  CollectiveStage& operator=(const CollectiveStage&) = delete;

  /// Blocks of one point may begin at other pages, all ranks at the same one, so that its interval has what otherwise
  /// differs between launches: which pages data are in.
  static constexpr std::size_t first_pages = 16;
  CollectiveBuffers buffers(const CollectivePoint&, std::size_t first_page = 0);
  /// After the host has written its memory, and before it reads it. Nothing where calls are made on that.
  void upload(const CollectiveBuffers&);
  void download(const CollectiveBuffers&);
  bool is_on_device() const { return queue_ != nullptr; }
  /// All buffers of this kind, for the plain copy that is the limit of one node.
  CollectiveBuffers all_buffers(BufferKind);
  /// Binds every point's algorithm; returns for each point why that is impossible, empty when it is not. The same on
  /// all ranks. Bindings last over groups. When scratch runs out, those of earlier groups are given up; if that is not
  /// enough, the scratch grows.
  std::vector<std::string> bind(std::span<const CollectivePoint* const>);
  BoundCollective& bound(const CollectivePoint&);
  /// The work of a limit, slowed where that is injected on this rank.
  std::unique_ptr<allreduce::Collective> slowed(std::unique_ptr<allreduce::Collective>);
  const allreduce::Shape& shape() const { return shape_; }
  const runtime::Communicator& world() const { return session_.world(); }

 private:
  struct Net;
  using Key =
      std::tuple<std::string, std::string, std::string, bool, allreduce::CollectiveKind, int, std::size_t, bool>;
  Net& net(const CollectivePoint&);
  std::string bind_one(const CollectivePoint&);

  Session& session_;
  StageNeeds needs_;
  InjectedFaults& faults_;
  InjectedFaults only_slow_;
  allreduce::Shape shape_;
  struct Private {
    Private(std::size_t bytes, runtime::Pages pages) : arena(bytes, pages) {}
    runtime::PrivateArena arena;
    CollectiveBuffers buffers;
  };
  std::map<BufferKind, std::unique_ptr<Private>> private_;
  /// A device's: its memory beside all of the above, and the queue of calls. Null: the host.
  std::unique_ptr<runtime::Queue> queue_;
  std::vector<runtime::OwnedBuffer> mapped_;
  std::vector<std::shared_ptr<void>> pinned_;
  CollectiveBuffers take(runtime::Arena&, BufferKind);
  std::unique_ptr<allreduce::Collective> on_device(std::unique_ptr<allreduce::Collective>);
  std::map<runtime::TransportKind, std::unique_ptr<Net>> nets_;
  std::map<Key, BoundCollective> bound_;
};

}  // namespace gradmeter::bench
