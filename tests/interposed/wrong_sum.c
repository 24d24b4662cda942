// SPDX-License-Identifier: Apache-2.0
// Preloaded before an MPI program: faults of collectives on floats from the WRONG_FROM-th call on, and before the
// WRONG_TO-th, on rank WRONG_RANK or, with -1, on all ranks alike. WRONG_KIND selects:
//   sum (default)  0.5 is added to one element of an all-reduce's result
//   directly       the same, of calls that directly follow another collective on floats
//   early          the second half of a result arrives within the next call of MPI
//   repeated       the second half of a result is left out where the input is that of the last call
//   idle           nothing is done
//   placed         nothing is wrong, but it takes longer by up to 30 us, which the page of the result decides
// All but the first concern all-reduce, broadcast and all-gather. With WRONG_FINALIZE=1 MPI_Finalize says that it has
// failed.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum Kind { SUM, DIRECTLY, EARLY, REPEATED, IDLE, PLACED };

static long from_environment(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}

static enum Kind kind(void) {
  const char* names[] = {"sum", "directly", "early", "repeated", "idle", "placed"};
  const char* text = getenv("WRONG_KIND");
  for (int i = DIRECTLY; text && i <= PLACED; ++i) {
    if (strcmp(text, names[i]) == 0) return (enum Kind)i;
  }
  return SUM;
}

static int is_concerned(void) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long wrong = from_environment("WRONG_RANK", -1);
  return wrong < 0 || wrong == rank;
}

// --- what has not arrived yet

static char *late_to, *late;
static size_t late_bytes;

static void arrive(void) {
  if (late) memcpy(late_to, late, late_bytes);
  free(late);
  late = NULL;
}

// --- one call, of which `before` has been kept

static int was_collective;
static long calls, spoilt;

static uint64_t hash_of(const void* data, size_t bytes) {
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < bytes; ++i) h = (h ^ ((const unsigned char*)data)[i]) * 1099511628211u;
  return h;
}

struct Before {
  char* out;    // the result's memory as it was, NULL: not needed
  int repeats;  // is the input that of the last call?
};

static struct Before begin(const void* in, size_t in_bytes, const void* out, size_t out_bytes) {
  static uint64_t last;
  arrive();
  ++calls;
  struct Before b = {NULL, 0};
  if (kind() == SUM || kind() == DIRECTLY || kind() == PLACED) return b;
  const uint64_t now = hash_of(in == MPI_IN_PLACE ? out : in, in_bytes);
  b.repeats = now == last;
  last = now;
  b.out = malloc(out_bytes + 1);
  if (b.out) memcpy(b.out, out, out_bytes);
  return b;
}

// The luck of a page: the same for as long as results lie there.
static void spin_for(const void* at) {
  const double until = PMPI_Wtime() + (double)(((uintptr_t)at >> 12) * 0x9E3779B97F4A7C15u >> 60) * 2e-6;
  while (PMPI_Wtime() < until) continue;
}

static void end(struct Before b, void* out, size_t bytes) {
  const size_t half = bytes / 2;
  const int again = was_collective,
            is_late = calls >= from_environment("WRONG_FROM", 1) && calls < from_environment("WRONG_TO", 1L << 60);
  was_collective = 1;
  if (kind() == PLACED) return spin_for(out);
  const int acts = kind() == DIRECTLY ? again : kind() == REPEATED ? b.repeats : 1;
  if (bytes > 0 && is_late && acts && is_concerned()) {
    const size_t from = kind() == IDLE ? 0 : half;
    if (kind() == SUM || kind() == DIRECTLY) {
      ((float*)out)[bytes / sizeof(float) / 2] += 0.5f;
      ++spoilt;
    } else if (b.out && memcmp((char*)out + from, b.out + from, bytes - from) != 0) {
      ++spoilt;
      if (kind() == EARLY && (late = malloc(bytes - from))) {
        late_to = (char*)out + from;
        late_bytes = bytes - from;
        memcpy(late, late_to, late_bytes);
      }
      memcpy((char*)out + from, b.out + from, bytes - from);
    }
  }
  free(b.out);
}

static void other(void) {
  arrive();
  was_collective = 0;
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const size_t bytes = (size_t)count * sizeof(float);
  if (type != MPI_FLOAT || count == 0) return other(), PMPI_Allreduce(in, out, count, type, op, comm);
  const struct Before b = begin(in, bytes, out, bytes);
  const int code = PMPI_Allreduce(in, out, count, type, op, comm);
  end(b, out, bytes);
  return code;
}

// Completed at once, so that what was spoilt is not overwritten later.
int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  const size_t bytes = (size_t)count * sizeof(float);
  if (type != MPI_FLOAT || count == 0) return other(), PMPI_Iallreduce(in, out, count, type, op, comm, request);
  const struct Before b = begin(in, bytes, out, bytes);
  int code = PMPI_Iallreduce(in, out, count, type, op, comm, request);
  if (code == MPI_SUCCESS) code = PMPI_Wait(request, MPI_STATUS_IGNORE);
  end(b, out, bytes);
  return code;
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const size_t bytes = (size_t)count * sizeof(float);
  if (type != MPI_FLOAT || count == 0 || kind() == SUM) return other(), PMPI_Bcast(data, count, type, root, comm);
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  const struct Before b = begin(data, bytes, data, bytes);
  const int code = PMPI_Bcast(data, count, type, root, comm);
  // What the others hold cannot be compared before it arrives: to them it repeats where it is what they have.
  struct Before mine = b;
  mine.repeats = rank != root && kind() == REPEATED && b.out != NULL && memcmp(data, b.out, bytes) == 0;
  if (rank == root) mine.repeats = 0;
  if (rank == root && kind() != DIRECTLY) {
    free(b.out);
    was_collective = 1;
    return code;
  }
  end(mine, data, bytes);
  return code;
}

int MPI_Allgather(const void* in, int sent, MPI_Datatype type, void* out, int received, MPI_Datatype to,
                  MPI_Comm comm) {
  int ranks = 0;
  PMPI_Comm_size(comm, &ranks);
  const size_t bytes = (size_t)received * (size_t)ranks * sizeof(float);
  if (to != MPI_FLOAT || received == 0 || kind() == SUM) {
    return other(), PMPI_Allgather(in, sent, type, out, received, to, comm);
  }
  const struct Before b = begin(in, in == MPI_IN_PLACE ? bytes : (size_t)sent * sizeof(float), out, bytes);
  const int code = PMPI_Allgather(in, sent, type, out, received, to, comm);
  end(b, out, bytes);
  return code;
}

int MPI_Barrier(MPI_Comm comm) { return other(), PMPI_Barrier(comm); }

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  return other(), PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  return other(), PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) { return other(), PMPI_Ibarrier(comm, request); }

int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return other(), PMPI_Ibcast(data, count, type, root, comm, request);
}

int MPI_Finalize(void) {
  arrive();
  if (getenv("WRONG_KIND")) fprintf(stderr, "spoilt %ld results\n", spoilt);
  const int code = PMPI_Finalize();
  return from_environment("WRONG_FINALIZE", 0) ? MPI_ERR_INTERN : code;
}
