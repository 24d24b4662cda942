// SPDX-License-Identifier: Apache-2.0
/* MPI_Allreduce as a plain C program times it: the yardstick for `gradmeter allreduce --algorithm mpi`.
 *   mpirun -np 2 plain_allreduce ITERATIONS DISCARDED BYTES...
 * Out of place, fp32 sums, a barrier before each call, the slowest rank's time of each iteration, the median over
 * iterations; buffers in private memory on huge pages by advice. Prints "BYTES MICROSECONDS" on rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Two buffers one after the other, as gradmeter has them: where they lie decides which pages and cache sets they use. */
static float *take(size_t bytes, size_t *second) {
  const size_t huge = (size_t)2 << 20, page = 4096, one = (bytes + page - 1) / page * page;
  const size_t both = 2 * (one + page), mapped = (both / huge + 2) * huge;
  char *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 3);
  at += (huge - (size_t)at % huge) % huge;
  (void)madvise(at, both, MADV_HUGEPAGE); /* advice only: small pages serve */
  *second = one / sizeof(float);
  return (float *)at;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_time(const float *in, float *out, int count, int iterations, int discarded, double *times) {
  int shift = 0;
  for (int i = -discarded; i < iterations; ++i) {
    /* Where small messages fall within cache lines depends on all before them, and makes 8 bytes take 0.6 or 0.7 us:
     * one more before every other block puts both into the samples, as gradmeter does. */
    if (i > 0 && i % 500 == 250) MPI_Bcast(&shift, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double time = MPI_Wtime() - begin;
    if (i >= 0) times[i] = time;
  }
  MPI_Allreduce(MPI_IN_PLACE, times, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(times, (size_t)iterations, sizeof *times, by_size);
  return (times[(iterations - 1) / 2] + times[iterations / 2]) / 2;
}

int main(int argc, char **argv) {
  int provided;
  /* As every program with a helper thread must: Open MPI's locks then cost 0.07 us a call. */
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int iterations = argc > 3 ? atoi(argv[1]) : 0, discarded = argc > 3 ? atoi(argv[2]) : 0;
  if (iterations < 1 || discarded < 1) {
    fprintf(stderr, "usage: plain_allreduce ITERATIONS DISCARDED BYTES...\n");
    MPI_Finalize();
    return 2;
  }
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  double *times = malloc((size_t)iterations * sizeof *times);
  for (int a = 3; a < argc && times; ++a) {
    const size_t count = strtoull(argv[a], NULL, 10) / sizeof(float);
    size_t second;
    float *in = take(count * sizeof(float), &second), *out = in + second;
    for (size_t i = 0; i < count; ++i) in[i] = out[i] = 1;
    const double t = median_time(in, out, (int)count, iterations, discarded, times);
    if (rank == 0) printf("%s %.3f\n", argv[a], t * 1e6);
  }
  free(times);
  MPI_Finalize();
  return 0;
}
