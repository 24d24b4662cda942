#include "support/cuda_emulator/nccl_streams.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {

std::map<ncclComm_t, CommPtr>& comms = *new std::map<ncclComm_t, CommPtr>;

namespace {

/// One stream's calls of one communicator: a piece of its work.
class StreamCalls {
 public:
  StreamCalls(CommPtr comm, std::uint64_t number, Stream* stream)
      : comm_(std::move(comm)), number_(number), stream_(stream) {
    comm_->left[number_].push_back(stream_);
  }
  ~StreamCalls() {
    std::erase(comm_->left.at(number_), stream_);
    if (comm_->left.at(number_).empty()) comm_->left.erase(number_);
  }
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  void add(const NcclPart& p) { parts_.push_back(p); }
  /// Groups of one communicator run one after another.
  void run() {
    while (comm_->left.begin()->first != number_ && !comm_->has_ended()) pause_work();
    while (!std::ranges::all_of(parts_, &NcclPart::is_done) && !comm_->has_ended()) {
      if (advance()) {
        note_progress();
      } else {
        pause_work();
      }
    }
  }
  /// Where ranks of this process have what this waits for: the first group that each has not done.
  std::vector<Stream*> peers() const {
    std::vector<Stream*> out;
    for (const auto& [handle, c] : comms) {
      if (c->id != comm_->id || c->left.empty()) continue;
      const auto& first = c->left.begin()->second;
      out.insert(out.end(), first.begin(), first.end());
    }
    return out;
  }

 private:
  /// Collectives one after another; messages side by side, but one at a time to, and from, each peer.
  bool advance() {
    bool is_collective_open = false, is_open[2][most_ranks] = {}, has_moved = false;
    for (NcclPart& p : parts_) {
      const NcclCall c = p.description().call;
      bool& is_taken = is_collective(c) ? is_collective_open : is_open[c == NcclCall::send][p.peer()];
      if (p.is_done() || is_taken) continue;
      has_moved |= p.advance();
      is_taken = !p.is_done();
    }
    return has_moved;
  }

  CommPtr comm_;
  std::uint64_t number_;
  Stream* stream_;
  std::vector<NcclPart> parts_ = {};
};

}  // namespace

ncclResult_t put_in_streams(Calls calls) {
  std::map<Comm*, std::uint64_t> numbers;
  for (const Pending& c : calls) {
    if (!numbers.contains(c.comm.get())) numbers[c.comm.get()] = c.comm->issued++;
  }
  while (!calls.empty()) {
    const auto [comm, handle, first] = calls.front();
    Stream* const stream = find_stream(handle);
    if (!stream) return ncclInvalidArgument;
    const auto work = std::make_shared<StreamCalls>(comm, numbers.at(comm.get()), stream);
    const auto is_of_it = [&, c = comm, h = handle](const Pending& p) { return p.comm == c && p.stream == h; };
    for (const Pending& p : calls) {
      if (is_of_it(p)) work->add(p.part);
    }
    push(*stream, {.run = [work] { work->run(); },
                   .what = name(first.description().call),
                   .seconds = 2e-5,
                   .peers = [work] { return work->peers(); }});
    std::erase_if(calls, is_of_it);
  }
  return ncclSuccess;
}

}  // namespace cuda_emulator
