#include "runtime/mpi/session.hpp"

#include <array>
#include <climits>
#include <cstdlib>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/mpi/tuning.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::runtime {

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

std::string mpi_refusal() {
  if (!thread_ranks_running()) return {};
  return "MPI's ranks are processes, and these are threads; use mpirun without --thread-ranks";
}

MpiSession::MpiSession(int& argc, char**& argv, MpiThreads threads) {
  listen_to_forced_algorithms();
  int provided = MPI_THREAD_SINGLE;
  const int wanted = threads == MpiThreads::serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
  check_mpi(MPI_Init_thread(&argc, &argv, wanted, &provided), "MPI_Init_thread");
  serialized_ = provided >= MPI_THREAD_SERIALIZED;
  MpiTurn::share(serialized_ && wanted == MPI_THREAD_SERIALIZED);
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiSession::~MpiSession() { MPI_Finalize(); }

Communicator MpiSession::world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  return Communicator(make_mpi_member(copy));
}

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

}  // namespace gradmeter::runtime
