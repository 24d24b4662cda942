// SPDX-License-Identifier: Apache-2.0
// One NCCL call's way through its pieces, over memory that all ranks of a communicator map.
#pragma once
#include <nccl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cuda_emulator {

inline constexpr int most_ranks = 8;
inline constexpr std::size_t piece_bytes = 16 << 10;

enum class NcclCall : std::uint8_t { send, receive, all_reduce, reduce, reduce_scatter, all_gather, broadcast };
const char* name(NcclCall);
constexpr bool is_collective(NcclCall c) { return c > NcclCall::receive; }

/// What all ranks of a collective, or both ends of a message, must agree on. Counts are elements, as in NCCL's call.
struct Description {
  NcclCall call = NcclCall::send;
  ncclDataType_t type = ncclInt8;
  int op = ncclSum;
  std::size_t count = 0;
  int root = 0;
  bool operator==(const Description&) const = default;
};

/// From one rank to another, or to all; in memory that processes may share. A piece is free when it was taken.
struct Box {
  std::atomic<unsigned> posted, taken[most_ranks];
  Description description;
  std::size_t bytes;
  char data[piece_bytes];
};
/// All zero at first.
struct SharedRanks {
  std::atomic<int> joined, connecting, is_broken;
  Box message[most_ranks][most_ranks], all[most_ranks];
};

/// Of all communicators: the process that made its unique id, and how many that process had made.
struct CommId {
  int process = 0, number = 0;
  bool operator==(const CommId&) const = default;
};

struct Stream;

/// A rank's communicator.
struct Comm {
  CommId id = {};
  SharedRanks* shared = nullptr;
  int rank = 0, ranks = 1;
  bool is_connected = false, is_aborted = false, is_finalized = false, has_read_environment = false;
  ncclResult_t error = ncclSuccess;
  std::string last_error = {};
  std::array<unsigned, most_ranks> sent = {}, received = {};  ///< pieces
  unsigned round = 0;                                         ///< pieces of collectives
  std::uint64_t issued = 0;                                   ///< groups of calls
  std::map<std::uint64_t, std::vector<Stream*>> left = {};    ///< of each group: where it is not done
  std::map<const char*, std::size_t> registered = {};         ///< bytes, by first address
  std::size_t graphs = 0;                                     ///< groups of calls that graphs hold

  ~Comm();
  bool has_ended() const;
  void fail(ncclResult_t, std::string why);
};

/// A call as one rank made it.
class NcclPart {
 public:
  NcclPart(Comm& comm, Description d, const void* from, void* to, int peer)
      : comm_(&comm),
        description_(d),
        from_(static_cast<const char*>(from)),
        to_(static_cast<char*>(to)),
        peer_(peer) {}
  /// By a piece. False: it waits for a peer.
  bool advance();
  bool is_done() const { return is_done_; }
  const Description& description() const { return description_; }
  int peer() const { return peer_; }

 private:
  bool can_advance() const;
  void send();
  void receive();
  void collective();
  void post();
  bool agrees(const Description& other);
  void take(const Box& own);
  void go_on_by(std::size_t bytes, std::size_t of);
  void reduce_into(std::size_t bytes);
  std::size_t bytes_each() const;

  Comm* comm_;
  Description description_;
  const char* from_;
  char* to_;
  int peer_;
  std::size_t at_ = 0;
  bool is_posted_ = false, is_done_ = false;
};

}  // namespace cuda_emulator
