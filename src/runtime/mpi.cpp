#include "runtime/mpi.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <exception>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/mpi_tuning.hpp"

namespace gradmeter::runtime {
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

MPI_Op mpi_op(Combine c) {
  constexpr auto count = 4;
  const std::array<MPI_Op, count> ops{MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
  return ops[static_cast<std::size_t>(c)];
}

}  // namespace

void check_mpi(int error, const char* call, std::source_location where) {
  if (error == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  throw core::BackendError("MPI", call, std::string(text.data(), static_cast<std::size_t>(length)), where);
}

int mpi_count(std::size_t n) {
  if (n > INT_MAX) throw core::BackendError("MPI", "count", fmt::format("{} does not fit MPI's int", n));
  return static_cast<int>(n);
}

Reduction::Reduction(core::Element e, Combine c)
    : type_(mpi_type(e)), operation_(mpi_op(c)), bytes_(core::size_of(e)) {}

Reduction::Reduction(core::Element e, MPI_User_function* function) : bytes_(core::size_of(e)) {
  check_mpi(MPI_Type_contiguous(mpi_count(bytes_), MPI_BYTE, own_type_.receive()), "MPI_Type_contiguous");
  type_ = own_type_.get();
  check_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
  constexpr int commutative = 1;
  check_mpi(MPI_Op_create(function, commutative, own_operation_.receive()), "MPI_Op_create");
  operation_ = own_operation_.get();
}

MpiSession::MpiSession(int& argc, char**& argv, MpiThreads threads) {
  listen_to_forced_algorithms();
  int provided = MPI_THREAD_SINGLE;
  const int wanted = threads == MpiThreads::serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
  check_mpi(MPI_Init_thread(&argc, &argv, wanted, &provided), "MPI_Init_thread");
  serialized_ = provided >= MPI_THREAD_SERIALIZED;
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiSession::~MpiSession() { MPI_Finalize(); }

bool may_free() noexcept { return std::uncaught_exceptions() == 0; }

int MpiSession::world_size() {
  int n = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &n), "MPI_Comm_size");
  return n;
}

void MpiSession::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

bool MpiSession::running() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  return started && !ended;
}

std::string MpiSession::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  std::string all(text.data(), static_cast<std::size_t>(length));
  std::string first = all.substr(0, all.find_first_of(",\n"));
  if (first.rfind("Open MPI v", 0) == 0) first = "Open MPI " + first.substr(10);
  return first;
}

Communicator::Communicator(MPI_Comm owned) : comm_(owned) {
  if (owned == MPI_COMM_NULL) return;
  check_mpi(MPI_Comm_set_errhandler(owned, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(owned, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(owned, &size_), "MPI_Comm_size");
}

Communicator Communicator::world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  return Communicator(copy);
}

Communicator Communicator::split(int color, int key) const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(get(), color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  return Communicator(part);
}

Communicator Communicator::split_by_node() const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part), "MPI_Comm_split_type");
  return Communicator(part);
}

Communicator Communicator::duplicate() const {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(get(), &copy), "MPI_Comm_dup");
  return Communicator(copy);
}

void Communicator::barrier() const { check_mpi(MPI_Barrier(get()), "MPI_Barrier"); }

void Communicator::sleeping_barrier() const {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(get(), &request), "MPI_Ibarrier");
  constexpr timespec nap{0, 1'000'000};
  for (int done = 0;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    nanosleep(&nap, nullptr);
  }
}

void Communicator::broadcast_bytes(std::span<std::byte> bytes, int root) const {
  check_mpi(MPI_Bcast(bytes.data(), mpi_count(bytes.size()), MPI_BYTE, root, get()), "MPI_Bcast");
}

void Communicator::all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) const {
  const int n = mpi_count(mine.size());
  check_mpi(MPI_Allgather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, get()), "MPI_Allgather");
}

void Communicator::gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) const {
  const int n = mpi_count(mine.size());
  check_mpi(MPI_Gather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, 0, get()), "MPI_Gather");
}

std::string Communicator::broadcast_text(std::string text, int root) const {
  text.resize(broadcast_value(text.size(), root));
  broadcast(std::span<char>(text), root);
  return text;
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine) const {
  const auto lengths = all_gather_value(mine.size());
  std::string padded = mine;
  padded.resize(*std::max_element(lengths.begin(), lengths.end()), ' ');
  const auto all = all_gather(std::span<const char>(padded));
  std::vector<std::string> out;
  for (std::size_t r = 0; r < lengths.size(); ++r) out.emplace_back(all.data() + r * padded.size(), lengths[r]);
  return out;
}

double Communicator::max(double value) const {
  double out = 0;
  check_mpi(MPI_Allreduce(&value, &out, 1, MPI_DOUBLE, MPI_MAX, get()), "MPI_Allreduce");
  return out;
}

void Communicator::max(std::span<double> values) const {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), mpi_count(values.size()), MPI_DOUBLE, MPI_MAX, get()),
            "MPI_Allreduce");
}

void Communicator::sum(std::span<double> values) const {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), mpi_count(values.size()), MPI_DOUBLE, MPI_SUM, get()),
            "MPI_Allreduce");
}

double Communicator::sum(double value) const {
  double out = 0;
  check_mpi(MPI_Allreduce(&value, &out, 1, MPI_DOUBLE, MPI_SUM, get()), "MPI_Allreduce");
  return out;
}

}  // namespace gradmeter::runtime
