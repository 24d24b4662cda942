// SPDX-License-Identifier: Apache-2.0
// The adapter of NCCL. In a build without NCCL each call refuses.
#include "runtime/nccl/communicator.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <source_location>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/clock.hpp"
#include "runtime/threads/thread_group.hpp"

#ifdef GRADMETER_HAS_NCCL
#include <nccl.h>

#include "runtime/cuda/device.hpp"
#include "runtime/cuda/handles.hpp"
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define GRADMETER_NCCL_REGISTERS
#endif
#endif

namespace gradmeter::runtime {

#ifdef GRADMETER_HAS_NCCL
namespace {

ncclDataType_t nccl_type(core::Element e) {
  switch (e) {
    case core::Element::f64:
      return ncclFloat64;
    case core::Element::f32:
      return ncclFloat32;
    case core::Element::i64:
      return ncclInt64;
    case core::Element::i32:
      return ncclInt32;
    case core::Element::f16:
      return ncclFloat16;
    case core::Element::bf16:
      return ncclBfloat16;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    case core::Element::e4m3:
      return ncclFloat8e4m3;
    case core::Element::e5m2:
      return ncclFloat8e5m2;
#else
    case core::Element::e4m3:
    case core::Element::e5m2:
      return ncclUint8;  // can be moved but not reduced, see nccl_sum_refusal
#endif
    case core::Element::i8:
      break;
  }
  return ncclInt8;
}

ncclRedOp_t nccl_operation(Combine c) {
  switch (c) {
    case Combine::min:
      return ncclMin;
    case Combine::max:
      return ncclMax;
    case Combine::product:
      return ncclProd;
    case Combine::sum:
      break;
  }
  return ncclSum;
}

/// NCCL's text for a result, with the first line of NCCL's last error message, which has several lines if several
/// things failed.
std::string nccl_reason(ncclResult_t result, ncclComm_t comm) {
  std::string detail = ncclGetLastError(comm);
  detail = detail.substr(0, detail.find('\n'));
  if (result == ncclInProgress) return "communicators have to block here: unset NCCL_COMM_BLOCKING";
  const std::string text = ncclGetErrorString(result);
  return detail.empty() ? text : fmt::format("{} ({})", text, detail);
}

/// For destructors: notes an error that cannot be thrown.
void note_nccl_error(ncclResult_t result, const char* call) noexcept {
  if (result != ncclSuccess) core::note_failed_release("NCCL", call, ncclGetErrorString(result));
}

/// Errors: BackendError with NCCL's own text.
void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr,
                std::source_location where = std::source_location::current()) {
  if (result == ncclSuccess) return;
  throw core::BackendError("NCCL", call, nccl_reason(result, comm), where);
}

/// Gives an environment variable another value until the end of the scope.
class OverriddenVariable {
 public:
  OverriddenVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~OverriddenVariable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  OverriddenVariable(const OverriddenVariable&) = delete;
  OverriddenVariable& operator=(const OverriddenVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

constexpr double destruction_timeout_s = 10;

}  // namespace

void NcclCalls::all_reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c) const {
  check_nccl(ncclAllReduce(in, out, n, nccl_type(e), nccl_operation(c), comm_, stream_), "ncclAllReduce", comm_);
}
void NcclCalls::reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c, int root) const {
  check_nccl(ncclReduce(in, out, n, nccl_type(e), nccl_operation(c), root, comm_, stream_), "ncclReduce", comm_);
}
void NcclCalls::reduce_scatter(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c) const {
  check_nccl(ncclReduceScatter(in, out, n, nccl_type(e), nccl_operation(c), comm_, stream_), "ncclReduceScatter",
             comm_);
}
void NcclCalls::all_gather(const std::byte* in, std::byte* out, std::size_t n, core::Element e) const {
  check_nccl(ncclAllGather(in, out, n, nccl_type(e), comm_, stream_), "ncclAllGather", comm_);
}
void NcclCalls::broadcast(const std::byte* in, std::byte* out, std::size_t n, core::Element e, int root) const {
  check_nccl(ncclBroadcast(in, out, n, nccl_type(e), root, comm_, stream_), "ncclBroadcast", comm_);
}
void NcclCalls::send(const std::byte* from, std::size_t n, core::Element e, int peer) const {
  check_nccl(ncclSend(from, n, nccl_type(e), peer, comm_, stream_), "ncclSend", comm_);
}
void NcclCalls::receive(std::byte* to, std::size_t n, core::Element e, int peer) const {
  check_nccl(ncclRecv(to, n, nccl_type(e), peer, comm_, stream_), "ncclRecv", comm_);
}

/// The number of calls that each rank of this node has made, in memory that the node's ranks share.
class NcclCallCounts {
 public:
  explicit NcclCallCounts(const Communicator& c)
      : node_(c.split_by_node()),
        ranks_(node_.all_gather_value(c.rank())),
        memory_(node_.member().share(page_bytes)),
        own_index_(static_cast<std::size_t>(node_.rank())) {
    new (memory_.parts[own_index_].data()) Count(0);
    node_.barrier();
  }
  void add_one() { count(own_index_).fetch_add(1, std::memory_order_release); }
  /// The ranks that have made fewer calls than this one.
  std::vector<int> late() const {
    std::vector<int> out;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (count(r).load(std::memory_order_acquire) < count(own_index_).load(std::memory_order_relaxed)) {
        out.push_back(ranks_[r]);
      }
    }
    return out;
  }
  const Communicator& node() const { return node_; }

 private:
  using Count = std::atomic<std::uint64_t>;
  Count& count(std::size_t r) const { return *std::launder(reinterpret_cast<Count*>(memory_.parts[r].data())); }

  Communicator node_;
  std::vector<int> ranks_;
  SharedParts memory_;
  std::size_t own_index_;
};

std::string nccl_refusal() { return {}; }

std::optional<int> running_nccl_version() {
  int code = 0;
  if (ncclGetVersion(&code) != ncclSuccess) return std::nullopt;
  return code;
}

std::string nccl_library() {
  const std::optional<int> code = running_nccl_version();
  return code ? fmt::format("NCCL {}.{}.{}", *code / 10000, *code % 10000 / 100, *code % 100) : "NCCL";
}

std::string nccl_sum_refusal(core::Element e) {
  if (e != core::Element::e4m3 && e != core::Element::e5m2) return {};
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 24, 0)
  return fmt::format("NCCL adds {} from 2.24 on, and this is {}", core::info(e).name, nccl_library());
#else
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  int major = 0, minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  constexpr int least_major = 9;
  if (major >= least_major) return {};
  return fmt::format("NCCL adds {} on GPUs of sm_90 or later, and this is sm_{}{}", core::info(e).name, major, minor);
#endif
}

namespace {

/// The mutex of a place (a GPU, or a rank of the emulated device), to be held while calls are issued. Two threads of a
/// process must not launch on one GPU at once, even on different communicators; NCCL ends a process in which it finds
/// that ("host threads racing to launch NCCL on device").
/// Source: NCCL User Guide, "Thread Safety"; NCCL 2.26 release notes, NCCL_LAUNCH_RACE_FATAL
std::mutex& launch_turn_of(int place) {
  constexpr std::size_t most_places = 64;  // places with higher numbers share a mutex with others
  static std::array<std::mutex, most_places> turns;
  return turns[static_cast<std::size_t>(place) % most_places];
}

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

}  // namespace

/// The reason why a call has to end.
struct NcclVerdict {
  bool has_peer_failed = false;  ///< false: the call has lasted too long
  double waited_s = 0;
  std::vector<int> late = {};
};

/// A rank's communicator, in NCCL's blocking mode, as in nccl-tests: in the non-blocking mode NCCL makes and joins a
/// thread for each group of calls. While the rank's thread is in a call, a watchdog thread checks whether a peer has
/// failed or the timeout is over. It then aborts the communicator, and the call returns.
/// Source: NCCL User Guide, "Nonblocking Group Operation", "Error handling and communicator abort"; NCCL's
/// src/group.cc, ncclGroupEndInternal
struct NcclCommunicator::State {
  State(const Communicator& c, NcclOptions o)
      : options(std::move(o)),
        counts(c),
        rank(c.rank()),
        size(c.size()),
        device(current_device()),
        launch_turn(launch_turn_of(CudaDevice::ranks_may_share() ? rank : device)),
        watchdog([this] { watch(); }) {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const NcclOptions options;
  NcclCallCounts counts;
  const int rank, size, device;
  std::mutex& launch_turn;
  ncclComm_t comm = nullptr;
  const char* call = "";
  double begin_s = 0;  ///< when the call began, on the host's clock
  bool is_call_pending = false;
  std::function<void()> on_abort = {};
  std::vector<void*> registrations = {};

  // `mutex` protects the members below, which the rank's thread and the watchdog share. They also share `comm` while
  // the rank's thread is in a call.
  std::mutex mutex = {};
  std::condition_variable changed = {};
  bool is_in_call = false, is_aborting = false, is_ending = false;
  double end_s = 0;                         ///< when the watchdog is to end the call, on the host's clock
  std::optional<NcclVerdict> verdict = {};  ///< the watchdog's verdict on a call that it has ended
  std::thread watchdog;

  void join(const Communicator&, const ncclUniqueId&);
  /// Runs `make`, which makes one or more calls of NCCL. They may block until `until_s`, by the host's clock. Errors:
  /// those of `make`; BackendError and PeerFailed if the watchdog has ended the calls.
  ncclResult_t run_blocking(double until_s, const std::function<ncclResult_t()>& make);
  /// Throws if NCCL has an asynchronous error.
  void check_asynchronous();
  /// Throws if a peer has failed or the timeout is over. Errors: those of `check`.
  void check_peers();
  void abort() noexcept;
  void free() noexcept;
  void deregister() noexcept;
  void require_alive() const;
  [[noreturn]] void give_up(const std::string& reason);
  [[noreturn]] void throw_verdict(const NcclVerdict&) const;
  std::string text(const std::string& reason, const std::vector<int>& late) const;

 private:
  void watch();
  std::optional<NcclVerdict> judge() const;
};

NcclCommunicator::State::~State() {
  free();
  {
    const std::lock_guard lock(mutex);
    is_ending = true;
  }
  changed.notify_all();
  watchdog.join();
}

void NcclCommunicator::State::require_alive() const {
  if (!comm) throw core::BackendError("NCCL", call, "the communicator was aborted by an earlier error");
}

std::optional<NcclVerdict> NcclCommunicator::State::judge() const {
  try {
    throw_if_abandoned(counts.node());
  } catch (const PeerFailed&) {
    return NcclVerdict{.has_peer_failed = true};
  }
  const double now = host_clock();
  if (now <= end_s) return std::nullopt;
  return NcclVerdict{.waited_s = now - begin_s, .late = counts.late()};
}

/// The loop of the watchdog's thread.
void NcclCommunicator::State::watch() {
  constexpr auto period = std::chrono::milliseconds(100);
  std::unique_lock lock(mutex);
  while (!is_ending) {
    changed.wait_for(lock, period);
    if (!is_in_call || verdict || !(verdict = judge())) continue;
    is_aborting = true;
    const ncclComm_t aborted = std::exchange(comm, nullptr);
    lock.unlock();
    (void)cudaSetDevice(device);   // otherwise NCCL would restore device 0 as the current one, and make a context there
    (void)ncclCommAbort(aborted);  // an error of the abort cannot be handled any more
    lock.lock();
    is_aborting = false;
    changed.notify_all();
  }
}

ncclResult_t NcclCommunicator::State::run_blocking(double until_s, const std::function<ncclResult_t()>& make) {
  {
    const std::lock_guard lock(mutex);
    end_s = until_s;
    is_in_call = true;
  }
  /// Its destructor ends the call, also after an exception. If the watchdog has aborted the communicator, it destroys
  /// graphs (`on_abort`), for which NCCL's abort waits, and waits for the end of the abort.
  struct CallEnd {
    State& s;
    ~CallEnd() {
      std::unique_lock lock(s.mutex);
      s.is_in_call = false;
      if (!s.verdict) return;
      lock.unlock();
      if (s.on_abort) s.on_abort();
      lock.lock();
      s.changed.wait(lock, [this] { return !s.is_aborting; });
    }
  };
  ncclResult_t result = ncclSuccess;
  {
    const CallEnd end{*this};
    result = make();
  }
  if (!comm) throw_verdict(*verdict);
  return result;
}

void NcclCommunicator::State::throw_verdict(const NcclVerdict& v) const {
  if (v.has_peer_failed) throw PeerFailed();
  throw core::BackendError("NCCL", call,
                           text(fmt::format("not done after {}", core::to_text(core::Seconds{v.waited_s})), v.late));
}

void NcclCommunicator::State::abort() noexcept {
  if (comm && on_abort) on_abort();
  if (comm) (void)ncclCommAbort(comm);  // an error of the abort cannot be handled any more
  comm = nullptr;
}

/// Deregisters memory. An abort needs no such call.
void NcclCommunicator::State::deregister() noexcept {
#ifdef GRADMETER_NCCL_REGISTERS
  for (void* const handle : registrations) note_nccl_error(ncclCommDeregister(comm, handle), "ncclCommDeregister");
#endif
  registrations.clear();
}

/// Destroys the communicator if all calls are done; else aborts it, since a call under way might never end. Aborts also
/// while an exception propagates, since the peers may not join the destruction.
void NcclCommunicator::State::free() noexcept {
  if (!comm) return;
  if (is_call_pending || !may_call_collectives()) return abort();
  deregister();
  begin_s = host_clock();
  try {
    const auto finalize = [finalized = comm] { return ncclCommFinalize(finalized); };
    if (run_blocking(begin_s + destruction_timeout_s, finalize) != ncclSuccess) return abort();
  } catch (...) {  // the watchdog has aborted it
    return;
  }
  note_nccl_error(ncclCommDestroy(comm), "ncclCommDestroy");
  comm = nullptr;
}

std::string NcclCommunicator::State::text(const std::string& reason, const std::vector<int>& late) const {
  std::string who;
  if (!late.empty()) who = fmt::format("; without this call so far: rank {}", fmt::join(late, ", "));
  return fmt::format("rank {} of {}: {}{}", rank, size, reason, who);
}

void NcclCommunicator::State::give_up(const std::string& reason) {
  const std::vector<int> late = counts.late();
  abort();
  throw core::BackendError("NCCL", call, text(reason, late));
}

void NcclCommunicator::State::check_asynchronous() {
  require_alive();
  ncclResult_t now = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm, &now), "ncclCommGetAsyncError", comm);
  if (now != ncclSuccess && now != ncclInProgress) give_up(nccl_reason(now, comm));
}

void NcclCommunicator::State::check_peers() {
  end_s = begin_s + options.timeout.value;
  const std::optional<NcclVerdict> now = judge();
  if (!now) return;
  abort();
  throw_verdict(*now);
}

namespace {

void refuse_shared_gpus(const Communicator& c, int device) {
  const std::string shared = CudaDevice::shared_gpu(c, device);
  if (shared.empty()) return;
  throw core::Unavailable(
      fmt::format("NCCL: {}, and it takes one rank on each; start one rank a GPU, or take ring", shared));
}

/// The state of a communicator's initialisation, which runs on a thread of its own.
struct NcclInitialization {
  ncclComm_t comm = nullptr;
  std::string error;
  std::atomic<bool> is_over = false;
};

}  // namespace

/// Makes the communicator on a thread of its own, since a blocking communicator cannot be aborted while it is made, and
/// a non-blocking one cannot be changed to a blocking one later. If peers do not come, that thread stays in NCCL; the
/// error ends the run.
void NcclCommunicator::State::join(const Communicator& c, const ncclUniqueId& id) {
  // Ranks that are threads share one environment, so only rank 0 changes it, and barriers surround the calls that read
  // it.
  const bool sets_environment = c.ranks_as() == RanksAs::processes || rank == 0;
  std::optional<OverriddenVariable> algorithm, protocol;
  if (sets_environment && !options.algorithm.empty()) algorithm.emplace("NCCL_ALGO", options.algorithm);
  if (sets_environment && !options.protocol.empty()) protocol.emplace("NCCL_PROTO", options.protocol);
  c.barrier();
  call = "ncclCommInitRankConfig";
  begin_s = host_clock();
  const auto initialization = std::make_shared<NcclInitialization>();
  std::thread([initialization, id, ranks = size, mine = rank, gpu = device] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclResult_t result = cudaSetDevice(gpu) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
    if (result == ncclSuccess) result = ncclCommInitRankConfig(&initialization->comm, ranks, id, mine, &config);
    if (result != ncclSuccess) initialization->error = nccl_reason(result, nullptr);
    initialization->is_over.store(true, std::memory_order_release);
  }).detach();
  while (!initialization->is_over.load(std::memory_order_acquire)) {
    check_peers();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (initialization->error.empty()) comm = initialization->comm;
  // All ranks throw if NCCL has refused one, which takes no part in the next collective call.
  const FirstReport failed = first_report(c, initialization->error.empty() ? "" : text(initialization->error, {}));
  if (failed.text.empty()) return;
  abort();
  throw core::BackendError("NCCL", call, failed.text);
}

NcclCommunicator::NcclCommunicator(const Communicator& c, NcclOptions o)
    : state_(std::make_unique<State>(c, std::move(o))) {
  refuse_shared_gpus(c, state_->device);
  /// Rank 0's number for the communicator, or the error that it got instead.
  struct UniqueIdOrError {
    ncclUniqueId id;
    ncclResult_t result;
  };
  UniqueIdOrError given{.id = {}, .result = ncclSuccess};
  if (c.rank() == 0) given.result = ncclGetUniqueId(&given.id);
  given = c.broadcast_value(given);
  check_nccl(given.result, "ncclGetUniqueId");
  state_->join(c, given.id);
}

void NcclCommunicator::begin(const char* what) {
  State& state = *state_;
  state.require_alive();
  if (state.is_call_pending) throw core::BackendError("NCCL", what, "issued before the last call was complete");
  state.call = what;
  state.begin_s = host_clock();
  state.is_call_pending = true;
  state.counts.add_one();
}

void NcclCommunicator::add_group(CUstream_st* stream, const std::function<void(const NcclCalls&)>& body) {
  State& state = *state_;
  state.require_alive();
  std::unique_lock turn(state.launch_turn, std::try_to_lock);
  while (!turn && !turn.try_lock()) {
    state.check_peers();
    std::this_thread::yield();
  }
  const NcclCalls calls(state.comm, stream);  // made here, since the watchdog sets `comm` to null when it aborts
  try {
    const ncclResult_t result = state.run_blocking(state.begin_s + state.options.timeout.value, [&] {
      check_nccl(ncclGroupStart(), "ncclGroupStart");
      try {
        body(calls);
      } catch (...) {
        (void)ncclGroupEnd();  // the thread must leave the group; the first error is the one to report
        throw;
      }
      return ncclGroupEnd();
    });
    check_nccl(result, state.call, state.comm);
  } catch (...) {
    state.abort();
    throw;
  }
}

void NcclCommunicator::issue(const char* what, CUstream_st* stream, const std::function<void(const NcclCalls&)>& body) {
  begin(what);
  add_group(stream, body);
}

void NcclCommunicator::check() {
  state_->check_asynchronous();
  state_->check_peers();
}
void NcclCommunicator::note_completion() {
  state_->check_asynchronous();
  state_->is_call_pending = false;
}
void NcclCommunicator::abort() noexcept { state_->abort(); }
void NcclCommunicator::register_memory(std::byte* at, std::size_t bytes) {
#ifdef GRADMETER_NCCL_REGISTERS
  State& state = *state_;
  state.require_alive();
  void* handle = nullptr;
  check_nccl(ncclCommRegister(state.comm, at, bytes, &handle), "ncclCommRegister", state.comm);
  if (handle) state.registrations.push_back(handle);
#else
  (void)at, (void)bytes;
  throw core::UsageError(nccl_registration_refusal());
#endif
}
void NcclCommunicator::on_abort(std::function<void()> what) { state_->on_abort = std::move(what); }
int NcclCommunicator::rank() const { return state_->rank; }
int NcclCommunicator::size() const { return state_->size; }

int NcclCommunicator::late_peer() const {
  const std::vector<int> late = state_->counts.late();
  return late.empty() ? -1 : late.front();
}
#else
struct NcclCommunicator::State {};

std::string nccl_refusal() {
#ifdef GRADMETER_HAS_CUDA
  return "built without NCCL: install libnccl-dev (2.18 or later) and configure again";
#else
  return "built without CUDA, which NCCL needs: configure with -DGRADMETER_CUDA=ON where both are installed, or use "
         "mpi";
#endif
}
std::optional<int> running_nccl_version() { return std::nullopt; }
std::string nccl_library() { return {}; }
std::string nccl_sum_refusal(core::Element) { return nccl_refusal(); }

namespace {
[[noreturn]] void refuse() { throw core::UsageError(nccl_refusal()); }
}  // namespace

NcclCommunicator::NcclCommunicator(const Communicator&, NcclOptions) {
  refuse();
}  // NOLINT(performance-unnecessary-value-param)
void NcclCommunicator::issue(const char*, CUstream_st*, const std::function<void(const NcclCalls&)>&) { refuse(); }
void NcclCommunicator::begin(const char*) { refuse(); }
void NcclCommunicator::add_group(CUstream_st*, const std::function<void(const NcclCalls&)>&) { refuse(); }
void NcclCommunicator::check() { refuse(); }
void NcclCommunicator::note_completion() {}
void NcclCommunicator::abort() noexcept {}
void NcclCommunicator::register_memory(std::byte*, std::size_t) { refuse(); }
void NcclCommunicator::on_abort(std::function<void()>) {}
int NcclCommunicator::rank() const { return 0; }
int NcclCommunicator::size() const { return 0; }
int NcclCommunicator::late_peer() const { return -1; }

void NcclCalls::all_reduce(const std::byte*, std::byte*, std::size_t, core::Element, Combine) const { refuse(); }
void NcclCalls::reduce(const std::byte*, std::byte*, std::size_t, core::Element, Combine, int) const { refuse(); }
void NcclCalls::reduce_scatter(const std::byte*, std::byte*, std::size_t, core::Element, Combine) const { refuse(); }
void NcclCalls::all_gather(const std::byte*, std::byte*, std::size_t, core::Element) const { refuse(); }
void NcclCalls::broadcast(const std::byte*, std::byte*, std::size_t, core::Element, int) const { refuse(); }
void NcclCalls::send(const std::byte*, std::size_t, core::Element, int) const { refuse(); }
void NcclCalls::receive(std::byte*, std::size_t, core::Element, int) const { refuse(); }
#endif

NcclCommunicator::~NcclCommunicator() = default;

#ifdef GRADMETER_NCCL_REGISTERS
namespace {

void* allocate_registrable(std::size_t bytes) {
  void* address = nullptr;
  if (const ncclResult_t result = ncclMemAlloc(&address, bytes); result != ncclSuccess) {
    throw core::BackendError("NCCL", "ncclMemAlloc",
                             fmt::format("{}, of {} for --buffers registered; take arena, or a smaller problem",
                                         ncclGetErrorString(result), core::to_text(core::Bytes{bytes})));
  }
  return address;
}
void free_registrable(void* address) noexcept { note_nccl_error(ncclMemFree(address), "ncclMemFree"); }

}  // namespace

std::string nccl_registration_refusal() { return {}; }

OwnedBuffer allocate_registrable_beside(Device& device, core::Element element, std::span<std::byte> memory) {
  auto* const gpu = dynamic_cast<CudaDevice*>(&device);
  if (!gpu) throw core::BackendError("NCCL", "ncclMemAlloc", "it is memory of a GPU: take --device cuda");
  return gpu->allocate_beside(element, memory, {.allocate = allocate_registrable, .free = free_registrable});
}
#else
std::string nccl_registration_refusal() {
  if (auto why = nccl_refusal(); !why.empty()) return why;
  return "built with an NCCL before 2.19, which registers no buffers: build with a later one, or take --buffers arena";
}

OwnedBuffer allocate_registrable_beside(Device&, core::Element, std::span<std::byte>) {
  throw core::UsageError(nccl_registration_refusal());
}
#endif

}  // namespace gradmeter::runtime
