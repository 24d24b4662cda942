// SPDX-License-Identifier: Apache-2.0
// Compares an all-reduce of private buffers with the copies that it cannot do without: two ranks each read half of the
// other's buffer from its memory, add it to theirs, and write the sum back, without waiting for each other.
//   mpirun -np 2 build/release/tests/bench/bench_peer_copies [ROUNDS]
// MPI_Allreduce on the same buffers takes turns with these copies; medians over rounds, of the slower rank.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "core/format.hpp"
#include "runtime/transport/peer_memory.hpp"

namespace {

using gradmeter::runtime::PeerMemory;

void check(int code) {
  if (code != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
}

/// The other rank reaches this one's memory by these.
struct Home {
  pid_t process = 0;
  std::byte* data = nullptr;
};

Home exchanged(Home mine, int rank) {
  std::array<Home, 2> all;
  check(MPI_Allgather(&mine, sizeof(Home), MPI_BYTE, all.data(), sizeof(Home), MPI_BYTE, MPI_COMM_WORLD));
  return all[static_cast<std::size_t>(1 - rank)];
}

/// Seconds of a call, those of the slower rank.
template <class Work>
double seconds(const Work& work) {
  check(MPI_Barrier(MPI_COMM_WORLD));
  const double begin = MPI_Wtime();
  work();
  double took = MPI_Wtime() - begin;
  check(MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  return took;
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  check(MPI_Init(&argc, &argv));
  int rank = 0, ranks = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  if (ranks != 2) {
    if (rank == 0) fmt::print(stderr, "bench_peer_copies: two ranks read each other's memory: mpirun -np 2\n");
    check(MPI_Finalize());
    return 2;
  }
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 51;
  if (rank == 0) fmt::print("{:>12} {:>14} {:>14} {:>12}\n", "bytes", "copies us", "MPI us", "MPI/copies");
  for (std::size_t bytes = std::size_t{1} << 16; bytes <= std::size_t{1} << 26; bytes *= 4) {
    std::vector<float> x(bytes / sizeof(float), 1.0F), half(x.size() / 2);
    const Home peer = exchanged({getpid(), reinterpret_cast<std::byte*>(x.data())}, rank);
    const PeerMemory memory(peer.process);
    const std::size_t first = rank == 0 ? 0 : half.size();
    const auto copies = [&] {
      const auto part = std::as_writable_bytes(std::span(half));
      memory.read(peer.data + first * sizeof(float), part);
      for (std::size_t i = 0; i < half.size(); ++i) x[first + i] = 0.5F * (x[first + i] + half[i]);
      memory.write(std::as_bytes(std::span(x).subspan(first, half.size())), peer.data + first * sizeof(float));
    };
    const auto call = [&] {
      check(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD));
    };
    std::vector<double> copying, calling;
    for (int i = -2; i < rounds; ++i) {
      const double a = seconds(copies), b = seconds(call);
      if (i >= 0) copying.push_back(a), calling.push_back(b);
    }
    const double a = median(copying), b = median(calling);
    if (rank == 0) fmt::print("{:>12} {:>14.2f} {:>14.2f} {:>12.2f}\n", bytes, 1e6 * a, 1e6 * b, b / a);
    check(MPI_Barrier(MPI_COMM_WORLD));
  }
  check(MPI_Finalize());
  return 0;
}
