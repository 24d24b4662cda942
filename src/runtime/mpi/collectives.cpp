// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/collectives.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/mpi/mpi.hpp"

namespace gradmeter::runtime {

struct Reduction::Handles {
  Handle<DatatypeTraits> own_type = {};
  Handle<OperationTraits> own_operation = {};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op operation = MPI_OP_NULL;
};

struct MpiRequests::State {
  std::vector<MPI_Request> requests;
  MPI_Request* next() { return &requests.emplace_back(MPI_REQUEST_NULL); }
};

namespace {

MPI_Datatype mpi_type(core::Element e) {
  switch (e) {
    case core::Element::f64:
      return MPI_DOUBLE;
    case core::Element::f32:
      return MPI_FLOAT;
    case core::Element::i64:
      return MPI_INT64_T;
    case core::Element::i32:
      return MPI_INT32_T;
    case core::Element::i8:
      return MPI_INT8_T;
    case core::Element::f16:
    case core::Element::bf16:
    case core::Element::e4m3:
    case core::Element::e5m2:
      break;
  }
  throw core::BackendError("MPI", "MPI_Op", fmt::format("it has no operators for {}", core::info(e).name));
}

/// MPI passes no context to an operator's function, so each combiner needs a function of its own, which calls the
/// combiner in its slot. The number of slots is fixed.
constexpr std::size_t most_combiners = 64;
std::array<std::atomic<Combiner>, most_combiners> combiners{};

template <std::size_t slot>
void call_combiner(void* in, void* inout, int* n, MPI_Datatype*) {
  combiners[slot].load(std::memory_order_acquire)(static_cast<const std::byte*>(in), static_cast<std::byte*>(inout),
                                                  static_cast<std::size_t>(*n));
}

template <std::size_t... slots>
constexpr std::array<MPI_User_function*, sizeof...(slots)> functions(std::index_sequence<slots...>) {
  return {&call_combiner<slots>...};
}

MPI_User_function* function_for(Combiner c) {
  static constexpr auto table = functions(std::make_index_sequence<most_combiners>());
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < most_combiners; ++i) {
    Combiner slot = combiners[i].load(std::memory_order_relaxed);
    if (!slot) combiners[i].store(slot = c, std::memory_order_release);
    if (slot == c) return table[i];
  }
  throw core::BackendError("MPI", "MPI_Op_create", fmt::format("more than {} combiners", most_combiners));
}

const void* send_buffer(const MpiBuffers& b) { return b.in == b.out ? MPI_IN_PLACE : b.in; }

std::size_t block_offset_bytes(const MpiCuts& cuts, const Communicator& c, const Reduction& r) {
  return static_cast<std::size_t>(cuts.begins[static_cast<std::size_t>(c.rank())]) * r.element_bytes();
}

int block_count(const MpiBuffers& b, const Communicator& c) {
  return mpi_count(b.count / static_cast<std::size_t>(c.size()));
}

std::size_t block_offset_bytes(int block, const Communicator& c, const Reduction& r) {
  return static_cast<std::size_t>(block) * static_cast<std::size_t>(c.rank()) * r.element_bytes();
}

}  // namespace

Reduction::Reduction(core::Element e, Combine c)
    : handles_(std::make_shared<Handles>(Handles{.type = mpi_type(e), .operation = mpi_op(c)})),
      element_bytes_(core::size_of(e)) {}

Reduction::Reduction(core::Element e, Combiner combiner) : element_bytes_(core::size_of(e)) {
  auto handles = std::make_shared<Handles>();
  const MpiTurn turn;  // destroyed before `handles`, which takes a turn of its own to be freed
  check_mpi(MPI_Type_contiguous(mpi_count(element_bytes_), MPI_BYTE, handles->own_type.out_address()),
            "MPI_Type_contiguous");
  handles->type = handles->own_type.get();
  check_mpi(MPI_Type_commit(&handles->type), "MPI_Type_commit");
  constexpr int commutative = 1;
  check_mpi(MPI_Op_create(function_for(combiner), commutative, handles->own_operation.out_address()), "MPI_Op_create");
  handles->operation = handles->own_operation.get();
  handles_ = std::move(handles);
}

MpiRequests::MpiRequests() : state_(std::make_unique<State>()) {}
MpiRequests::~MpiRequests() = default;
MpiRequests::MpiRequests(MpiRequests&&) noexcept = default;
MpiRequests& MpiRequests::operator=(MpiRequests&&) noexcept = default;

bool MpiRequests::done() {
  auto& requests = state_->requests;
  while (!requests.empty()) {
    int flag = 0;
    const MpiTurn turn;
    check_mpi(MPI_Test(&requests.back(), &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (!flag) return false;
    requests.pop_back();
  }
  return true;
}

void mpi_all_reduce(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Op operation = r.handles().operation;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  const int n = mpi_count(b.count);
  if (later) {
    return check_mpi(MPI_Iallreduce(send_buffer(b), b.out, n, type, operation, comm, later->state().next()),
                     "MPI_Iallreduce");
  }
  check_mpi(MPI_Allreduce(send_buffer(b), b.out, n, type, operation, comm), "MPI_Allreduce");
}

struct MpiAllReduce::Arguments {
  MPI_Datatype type;
  MPI_Op operation;
  MPI_Comm communicator;
  int count;
};

MpiAllReduce::MpiAllReduce(const Communicator& c, const Reduction& r, std::size_t count)
    : arguments_(std::make_unique<const Arguments>(
          Arguments{r.handles().type, r.handles().operation, mpi_handle(c), mpi_count(count)})) {}
MpiAllReduce::~MpiAllReduce() = default;
MpiAllReduce::MpiAllReduce(MpiAllReduce&&) noexcept = default;
MpiAllReduce& MpiAllReduce::operator=(MpiAllReduce&&) noexcept = default;

void MpiAllReduce::operator()(const std::byte* in, std::byte* out) const {
  const auto& [type, operation, communicator, count] = *arguments_;
  const MpiTurn turn;
  const int error = MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, count, type, operation, communicator);
  if (error != MPI_SUCCESS) check_mpi(error, "MPI_Allreduce");
}

void mpi_reduce_scatter(const Communicator& c, MpiBuffers b, const MpiCuts& cuts, const Reduction& r,
                        MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Op operation = r.handles().operation;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  std::byte* out = b.in == b.out ? b.out : b.out + block_offset_bytes(cuts, c, r);
  const int* counts = cuts.counts.data();
  if (later) {
    return check_mpi(MPI_Ireduce_scatter(send_buffer(b), out, counts, type, operation, comm, later->state().next()),
                     "MPI_Ireduce_scatter");
  }
  check_mpi(MPI_Reduce_scatter(send_buffer(b), out, counts, type, operation, comm), "MPI_Reduce_scatter");
}

void mpi_all_gather(const Communicator& c, MpiBuffers b, const MpiCuts& cuts, const Reduction& r, MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  const void* in = b.in == b.out ? MPI_IN_PLACE : b.in + block_offset_bytes(cuts, c, r);
  const int mine = cuts.counts[static_cast<std::size_t>(c.rank())];
  const int *counts = cuts.counts.data(), *begins = cuts.begins.data();
  if (later) {
    return check_mpi(MPI_Iallgatherv(in, mine, type, b.out, counts, begins, type, comm, later->state().next()),
                     "MPI_Iallgatherv");
  }
  check_mpi(MPI_Allgatherv(in, mine, type, b.out, counts, begins, type, comm), "MPI_Allgatherv");
}

void mpi_reduce_scatter(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Op operation = r.handles().operation;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  const int block = block_count(b, c);
  std::byte* out = b.in == b.out ? b.out : b.out + block_offset_bytes(block, c, r);
  if (later) {
    return check_mpi(
        MPI_Ireduce_scatter_block(send_buffer(b), out, block, type, operation, comm, later->state().next()),
        "MPI_Ireduce_scatter_block");
  }
  check_mpi(MPI_Reduce_scatter_block(send_buffer(b), out, block, type, operation, comm), "MPI_Reduce_scatter_block");
}

void mpi_all_gather(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  const int block = block_count(b, c);
  const void* in = b.in == b.out ? MPI_IN_PLACE : b.in + block_offset_bytes(block, c, r);
  if (later) {
    return check_mpi(MPI_Iallgather(in, block, type, b.out, block, type, comm, later->state().next()),
                     "MPI_Iallgather");
  }
  check_mpi(MPI_Allgather(in, block, type, b.out, block, type, comm), "MPI_Allgather");
}

void mpi_broadcast(const Communicator& c, MpiBuffers b, int root, const Reduction& r, MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  const int n = mpi_count(b.count);
  if (later) return check_mpi(MPI_Ibcast(b.out, n, type, root, comm, later->state().next()), "MPI_Ibcast");
  check_mpi(MPI_Bcast(b.out, n, type, root, comm), "MPI_Bcast");
}

void mpi_all_to_all(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  const int n = block_count(b, c);
  if (later) {
    return check_mpi(MPI_Ialltoall(send_buffer(b), n, type, b.out, n, type, comm, later->state().next()),
                     "MPI_Ialltoall");
  }
  check_mpi(MPI_Alltoall(send_buffer(b), n, type, b.out, n, type, comm), "MPI_Alltoall");
}

void mpi_send_receive(const Communicator& c, MpiBuffers b, const Reduction& r, MpiRequests* later) {
  const MPI_Datatype type = r.handles().type;
  const MPI_Comm comm = mpi_handle(c);
  const MpiTurn turn;
  constexpr int tag = 0;
  const int n = mpi_count(b.count), to = (c.rank() + 1) % c.size(), from = (c.rank() + c.size() - 1) % c.size();
  if (later) {
    if (b.in == b.out && n > 0)
      throw core::BackendError("MPI", "MPI_Irecv", "a send-receive in place has no room to land");
    check_mpi(MPI_Irecv(b.out, n, type, from, tag, comm, later->state().next()), "MPI_Irecv");
    return check_mpi(MPI_Isend(b.in, n, type, to, tag, comm, later->state().next()), "MPI_Isend");
  }
  if (b.in == b.out) {
    return check_mpi(MPI_Sendrecv_replace(b.out, n, type, to, tag, from, tag, comm, MPI_STATUS_IGNORE),
                     "MPI_Sendrecv_replace");
  }
  check_mpi(MPI_Sendrecv(b.in, n, type, to, tag, b.out, n, type, from, tag, comm, MPI_STATUS_IGNORE), "MPI_Sendrecv");
}

}  // namespace gradmeter::runtime
