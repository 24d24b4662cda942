#include "runtime/mpi/session.hpp"

#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/mpi/tuning.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::runtime {

namespace {

/// MPI's own, while it runs: asked afterwards it ends the program. A string of C.
std::array<char, MPI_MAX_ERROR_STRING + 1> text_of(int error) noexcept {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (!MpiSession::running() || MPI_Error_string(error, text.data(), &length) != MPI_SUCCESS)
    std::snprintf(text.data(), text.size(), "error %d", error);
  return text;
}

}  // namespace

void check_mpi(int error, const char* call, std::source_location where) {
  if (error != MPI_SUCCESS) throw core::BackendError("MPI", call, text_of(error).data(), where);
}

void release_mpi(int error, const char* call) noexcept {
  if (error != MPI_SUCCESS) core::note_failed_release("MPI", call, text_of(error).data());
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

MpiSession::~MpiSession() { release_mpi(MPI_Finalize(), "MPI_Finalize"); }

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
  (void)MPI_Abort(MPI_COMM_WORLD, code);  // whatever it says, this process ends
  std::_Exit(code);
}

bool MpiSession::running() {
  int started = 0, ended = 0;
  if (MPI_Initialized(&started) != MPI_SUCCESS || MPI_Finalized(&ended) != MPI_SUCCESS) return false;
  return started && !ended;
}

std::string MpiSession::thread_level() {
  if (!running()) return {};
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level == MPI_THREAD_SINGLE) return "single";
  if (level == MPI_THREAD_FUNNELED) return "funneled";
  return level == MPI_THREAD_SERIALIZED ? "serialized" : "multiple";
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
