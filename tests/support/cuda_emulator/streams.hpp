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

/// How far work came that waits for peers.
enum class Progress : unsigned char { none, some, done };

struct StreamWork {
  std::function<void()> run;
  const char* what = "";
  double seconds = 0;
  bool is_host = false;  ///< a function of the host's: calls of CUDA fail in it, device memory is closed to it
  /// Instead of `run`, of work that waits for other ranks: goes on as far as it can without them. Opens device memory
  /// itself.
  std::function<Progress()> advance = {};
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
/// reported. While peers are waited for, other threads may call. The mutex must be held once.
cudaError_t wait_for(MarkPtr);
cudaError_t wait_for_all();
/// Runs one piece of work, if there is any that this stream needs. Null: any.
bool run_one(const Stream* needed_by);
/// The same; when nothing has moved for a while, any work: a device does not wait for those who ask, and a peer may
/// wait for work that nobody asks for.
bool run_needed(const Stream&);
/// Has a stream work that this thread made, or the default stream?
bool has_work_of_this_thread();
/// Lets other threads call for a moment. The mutex must be held once.
void pause();
/// So long may work wait for a peer without any progress before that is reported as a hang [s].
double patience();

/// Sets the error that all calls return from now on.
void fail(cudaError_t);
/// The first argument, or the error of before.
cudaError_t result(cudaError_t);
cudaError_t take_last_error();
cudaError_t last_error_now();

}  // namespace cuda_emulator
