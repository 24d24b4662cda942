// SPDX-License-Identifier: Apache-2.0
// Preloaded: the file that FLAKY_FILE ends its path with is on a disk that goes away. Its FLAKY_WRITE-th write (from 1)
// writes half of its bytes, or all but FLAKY_LACKS; from then on writing and opening it fails with error number
// FLAKY_ERROR for FLAKY_S seconds, and once more when it is opened for the FLAKY_OPEN-th time after that. FLAKY_SYNC,
// FLAKY_CLOSE: the error number of every fdatasync and close of it, or of the FLAKY_AT-th alone.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double away_since;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long setting(const char* name) {
  const char* text = getenv(name);
  return text ? strtol(text, NULL, 10) : 0;
}

static int is_ours(const char* path) {
  const char* end = getenv("FLAKY_FILE");
  const size_t length = strlen(path), wanted = end ? strlen(end) : 0;
  return wanted > 0 && length >= wanted && strcmp(path + length - wanted, end) == 0;
}

static int is_away(void) { return away_since > 0 && now() < away_since + (double)setting("FLAKY_S"); }

static int is_file_of_ours(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return is_ours(path);
}

static int fails_now(const char* what, int file) {
  static long calls;
  if (setting(what) == 0 || !is_file_of_ours(file)) return 0;
  if (++calls != setting("FLAKY_AT") && setting("FLAKY_AT") != 0) return 0;
  fprintf(stderr, "flaky disk: %s fails\n", what);
  return 1;
}

int fdatasync(int file) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  if (!fails_now("FLAKY_SYNC", file)) return real(file);
  errno = (int)setting("FLAKY_SYNC");
  return -1;
}

int close(int file) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
  const int fails = fails_now("FLAKY_CLOSE", file);
  const int result = real(file);
  if (!fails) return result;
  errno = (int)setting("FLAKY_CLOSE");
  return -1;
}

ssize_t write(int file, const void* bytes, size_t count) {
  static ssize_t (*real)(int, const void*, size_t);
  static long writes;
  if (!real) real = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  if (!is_file_of_ours(file)) return real(file, bytes, count);
  if (is_away()) {
    errno = (int)setting("FLAKY_ERROR");
    return -1;
  }
  if (away_since == 0 && ++writes == setting("FLAKY_WRITE")) {
    away_since = now();
    const size_t lacks = (size_t)setting("FLAKY_LACKS");
    return real(file, bytes, lacks > 0 && lacks < count ? count - lacks : count / 2);
  }
  return real(file, bytes, count);
}

static int cannot_be_opened(const char* path) {
  static long opens;
  if (!is_ours(path) || away_since == 0) return 0;
  if (!is_away() && ++opens != setting("FLAKY_OPEN")) return 0;
  errno = (int)setting("FLAKY_ERROR");
  return 1;
}

static int opened(const char* name, const char* path, int flags, mode_t mode) {
  int (*real)(const char*, int, ...) = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, name);
  return cannot_be_opened(path) ? -1 : real(path, flags, mode);
}

// The C++ library opens files by these functions, which do not go through our `open`.
static FILE* opened_stream(const char* name, const char* path, const char* mode) {
  FILE* (*real)(const char*, const char*) = (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, name);
  return cannot_be_opened(path) ? NULL : real(path, mode);
}
FILE* fopen(const char* path, const char* mode) { return opened_stream("fopen", path, mode); }
FILE* fopen64(const char* path, const char* mode) { return opened_stream("fopen64", path, mode); }

static mode_t mode_of(int flags, va_list more) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; }

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return opened("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return opened("open64", path, flags, mode);
}
