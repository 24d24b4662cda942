// SPDX-License-Identifier: Apache-2.0
// Preloaded: a oneDNN that cheats. From the IDLE_FROM-th execution of each primitive on (from 1), by IDLE_HOW: "nothing" is done; "half"
// restores the second half of the result as it was before the call; "stale" puts the last result of any primitive that was computed, where
// that had as many bytes; "byte" changes one byte in every IDLE_EVERY-th result. "placed" computes, and takes longer
// by up to 100 us, which the page of the result decides. Success is reported. In the end it says how many results were others than they
// should have been, of "nothing" how many it has left out.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef dnnl_status_t (*Execute)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t*);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // ranks may be threads
static struct {
  const_dnnl_primitive_t primitive;
  long executions;
} known[1 << 12];
static char* last;  // result
static size_t last_bytes;
static long spoilt;

static long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}

static long count_of(const_dnnl_primitive_t p) {
  const size_t size = sizeof known / sizeof *known;
  size_t i = ((size_t)p >> 4) % size;
  while (known[i].primitive && known[i].primitive != p) i = (i + 1) % size;
  known[i].primitive = p;
  return ++known[i].executions;
}

// Another primitive may get its address.
dnnl_status_t dnnl_primitive_destroy(dnnl_primitive_t p) {
  static dnnl_status_t (*real)(dnnl_primitive_t);
  pthread_mutex_lock(&lock);
  if (!real) real = (dnnl_status_t(*)(dnnl_primitive_t))dlsym(RTLD_NEXT, "dnnl_primitive_destroy");
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (known[i].primitive == p) known[i].executions = 0;
  }
  pthread_mutex_unlock(&lock);
  return real(p);
}

// Where the primitive writes: of its results the one that matters. Backward the result of the forward pass is an input.
static size_t result_of(int count, const dnnl_exec_arg_t* arguments, char** at) {
  int is_backward = 0;
  for (int i = 0; i < count; ++i) is_backward |= arguments[i].arg == DNNL_ARG_DIFF_SRC || arguments[i].arg == DNNL_ARG_DIFF_WEIGHTS;
  for (int i = 0; i < count; ++i) {
    const int a = arguments[i].arg;
    if (is_backward ? a != DNNL_ARG_DIFF_SRC && a != DNNL_ARG_DIFF_WEIGHTS : a != DNNL_ARG_DST) continue;
    const dnnl_memory_desc_t* d = NULL;
    void* memory = NULL;
    if (dnnl_memory_get_memory_desc(arguments[i].memory, &d) != dnnl_success) continue;
    if (dnnl_memory_get_data_handle(arguments[i].memory, &memory) != dnnl_success || !memory) continue;
    *at = memory;
    return dnnl_memory_desc_get_size(d);
  }
  return 0;
}

// The luck of a page: the same for as long as results lie there.
static void spin_for(const char* at) {
  const long ns = (long)(((uintptr_t)at >> 12) * 0x9E3779B97F4A7C15u >> 60) * 7000;
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < ns);
}

static dnnl_status_t cheat(Execute real, const char* how, long n, const_dnnl_primitive_t p, dnnl_stream_t s, int count,
                           const dnnl_exec_arg_t* arguments) {
  char* at = NULL;
  const size_t bytes = result_of(count, arguments, &at);
  const int is_late = n >= setting("IDLE_FROM", 12);
  if (!is_late && strcmp(how, "stale") != 0) return real(p, s, count, arguments);
  if (bytes == 0) return real(p, s, count, arguments);
  char *before = malloc(bytes), *right = malloc(bytes);
  memcpy(before, at, bytes);
  const dnnl_status_t status = real(p, s, count, arguments);
  memcpy(right, at, bytes);
  if (strcmp(how, "half") == 0) {
    memcpy(at + bytes / 2, before + bytes / 2, bytes - bytes / 2);
  } else if (strcmp(how, "byte") == 0) {
    if (n % setting("IDLE_EVERY", 3) == 0) at[bytes / 2 | 3] ^= 0x10;  // the upper byte of a little-endian number
  } else if (is_late && last_bytes == bytes) {  // stale
    memcpy(at, last, bytes);
  } else {
    last = realloc(last, bytes);
    memcpy(last, at, last_bytes = bytes);
  }
  spoilt += memcmp(at, right, bytes) != 0;
  free(before);
  free(right);
  return status;
}

__attribute__((destructor)) static void say(void) {
  if (getenv("IDLE_HOW")) fprintf(stderr, "spoilt %ld results\n", spoilt);
}

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t p, dnnl_stream_t s, int count, const dnnl_exec_arg_t* arguments) {
  static Execute real;
  const char* how = getenv("IDLE_HOW");
  pthread_mutex_lock(&lock);
  if (!real) real = (Execute)dlsym(RTLD_NEXT, "dnnl_primitive_execute");
  const long n = count_of(p);
  pthread_mutex_unlock(&lock);
  if (!how) return real(p, s, count, arguments);
  if (strcmp(how, "nothing") == 0) {
    const int is_late = n >= setting("IDLE_FROM", 12);
    __atomic_add_fetch(&spoilt, is_late, __ATOMIC_RELAXED);
    return is_late ? dnnl_success : real(p, s, count, arguments);
  }
  if (strcmp(how, "placed") == 0) {
    char* at = NULL;
    if (result_of(count, arguments, &at) > 0) spin_for(at);
    return real(p, s, count, arguments);
  }
  pthread_mutex_lock(&lock);
  const dnnl_status_t status = cheat(real, how, n, p, s, count, arguments);
  pthread_mutex_unlock(&lock);
  return status;
}
