// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/nccl_parts.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/nccl_sum.hpp"
#include "support/cuda_emulator/sanitizers.hpp"

namespace cuda_emulator {
namespace {

void write(char* to, const char* from, std::size_t bytes) {
  note_write(to, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace

const char* name(NcclCall c) {
  constexpr const char* names[] = {"ncclSend",          "ncclRecv",      "ncclAllReduce", "ncclReduce",
                                   "ncclReduceScatter", "ncclAllGather", "ncclBroadcast"};
  return names[static_cast<int>(c)];
}

Comm::~Comm() {
  if (shared) munmap(shared, sizeof *shared);
}

bool Comm::has_ended() const { return is_aborted || error != ncclSuccess || shared->is_broken != 0; }

void Comm::fail(ncclResult_t e, std::string why) {
  error = e;
  last_error = std::move(why);
}

std::size_t NcclPart::bytes_each() const { return description_.count * size_of(description_.type); }

bool NcclPart::can_advance() const {
  const SharedRanks& s = *comm_->shared;
  const auto to = static_cast<std::size_t>(peer_);
  switch (description_.call) {
    case NcclCall::send:
      return !is_posted_ || s.message[comm_->rank][peer_].taken[0].load() == comm_->sent[to];
    case NcclCall::receive:
      return s.message[peer_][comm_->rank].posted.load() == comm_->received[to] + 1;
    default:
      break;
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(comm_->ranks); ++r) {
    const auto& counter = is_posted_ ? s.all[r].posted : s.all[comm_->rank].taken[r];
    if (counter.load() != comm_->round) return false;
  }
  return true;
}

bool NcclPart::advance() {
  if (!can_advance()) return false;
  if (description_.call == NcclCall::send) {
    send();
  } else if (description_.call == NcclCall::receive) {
    receive();
  } else {
    collective();
  }
  return true;
}

void NcclPart::go_on_by(std::size_t bytes, std::size_t of) {
  at_ += bytes;
  is_posted_ = false;
  is_done_ = at_ >= of;
}

bool NcclPart::agrees(const Description& other) {
  bool same = description_.count == other.count && description_.type == other.type;
  if (is_collective(description_.call)) same = description_ == other;
  if (same) return true;
  report(
      "rank %d: %s of %zu elements of type %d, operation %d, root %d meets %s of %zu of type %d, operation %d, root %d",
      comm_->rank, name(description_.call), description_.count, description_.type, description_.op, description_.root,
      name(other.call), other.count, other.type, other.op, other.root);
  comm_->fail(ncclInvalidUsage, "ranks' calls differ");
  comm_->shared->is_broken = 1;
  return false;
}

/// A piece is on its way until it was taken: a send ends only when its receive does.
void NcclPart::send() {
  Box& box = comm_->shared->message[comm_->rank][peer_];
  unsigned& n = comm_->sent[static_cast<std::size_t>(peer_)];
  if (is_posted_) {
    go_on_by(box.bytes, bytes_each());
    if (is_done_) return;
  }
  box.description = description_;
  box.bytes = std::min(piece_bytes, bytes_each() - at_);
  note_read(from_ + at_, box.bytes);
  std::memcpy(box.data, from_ + at_, box.bytes);
  box.posted.store(++n);
  is_posted_ = true;
}

void NcclPart::receive() {
  Box& box = comm_->shared->message[peer_][comm_->rank];
  unsigned& n = comm_->received[static_cast<std::size_t>(peer_)];
  if (!agrees(box.description)) return;
  write(to_ + at_, box.data, box.bytes);
  go_on_by(box.bytes, bytes_each());
  box.taken[0].store(++n);
}

/// Every rank shows piece after piece, and takes what it needs of the others'.
void NcclPart::collective() {
  SharedRanks& s = *comm_->shared;
  Box& own = s.all[comm_->rank];
  const auto ranks = static_cast<std::size_t>(comm_->ranks);
  if (!is_posted_) return post();
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!agrees(s.all[r].description)) return;
  }
  take(own);
  const std::size_t parts = description_.call == NcclCall::reduce_scatter ? ranks : 1;
  go_on_by(own.bytes, parts * bytes_each());
  for (std::size_t r = 0; r < ranks; ++r) s.all[r].taken[comm_->rank].store(comm_->round);
}

void NcclPart::post() {
  Box& own = comm_->shared->all[comm_->rank];
  const bool scatters = description_.call == NcclCall::reduce_scatter;
  const std::size_t total = bytes_each() * (scatters ? static_cast<std::size_t>(comm_->ranks) : 1);
  own.description = description_;
  own.bytes = std::min(piece_bytes, total - at_);
  if (description_.call != NcclCall::broadcast || comm_->rank == description_.root) {
    note_read(from_ + at_, own.bytes);
    std::memcpy(own.data, from_ + at_, own.bytes);
  }
  own.posted.store(++comm_->round);
  is_posted_ = true;
}

void NcclPart::take(const Box& own) {
  const SharedRanks& s = *comm_->shared;
  if (description_.call == NcclCall::broadcast) {
    write(to_ + at_, s.all[description_.root].data, own.bytes);
  } else if (description_.call == NcclCall::all_gather) {
    for (int r = 0; r < comm_->ranks; ++r) {
      write(to_ + static_cast<std::size_t>(r) * bytes_each() + at_, s.all[r].data, own.bytes);
    }
  } else if (description_.call != NcclCall::reduce || comm_->rank == description_.root) {
    reduce_into(own.bytes);
  }
}

/// The first summand is another rank's in every piece, as in a ring; the order is the same on all ranks.
void NcclPart::reduce_into(std::size_t bytes) {
  const SharedRanks& s = *comm_->shared;
  const auto [call, type, op, count, root] = description_;
  const int first = static_cast<int>(at_ / piece_bytes % static_cast<std::size_t>(comm_->ranks));
  alignas(16) char sum[piece_bytes], summand[piece_bytes];
  for (int i = 0; i < comm_->ranks; ++i) {
    char* const to = i == 0 ? sum : summand;
    std::memcpy(to, s.all[(first + i) % comm_->ranks].data, bytes);
    prepare(to, bytes, type, op, comm_->ranks);
    if (i > 0) fold(sum, summand, bytes, type, op);
  }
  complete(sum, bytes, type, op, comm_->ranks);
  const std::size_t low = call == NcclCall::reduce_scatter ? bytes_each() * static_cast<std::size_t>(comm_->rank) : 0;
  const std::size_t begin = std::max(at_, low), end = std::min(at_ + bytes, low + bytes_each());
  if (begin < end) write(to_ + (begin - low), sum + (begin - at_), end - begin);
}

}  // namespace cuda_emulator
