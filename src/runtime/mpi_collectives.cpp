#include "runtime/mpi_collectives.hpp"

#include "core/error.hpp"

namespace gradmeter::runtime {
namespace {

const void* source_of(const MpiBuffers& b) { return b.in == b.out ? MPI_IN_PLACE : b.in; }

std::size_t begin_bytes(const MpiCuts& cuts, const Communicator& c, const Reduction& r) {
  return static_cast<std::size_t>(cuts.begins[static_cast<std::size_t>(c.rank())]) * r.bytes();
}

int block_of(const MpiBuffers& b, const Communicator& c) {
  return mpi_count(b.count / static_cast<std::size_t>(c.size()));
}

std::size_t begin_bytes(int block, const Communicator& c, const Reduction& r) {
  return static_cast<std::size_t>(block) * static_cast<std::size_t>(c.rank()) * r.bytes();
}

}  // namespace

bool MpiRequests::done() {
  while (!requests_.empty()) {
    int flag = 0;
    check_mpi(MPI_Test(&requests_.back(), &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (!flag) return false;
    requests_.pop_back();
  }
  return true;
}

void mpi_all_reduce(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const int n = mpi_count(b.count);
  if (later) {
    return check_mpi(MPI_Iallreduce(source_of(b), b.out, n, r.type(), r.operation(), c.get(), later->next()),
                     "MPI_Iallreduce");
  }
  check_mpi(MPI_Allreduce(source_of(b), b.out, n, r.type(), r.operation(), c.get()), "MPI_Allreduce");
}

void mpi_reduce_scatter(const Communicator& c, MpiBuffers b, const MpiCuts& cuts, const Reduction& r,
                        MpiRequests* later) {
  std::byte* out = b.in == b.out ? b.out : b.out + begin_bytes(cuts, c, r);
  const int* counts = cuts.counts.data();
  if (later) {
    return check_mpi(MPI_Ireduce_scatter(source_of(b), out, counts, r.type(), r.operation(), c.get(), later->next()),
                     "MPI_Ireduce_scatter");
  }
  check_mpi(MPI_Reduce_scatter(source_of(b), out, counts, r.type(), r.operation(), c.get()), "MPI_Reduce_scatter");
}

void mpi_all_gather(const Communicator& c, MpiBuffers b, const MpiCuts& cuts, const Reduction& r, MpiRequests* later) {
  const void* in = b.in == b.out ? MPI_IN_PLACE : b.in + begin_bytes(cuts, c, r);
  const int mine = cuts.counts[static_cast<std::size_t>(c.rank())];
  const int *counts = cuts.counts.data(), *begins = cuts.begins.data();
  if (later) {
    return check_mpi(MPI_Iallgatherv(in, mine, r.type(), b.out, counts, begins, r.type(), c.get(), later->next()),
                     "MPI_Iallgatherv");
  }
  check_mpi(MPI_Allgatherv(in, mine, r.type(), b.out, counts, begins, r.type(), c.get()), "MPI_Allgatherv");
}

void mpi_reduce_scatter(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const int block = block_of(b, c);
  std::byte* out = b.in == b.out ? b.out : b.out + begin_bytes(block, c, r);
  if (later) {
    return check_mpi(
        MPI_Ireduce_scatter_block(source_of(b), out, block, r.type(), r.operation(), c.get(), later->next()),
        "MPI_Ireduce_scatter_block");
  }
  check_mpi(MPI_Reduce_scatter_block(source_of(b), out, block, r.type(), r.operation(), c.get()),
            "MPI_Reduce_scatter_block");
}

void mpi_all_gather(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const int block = block_of(b, c);
  const void* in = b.in == b.out ? MPI_IN_PLACE : b.in + begin_bytes(block, c, r);
  if (later) {
    return check_mpi(MPI_Iallgather(in, block, r.type(), b.out, block, r.type(), c.get(), later->next()),
                     "MPI_Iallgather");
  }
  check_mpi(MPI_Allgather(in, block, r.type(), b.out, block, r.type(), c.get()), "MPI_Allgather");
}

void mpi_broadcast(const Communicator& c, MpiBuffers b, int root, const Reduction& r, MpiRequests* later) {
  const int n = mpi_count(b.count);
  if (later) return check_mpi(MPI_Ibcast(b.out, n, r.type(), root, c.get(), later->next()), "MPI_Ibcast");
  check_mpi(MPI_Bcast(b.out, n, r.type(), root, c.get()), "MPI_Bcast");
}

void mpi_all_to_all(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const int n = block_of(b, c);
  if (later) {
    return check_mpi(MPI_Ialltoall(source_of(b), n, r.type(), b.out, n, r.type(), c.get(), later->next()),
                     "MPI_Ialltoall");
  }
  check_mpi(MPI_Alltoall(source_of(b), n, r.type(), b.out, n, r.type(), c.get()), "MPI_Alltoall");
}

void mpi_send_receive(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  constexpr int tag = 0;
  const int n = mpi_count(b.count), to = (c.rank() + 1) % c.size(), from = (c.rank() + c.size() - 1) % c.size();
  if (later) {
    if (b.in == b.out && n > 0)
      throw core::BackendError("MPI", "MPI_Irecv", "a send-receive in place has no room to land");
    check_mpi(MPI_Irecv(b.out, n, r.type(), from, tag, c.get(), later->next()), "MPI_Irecv");
    return check_mpi(MPI_Isend(b.in, n, r.type(), to, tag, c.get(), later->next()), "MPI_Isend");
  }
  if (b.in == b.out) {
    return check_mpi(MPI_Sendrecv_replace(b.out, n, r.type(), to, tag, from, tag, c.get(), MPI_STATUS_IGNORE),
                     "MPI_Sendrecv_replace");
  }
  check_mpi(MPI_Sendrecv(b.in, n, r.type(), to, tag, b.out, n, r.type(), from, tag, c.get(), MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
}

}  // namespace gradmeter::runtime
