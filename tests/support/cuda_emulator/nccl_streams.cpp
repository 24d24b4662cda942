// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/nccl_streams.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "support/cuda_emulator/device.hpp"
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

StreamWork work_of(std::shared_ptr<StreamCalls> calls, const char* what) {
  return {.run = [calls] { calls->run(); }, .what = what, .seconds = 2e-5, .peers = [calls] { return calls->peers(); }};
}

/// As a graph has them: a launch is a group of its own, after all that were issued and launched before. NCCL counts who
/// holds its calls, and its communicators do not end before.
StreamWork captured_work(const CommPtr& comm, const std::vector<NcclPart>& parts) {
  ++comm->graphs;
  const std::shared_ptr<void> held(nullptr, [comm](void*) { --comm->graphs; });
  const char* const what = name(parts.front().description().call);
  return {.run = {}, .what = what, .of_launch = [comm, parts, held, what](Stream& s) {
            if (comm->has_ended()) report("NCCL rank %d: a graph calls a communicator that has ended", comm->rank);
            const auto work = std::make_shared<StreamCalls>(comm, comm->issued++, &s);
            for (const NcclPart& p : parts) work->add(p);
            return work_of(work, what);
          }};
}

/// All of one communicator, to be captured.
ncclResult_t capture(const Calls& calls, Stream& stream) {
  const auto& [comm, handle, first, graph] = calls.front();
  std::vector<NcclPart> parts;
  for (const Pending& p : calls) {
    if (p.comm != comm) continue;
    if (p.stream != handle || p.graph != graph || stream.capture.graph != graph) {
      report("NCCL rank %d: a captured group of calls in several streams, or asked for when its capture had ended",
             comm->rank);
      return ncclInvalidUsage;
    }
    parts.push_back(p.part);
  }
  push(stream, captured_work(comm, parts));
  return ncclSuccess;
}

}  // namespace

ncclResult_t put_in_streams(Calls calls) {
  std::map<Comm*, std::uint64_t> numbers;
  for (const Pending& c : calls) {
    if (!c.graph && !numbers.contains(c.comm.get())) numbers[c.comm.get()] = c.comm->issued++;
  }
  while (!calls.empty()) {
    const auto [comm, handle, first, graph] = calls.front();
    Stream* const stream = find_stream(handle);
    if (!stream) return ncclInvalidArgument;
    if (graph || stream->capture.graph) {
      if (const ncclResult_t r = capture(calls, *stream); r != ncclSuccess) return r;
      std::erase_if(calls, [&, c = comm](const Pending& p) { return p.comm == c; });
      continue;
    }
    const auto work = std::make_shared<StreamCalls>(comm, numbers.at(comm.get()), stream);
    const auto is_of_it = [&, c = comm, h = handle](const Pending& p) { return p.comm == c && p.stream == h; };
    for (const Pending& p : calls) {
      if (is_of_it(p)) work->add(p.part);
    }
    push(*stream, work_of(work, name(first.description().call)));
    std::erase_if(calls, is_of_it);
  }
  return ncclSuccess;
}

}  // namespace cuda_emulator
