// SPDX-License-Identifier: Apache-2.0
// Streams and their work. When it runs is schedule.hpp's.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "support/cuda_emulator/fiber_pool.hpp"

namespace cuda_emulator {

struct Stream;
struct Graph;

/// The end of a piece of work. Its time is of a model, and measures nothing.
struct Mark {
  bool done = false;
  Stream* stream = nullptr;
  double seconds = 0;
  std::uint64_t submitted = 0, finished = 0;  ///< the thread sanitizer's: what happened before
};
using MarkPtr = std::shared_ptr<Mark>;

struct StreamWork {
  /// On a fiber of its stream, which it may leave by pause_work(). May run again when it is a graph's. Null: a mark
  /// only.
  std::function<void()> run;
  const char* what = "";
  double seconds = 0;
  bool is_host = false;         ///< a function of the host's: calls of CUDA fail in it, device memory is closed to it
  bool is_cooperative = false;  ///< a kernel of which all blocks run at once, and so may wait for another one
  /// Of work that pauses while peers have not come: the streams in which their part of it is. Null: whatever runs may
  /// be what it waits for.
  std::function<std::vector<Stream*>()> peers = {};
  /// Of a graph's, where no two launches can run the same: makes the work of one, for the stream it runs in.
  std::function<StreamWork(Stream&)> of_launch = {};
};

struct QueuedWork {
  StreamWork work;
  std::vector<MarkPtr> after;
  MarkPtr mark;
  std::uint64_t number = 0;  ///< in the order of submission, over all streams
  std::thread::id submitted_by = std::this_thread::get_id();
};

/// While a stream records instead of running: where in the graph it is.
struct Capture {
  Graph* graph = nullptr;              ///< null: it does not
  std::vector<std::size_t> tips = {};  ///< what its next work comes after
};

struct Stream {
  bool waits_for_default = true;
  std::deque<QueuedWork> queue = {};
  MarkPtr last = {};
  double seconds = 0;
  int hardware_queue = -1;     ///< -1: none that other streams share
  std::uint64_t priority = 0;  ///< among those that can run, with a random order
  bool is_destroyed = false;
  bool is_begun = false;   ///< its first work was, and has not ended
  bool is_paused = false;  ///< it was, and nothing has happened since
  bool is_at_host = false;
  std::unique_ptr<Fiber> fiber = std::make_unique<Fiber>(Fiber::large_stack);
  std::unique_ptr<FiberPool> threads = {};  ///< null: none yet
  Capture capture = {};
};

/// The first is the default stream. Those that are destroyed and have no work left are no more among them, but live on:
/// marks refer to them.
std::vector<std::unique_ptr<Stream>>& all_streams();
Stream& default_stream();
Stream* make_stream(bool waits_for_default);
void destroy_stream(Stream*);
/// Null: none such is alive.
Stream* find_stream(cudaStream_t);

/// After all work of the stream, and after the marks. Null: the stream records.
MarkPtr push(Stream&, StreamWork, std::vector<MarkPtr> after = {});

/// Sets the error that all calls return from now on.
void fail(cudaError_t);
bool has_failed();
/// The first argument, or the error of before: of a call that needs the device's context, which the thread must have
/// chosen.
cudaError_t result(cudaError_t);
/// The same of a call that needs none.
cudaError_t result_without_context(cudaError_t);
/// This thread has called cudaSetDevice.
void note_choice();
cudaError_t take_last_error();
cudaError_t last_error_now();
/// Of this thread: until the end of its life.
void begin_host_functions();
bool is_host_function();

}  // namespace cuda_emulator
