// SPDX-License-Identifier: Apache-2.0
// Preloaded before a program that computes with oneDNN: on rank SLOW_RANK every primitive takes SLOW_FACTOR times as long.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double factor_here(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *slow = getenv("SLOW_RANK"), *factor = getenv("SLOW_FACTOR");
  return rank && slow && factor && strcmp(rank, slow) == 0 ? strtod(factor, NULL) : 1.0;
}

typedef int (*execute_t)(const void*, void*, int, const void*);

int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  static execute_t real = NULL;
  static double factor = 0;
  if (!real) {
    real = (execute_t)dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    factor = factor_here();
  }
  const double begin = now();
  const int status = real(primitive, stream, count, arguments);
  const double end = begin + factor * (now() - begin);
  while (factor > 1 && now() < end) {
  }
  return status;
}
