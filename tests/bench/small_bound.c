// SPDX-License-Identifier: Apache-2.0
/* The least time of an all-reduce of 8 bytes between two ranks that share memory: a bound for `gradmeter allreduce
 * --algorithm shm-direct --sizes 8`, timed as the program times it.
 *   mpirun -np 2 small_bound [ITERATIONS]
 * Each rank writes its two numbers and a flag, waits for the other's flag and adds. one-line: the numbers lie in the
 * flag's cache line; two-lines: in one of their own. A barrier of MPI before each call, the slowest rank's time, the
 * median over calls; the ways and MPI_Allreduce take turns in blocks of a hundred. Prints "WAY MICROSECONDS" on rank 0,
 * ends with 1 where a sum was wrong. The barrier decides how far apart the ranks begin, so without it nothing could be
 * compared. */
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ways = 3, block = 100, discarded = 10 };
static const char* const names[ways] = {"one-line", "two-lines", "mpi"};

/* Calls use the two in turn, since a rank may begin its next call while the other still reads. */
typedef struct {
  struct {
    _Alignas(128) _Atomic uint64_t call;
    float near[2];
    _Alignas(128) float far[2];
  } turn[2];
} Lines;

static uint64_t calls[ways - 1];
static Lines* of[ways - 1][2];

static void exchange(int way, float* value) {
  const uint64_t call = ++calls[way];
  Lines *own = of[way][0], *other = of[way][1];
  float* const put = way == 0 ? own->turn[call % 2].near : own->turn[call % 2].far;
  const float* const get = way == 0 ? other->turn[call % 2].near : other->turn[call % 2].far;
  memcpy(put, value, 2 * sizeof *value);
  atomic_store_explicit(&own->turn[call % 2].call, call, memory_order_release);
  while (atomic_load_explicit(&other->turn[call % 2].call, memory_order_acquire) < call) {
  }
  value[0] += get[0];
  value[1] += get[1];
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  int provided, rank, ranks;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int iterations = (argc > 1 ? atoi(argv[1]) : 100000) / block * block;
  if (ranks != 2 || iterations < block) {
    if (rank == 0) fprintf(stderr, "usage: mpirun -np 2 small_bound [ITERATIONS]   at least %d\n", block);
    MPI_Finalize();
    return 2;
  }
  MPI_Win window;
  Lines* base;
  MPI_Win_allocate_shared(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  memset(base, 0, 4096);
  MPI_Aint bytes;
  int unit;
  Lines* peers;
  MPI_Win_shared_query(window, 1 - rank, &bytes, &unit, &peers);
  for (int w = 0; w < ways - 1; ++w) of[w][0] = base + w, of[w][1] = peers + w;
  MPI_Barrier(MPI_COMM_WORLD);
  double* times = malloc(sizeof *times * (size_t)iterations * ways);
  if (!times) MPI_Abort(MPI_COMM_WORLD, 3);
  int wrong = 0;
  for (int begin = 0; begin < iterations; begin += block) {
    for (int w = 0; w < ways; ++w) {
      for (int i = -discarded; i < block; ++i) {
        float value[2] = {(float)rank + 1, (float)i};
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        if (w < ways - 1) {
          exchange(w, value);
        } else {
          MPI_Allreduce(MPI_IN_PLACE, value, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        const double time = MPI_Wtime() - start;
        if (value[0] != 3 || value[1] != 2 * (float)i) wrong = 1;
        if (i >= 0) times[(size_t)w * (size_t)iterations + (size_t)(begin + i)] = time;
      }
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, times, iterations * ways, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  for (int w = 0; w < ways && rank == 0; ++w) {
    double* const own = times + (size_t)w * (size_t)iterations;
    qsort(own, (size_t)iterations, sizeof *own, by_size);
    printf("%s %.3f\n", names[w], 1e6 * own[iterations / 2]);
  }
  free(times);
  MPI_Win_free(&window);
  MPI_Finalize();
  return wrong;
}
