// Streams, and when their work runs: only when somebody waits for it, or when the order of a seed says so.
#pragma once
#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cuda_emulator {

/// All of the emulator's state is under it.
std::recursive_mutex& runtime_mutex();

struct Stream;

/// The end of a piece of work. Its time is of a model, and measures nothing.
struct Mark {
  bool done = false;
  Stream* stream = nullptr;
  double seconds = 0;
};
using MarkPtr = std::shared_ptr<Mark>;

struct StreamWork {
  std::function<void()> run;
  const char* what = "";
  double seconds = 0;
  bool is_host = false;  ///< a function of the host's: calls of CUDA fail in it, device memory is closed to it
};

Stream* make_stream(bool waits_for_default);
void destroy_stream(Stream*);
/// Null: none such is alive.
Stream* find_stream(cudaStream_t);
/// After all work of the stream, and after the marks.
MarkPtr push(Stream&, StreamWork, std::vector<MarkPtr> after = {});
/// Null: it has had no work.
MarkPtr last_of(const Stream&);
/// Runs work until the mark is done; null: nothing to wait for. Errors: what a kernel left, or a hang, which is
/// reported.
cudaError_t wait_for(const MarkPtr&);
cudaError_t wait_for_all();
/// Runs one piece of work, if there is any that this mark needs. Null: any.
bool run_one(const Stream* needed_by);

/// Sets the error that all calls return from now on.
void fail(cudaError_t);
/// The first argument, or the error of before.
cudaError_t result(cudaError_t);
cudaError_t take_last_error();
cudaError_t last_error_now();

}  // namespace cuda_emulator
