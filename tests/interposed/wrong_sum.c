// Preloaded before an MPI program: from its WRONG_FROM-th all-reduce of floats on (and before the WRONG_TO-th), 0.5 is added
// to one element of the result, on rank WRONG_RANK or, with -1, on all ranks alike. With WRONG_FINALIZE=1 MPI_Finalize says
// that it has failed.
#include <mpi.h>
#include <stdlib.h>

static long from_environment(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}

static void spoil(void* result, int count, MPI_Datatype type) {
  static long calls = 0;
  if (type != MPI_FLOAT || count == 0) return;
  const long call = ++calls;
  if (call < from_environment("WRONG_FROM", 1) || call >= from_environment("WRONG_TO", 1L << 60)) return;
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long wrong = from_environment("WRONG_RANK", -1);
  if (wrong < 0 || wrong == rank) ((float*)result)[count / 2] += 0.5f;
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const int code = PMPI_Allreduce(in, out, count, type, op, comm);
  if (code == MPI_SUCCESS) spoil(out, count, type);
  return code;
}

// Completed at once, so that what was spoilt is not overwritten later.
int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  int code = PMPI_Iallreduce(in, out, count, type, op, comm, request);
  if (code == MPI_SUCCESS) code = PMPI_Wait(request, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS) spoil(out, count, type);
  return code;
}

int MPI_Finalize(void) {
  const int code = PMPI_Finalize();
  return from_environment("WRONG_FINALIZE", 0) ? MPI_ERR_INTERN : code;
}
