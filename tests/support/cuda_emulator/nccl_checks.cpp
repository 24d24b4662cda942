// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/nccl_checks.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/nccl_sum.hpp"

namespace cuda_emulator {
namespace {

/// Elements that a call reads and writes on this rank.
struct Elements {
  std::size_t in, out;
};
Elements counts_of(const Comm& c, const Description& d) {
  const auto ranks = static_cast<std::size_t>(c.ranks);
  switch (d.call) {
    case NcclCall::send:
      return {d.count, 0};
    case NcclCall::receive:
      return {0, d.count};
    case NcclCall::reduce_scatter:
      return {ranks * d.count, d.count};
    case NcclCall::all_gather:
      return {d.count, ranks * d.count};
    case NcclCall::reduce:
      return {d.count, c.rank == d.root ? d.count : 0};
    case NcclCall::broadcast:
      return {c.rank == d.root ? d.count : 0, d.count};
    default:
      return {d.count, d.count};
  }
}

bool is_registered(const Comm& c, const char* at, std::size_t bytes) {
  const auto after = c.registered.upper_bound(at);
  if (bytes == 0 || after == c.registered.begin()) return bytes == 0;
  const auto& [begin, length] = *std::prev(after);
  return static_cast<std::size_t>(at - begin) + bytes <= length;
}

/// In place: all-gather and reduce-scatter have this rank's block where it lies in the whole.
bool overlaps_wrongly(const Comm& c, const Description& d, const char* from, std::size_t in, const char* to,
                      std::size_t out) {
  if (in == 0 || out == 0 || from + in <= to || to + out <= from) return false;
  const std::size_t block = std::min(in, out) * static_cast<std::size_t>(c.rank);
  if (d.call == NcclCall::reduce_scatter) return to != from + block;
  if (d.call == NcclCall::all_gather) return from != to + block;
  return from != to;
}

}  // namespace

bool is_on_device(const void* at, std::size_t bytes) { return bytes == 0 || where_is(at, bytes) == Where::device; }

bool uses_registered(const Comm& c, const Description& d, const void* from, const void* to) {
  const auto [in, out] = counts_of(c, d);
  const std::size_t width = size_of(d.type);
  return in + out > 0 && is_registered(c, static_cast<const char*>(from), in * width) &&
         is_registered(c, static_cast<const char*>(to), out * width);
}

ncclResult_t refuse(Comm& c, std::string why) {
  report("NCCL rank %d: %s", c.rank, why.c_str());
  c.last_error = std::move(why);
  return ncclInvalidArgument;
}

ncclResult_t check_call(Comm& c, const Description& d, const void* from, const void* to, int peer,
                        const Stream* stream) {
  if (c.has_ended()) return c.error != ncclSuccess ? c.error : ncclRemoteError;
  if (c.is_finalized) return refuse(c, "a call after ncclCommFinalize");
  const std::string call = name(d.call);
  if (!stream) return refuse(c, call + ": in no stream");
  if (peer < 0 || peer >= c.ranks || d.root < 0 || d.root >= c.ranks) return refuse(c, call + ": no such rank");
  const std::size_t width = size_of(d.type);
  if (width == 0 || d.op < 0 || d.op >= ncclNumOps) return refuse(c, call + ": no such type or operation");
  const auto [in, out] = counts_of(c, d);
  if (!is_on_device(from, in * width) || !is_on_device(to, out * width)) {
    return refuse(c, call + ": memory that is not the device's, or too little");
  }
  if (overlaps_wrongly(c, d, static_cast<const char*>(from), in * width, static_cast<const char*>(to), out * width)) {
    return refuse(c, call + ": buffers overlap, but not as in place");
  }
  return ncclSuccess;
}

}  // namespace cuda_emulator
