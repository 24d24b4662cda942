// SPDX-License-Identifier: Apache-2.0
/* The least that an all-reduce of two ranks must do where each has its numbers in private memory: a bound for
 * `gradmeter allreduce --algorithm shm-direct --buffers plain`.
 *   cma_bound [--all] [--small-pages] [--rewrite] [--seconds 2] BYTES...
 * Two processes on a core each, without MPI; fp32 sums in place; the slowest process' time of each call, the median
 * over calls. With --rewrite each process has written its whole buffer before a call, as a training step does; without,
 * the half that the other sums stays in the other's cache, as between the calls of a benchmark. All ways and slices
 * take turns. For each way it prints "BYTES WAY SLICE MICROSECONDS" with its best slice, or with every one (--all), and
 * then the best of those that sum. Each way is checked once. Exit status 1: a sum is wrong; 2: a call failed. */
#define _GNU_SOURCE 1 /* process_vm_readv */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { most_calls = 1 << 16, slices = 7, timed = 3 };
static const size_t first_slice = (size_t)16 << 10, longest_slice = (size_t)1 << 20;

/* What both processes see. Each flag has cache lines of its own. */
typedef struct {
  struct {
    _Alignas(128) _Atomic uint64_t arrivals;
  } flag[2];
  _Alignas(128) int64_t process[2];
  float* buffer[2];
  int stop, wrong[2];
  double time[2][timed]; /* of the block that has just run */
  _Alignas(4096) char stage[2][4][(size_t)1 << 20];
} Shared;

static Shared* shared;
static int rank, print_all, rewrites;
static float *own, *scratch;
static pid_t peer;
static uint64_t barriers;

static void fail(const char* what) {
  perror(what);
  exit(2);
}

static double now(void) {
  struct timespec t;
  if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) fail("clock_gettime");
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a process wrote before it arrived, the other sees behind the barrier. */
static void barrier(void) {
  atomic_store_explicit(&shared->flag[rank].arrivals, ++barriers, memory_order_release);
  while (atomic_load_explicit(&shared->flag[1 - rank].arrivals, memory_order_acquire) < barriers) {
  }
}

typedef ssize_t (*Transfer)(pid_t, const struct iovec*, unsigned long, const struct iovec*, unsigned long,
                            unsigned long);

static void move(Transfer transfer, void* here, float* there, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const struct iovec a = {(char*)here + done, bytes - done}, b = {(char*)there + done, bytes - done};
    const ssize_t moved = transfer(peer, &a, 1, &b, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) fail("process_vm_readv or process_vm_writev");
    done += (size_t)moved;
  }
}
static void fetch(void* to, float* from, size_t bytes) { move(process_vm_readv, to, from, bytes); }
static void put(void* from, float* to, size_t bytes) { move(process_vm_writev, from, to, bytes); }

#if defined(__x86_64__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

WIDE static void add(float* to, const float* other, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += other[i];
}
WIDE static void add_to_both(float* restrict to, float* restrict second, const float* restrict other, size_t n) {
  for (size_t i = 0; i < n; ++i) second[i] = to[i] += other[i];
}

/* A way reduces n numbers; rank r owns the half from r * n / 2 on. */
static size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/* Sums the own half, and writes each slice of it to the other process, as shm-direct does. */
static void read_write(size_t n, size_t slice) {
  const size_t begin = (size_t)rank * n / 2, end = begin + n / 2;
  barrier();
  for (size_t at = begin; at < end; at += slice) {
    const size_t k = lesser(slice, end - at);
    fetch(scratch, shared->buffer[1 - rank] + at, k * sizeof(float));
    add(own + at, scratch, k);
    put(own + at, shared->buffer[1 - rank] + at, k * sizeof(float));
  }
  barrier();
}

/* Sums the own half, and then fetches the half that the other has summed. */
static void read_read(size_t n, size_t slice) {
  const size_t begin = (size_t)rank * n / 2, end = begin + n / 2, other = n / 2 - begin;
  barrier();
  for (size_t at = begin; at < end; at += slice) {
    const size_t k = lesser(slice, end - at);
    fetch(scratch, shared->buffer[1 - rank] + at, k * sizeof(float));
    add(own + at, scratch, k);
  }
  barrier();
  fetch(own + other, shared->buffer[1 - rank] + other, n / 2 * sizeof(float));
  barrier();
}

/* Both sum all: as many bytes from the other process, but no wait for its sums, and no call that fetches them. */
static void sum_all(size_t n, size_t slice) {
  barrier();
  for (size_t at = 0; at < n; at += slice) {
    const size_t k = lesser(slice, n - at);
    fetch(scratch, shared->buffer[1 - rank] + at, k * sizeof(float));
    barrier();
    add(own + at, scratch, k);
  }
  barrier();
}

/* Two copies through shared memory in place of one by the kernel. At barrier i slice i of the other's half is there,
 * and the sums of slice i - 1. */
static void staged(size_t n, size_t slice) {
  const size_t begin = (size_t)rank * n / 2, other = n / 2 - begin, half = n / 2, count = (half + slice - 1) / slice;
  for (size_t i = 0; i <= count + 1; ++i) {
    if (i >= 2) { /* what the other has summed */
      const size_t at = (i - 2) * slice, k = lesser(slice, half - at);
      memcpy(own + other + at, shared->stage[1 - rank][2 + i % 2], k * sizeof(float));
    }
    if (i >= 1 && i <= count) {
      const size_t at = (i - 1) * slice, k = lesser(slice, half - at);
      add_to_both(own + begin + at, (float*)shared->stage[rank][2 + (i - 1) % 2],
                  (const float*)shared->stage[1 - rank][(i - 1) % 2], k);
    }
    if (i < count) {
      const size_t at = i * slice, k = lesser(slice, half - at);
      memcpy(shared->stage[rank][i % 2], own + other + at, k * sizeof(float));
    }
    if (i <= count) barrier();
  }
}

/* Only what must move from process to process by the kernel: half of the buffer each way, nothing is summed. */
static void moves(size_t n, size_t slice) {
  const size_t begin = (size_t)rank * n / 2, end = begin + n / 2;
  barrier();
  for (size_t at = begin; at < end; at += slice) {
    const size_t k = lesser(slice, end - at);
    fetch(scratch, shared->buffer[1 - rank] + at, k * sizeof(float));
    put(scratch, shared->buffer[1 - rank] + at, k * sizeof(float));
  }
  barrier();
}

enum { ways = 5 };
static const struct {
  const char* name;
  void (*run)(size_t n, size_t slice);
  int sums;
} way[ways] = {{"read-write", read_write, 1},
               {"read-read", read_read, 1},
               {"sum-all", sum_all, 1},
               {"staged", staged, 1},
               {"moves-alone", moves, 0}};

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* As gradmeter has its buffers: on huge pages by advice, or on ordinary ones as malloc's memory. */
static float* take(size_t bytes, int small_pages) {
  const size_t huge = (size_t)2 << 20;
  char* at = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  at += (huge - (size_t)at % huge) % huge;
  if (!small_pages) (void)madvise(at, bytes, MADV_HUGEPAGE); /* advice only: small pages serve */
  return (float*)at;
}

static void check(int w, size_t n, size_t slice) {
  if (!way[w].sums) return;
  for (size_t i = 0; i < n; ++i) own[i] = (float)(i % 1000) + (float)rank * 5;
  barrier();
  way[w].run(n, slice);
  barrier();
  for (size_t i = 0; i < n && !shared->wrong[rank]; ++i) {
    if (own[i] != (float)(2 * (i % 1000) + 5)) {
      fprintf(stderr, "%s: element %zu of %zu is wrong on rank %d\n", way[w].name, i, n, rank);
      shared->wrong[rank] = 1;
    }
  }
  barrier();
}

/* Rank 0 ends the rounds after `seconds`, when each way and slice has five calls at least. */
static void measure(size_t bytes, double seconds, double* times) {
  const size_t n = bytes / sizeof(float), most = most_calls / (ways * slices);
  for (int w = 0; w < ways; ++w) check(w, n, first_slice / sizeof(float));
  memset(own, 0, bytes); /* sums of zeros stay zeros */
  size_t calls = 0;
  const double begin = now();
  do {
    for (int w = 0; w < ways; ++w) {
      for (int s = 0; s < slices; ++s) {
        const size_t slice = (first_slice << s) / sizeof(float);
        for (int i = -1; i < timed; ++i) { /* the first call finds the caches as the way before has left them */
          if (rewrites) memset(own, 0, bytes);
          barrier();
          const double start = now();
          way[w].run(n, slice);
          if (i >= 0) shared->time[rank][i] = now() - start;
        }
        barrier();
        for (int i = 0; i < timed && rank == 0; ++i) {
          const double a = shared->time[0][i], b = shared->time[1][i];
          times[(size_t)(w * slices + s) * most + calls + (size_t)i] = a > b ? a : b;
        }
        barrier();
      }
    }
    calls += timed;
    if (rank == 0) shared->stop = (calls >= 5 && now() - begin > seconds) || calls + timed > most;
    barrier();
  } while (!shared->stop);
  if (rank == 1) return;
  double best = 1e9;
  int best_way = 0;
  for (int w = 0; w < ways; ++w) {
    double least = 1e9;
    size_t slice = 0;
    for (int s = 0; s < slices; ++s) {
      double* own_times = times + (size_t)(w * slices + s) * most;
      qsort(own_times, calls, sizeof *own_times, by_size);
      const double median = (own_times[(calls - 1) / 2] + own_times[calls / 2]) / 2;
      if (print_all) printf("%zu %s %zuK %.2f\n", bytes, way[w].name, first_slice << s >> 10, 1e6 * median);
      if (median < least) least = median, slice = first_slice << s;
    }
    if (!print_all) printf("%zu %s %zuK %.2f\n", bytes, way[w].name, slice >> 10, 1e6 * least);
    if (way[w].sums && least < best) best = least, best_way = w;
  }
  printf("%zu best %s %.2f\n", bytes, way[best_way].name, 1e6 * best);
  fflush(stdout);
}

/* Of the cores that this program may use, the first is rank 0's and the second rank 1's. */
static void pin(void) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) fail("sched_getaffinity");
  CPU_ZERO(&one);
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all) && seen++ == rank) CPU_SET(core, &one);
  if (CPU_COUNT(&one) == 0) {
    fprintf(stderr, "two cores are needed\n");
    exit(2);
  }
  if (sched_setaffinity(0, sizeof one, &one) != 0) fail("sched_setaffinity");
}

static int run_rank(char** sizes, size_t longest, double seconds, int small_pages) {
  pin();
  own = take(longest, small_pages);
  scratch = take(longest_slice, 0);
  memset(own, 0, longest); /* writing makes the pages */
  memset(scratch, 0, longest_slice);
  memset(shared->stage[rank], 0, sizeof shared->stage[rank]);
  shared->process[rank] = getpid();
  shared->buffer[rank] = own;
  double* times = malloc(most_calls * sizeof *times);
  if (!times) fail("malloc");
  barrier();
  peer = (pid_t)shared->process[1 - rank];
  for (; *sizes; ++sizes) measure(strtoull(*sizes, NULL, 10), seconds, times);
  free(times);
  return shared->wrong[rank];
}

int main(int argc, char** argv) {
  double seconds = 2;
  int small_pages = 0, first = 1;
  for (; first < argc && argv[first][0] == '-'; ++first) {
    if (strcmp(argv[first], "--small-pages") == 0) {
      small_pages = 1;
    } else if (strcmp(argv[first], "--rewrite") == 0) {
      rewrites = 1;
    } else if (strcmp(argv[first], "--all") == 0) {
      print_all = 1;
    } else if (strcmp(argv[first], "--seconds") == 0 && first + 1 < argc) {
      seconds = atof(argv[++first]);
    } else {
      first = argc;
    }
  }
  size_t longest = 0;
  for (int a = first; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10);
    if (bytes == 0 || bytes % (2 * sizeof(float)) != 0) longest = SIZE_MAX;
    if (bytes > longest) longest = bytes;
  }
  if (first >= argc || longest == SIZE_MAX || !(seconds > 0)) {
    fprintf(stderr, "usage: cma_bound [--all] [--small-pages] [--rewrite] [--seconds 2] BYTES...   multiples of 8\n");
    return 2;
  }
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("mmap");
  const pid_t parent = getpid();
  pid_t ranks[2];
  for (int r = 0; r < 2; ++r) {
    ranks[r] = fork();
    if (ranks[r] < 0) fail("fork");
    if (ranks[r] > 0) continue;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) fail("prctl");
    rank = r;
    return run_rank(argv + first, longest, seconds, small_pages);
  }
  int worst = 0;
  for (int ended = 0; ended < 2; ++ended) {
    int status = 0;
    const pid_t who = wait(&status);
    if (who < 0) fail("wait");
    if (WIFEXITED(status) && WEXITSTATUS(status) < 2) {
      worst |= WEXITSTATUS(status);
      continue;
    }
    /* The other one would wait for it for ever. */
    if (ended == 0) (void)kill(who == ranks[0] ? ranks[1] : ranks[0], SIGKILL);
    return 2;
  }
  return worst;
}
