// SPDX-License-Identifier: Apache-2.0
// What the sanitizers of a program are told. The emulator itself is compiled without them: weak symbols find theirs.
#pragma once
#include <cstddef>

extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** save, const void* bottom, std::size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* save, const void** bottom, std::size_t* size);
[[gnu::weak]] void __asan_poison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void*);
[[gnu::weak]] void __tsan_switch_to_fiber(void*, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void*);
[[gnu::weak]] void __tsan_release(void*);
[[gnu::weak]] void __tsan_read_range(void*, unsigned long);
[[gnu::weak]] void __tsan_write_range(void*, unsigned long);
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char*, int);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char*, int);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char*, int);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char*, int);
[[gnu::weak]] void AnnotateIgnoreSyncBegin(const char*, int);
[[gnu::weak]] void AnnotateIgnoreSyncEnd(const char*, int);
}

namespace cuda_emulator {

inline bool finds_races() { return __tsan_create_fiber != nullptr; }
inline bool finds_overruns() { return __asan_poison_memory_region != nullptr; }

/// What happened before a release of the address happened before what follows an acquire of it.
inline void acquire(void* address) {
  if (finds_races()) __tsan_acquire(address);
}
inline void release(void* address) {
  if (finds_races()) __tsan_release(address);
}

/// While one lives the thread sanitizer looks away: from the emulator's own lists, never from what a kernel or a copy
/// does.
inline void look_away() {
  if (!finds_races()) return;
  AnnotateIgnoreReadsBegin("", 0);
  AnnotateIgnoreWritesBegin("", 0);
}
inline void look_again() {
  if (!finds_races()) return;
  AnnotateIgnoreWritesEnd("", 0);
  AnnotateIgnoreReadsEnd("", 0);
}
struct Unwatched {
  Unwatched() { look_away(); }
  ~Unwatched() { look_again(); }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};
/// Inside the former.
struct Watched {
  Watched() { look_again(); }
  ~Watched() { look_away(); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

/// The emulator's mutex: a real runtime orders nothing for its callers by having one.
struct WithoutOrder {
  WithoutOrder() {
    if (finds_races()) AnnotateIgnoreSyncBegin("", 0);
  }
  ~WithoutOrder() {
    if (finds_races()) AnnotateIgnoreSyncEnd("", 0);
  }
  WithoutOrder(const WithoutOrder&) = delete;
  WithoutOrder& operator=(const WithoutOrder&) = delete;
};

/// Of a copy or a memset, by whoever does it. Inside an Unwatched.
inline void note_read(const void* at, std::size_t bytes) {
  if (!finds_races() || bytes == 0) return;
  const Watched watched;
  __tsan_read_range(const_cast<void*>(at), bytes);
}
inline void note_write(void* at, std::size_t bytes) {
  if (!finds_races() || bytes == 0) return;
  const Watched watched;
  __tsan_write_range(at, bytes);
}

}  // namespace cuda_emulator
