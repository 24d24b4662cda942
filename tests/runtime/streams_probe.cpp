// SPDX-License-Identifier: Apache-2.0
// Two kernels in two streams of one GPU that wait for each other: when do they run at once? What scripts/gpu-check.sh
// asks of a machine with a GPU, last of all. Each situation is a process of its own, since some depend on variables
// that CUDA reads when it starts. A kernel waits 0.1 s at most, by the GPU's clock, so nothing here can hang a GPU that
// keeps time. Whether kernels meet is a fact that is printed. A kernel that does not leave by its clock or by the
// host's word is a failure: gpu-direct and gpu-ring rely on both.
//   streams_probe
// Exit codes: 0 done; 1 a kernel did not leave as it should, or a process did not end; 3 a call failed, or no GPU.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/spin.hpp"

namespace gradmeter::runtime {
namespace {

constexpr std::uint64_t longest_wait_ns = 100'000'000, never = ~std::uint64_t{0};
constexpr unsigned seconds_a_situation = 20;
constexpr int wrong = 1, failed = 3;

/// Says that it is there, and waits for the other. Leaves its time [ns], or `never`. A kernel of its own for each
/// number, which is loaded at its own first launch.
template <int number>
__global__ void meet(std::uint32_t* own, std::uint32_t* other, std::uint64_t most, std::uint64_t* waited) {
  gpu::release_to_all(own, 1);
  const std::uint64_t begin = gpu::nanoseconds();
  while (gpu::acquire_from_all(other) == 0) {
    if (gpu::nanoseconds() - begin > most) {
      *waited = never;
      return;
    }
    gpu::spin_pause();
  }
  *waited = gpu::nanoseconds() - begin;
}

/// Says that it has begun, then waits for the host's word, or for the clock. Leaves whether it was the word.
__global__ void wait_for_host(std::uint32_t* begun, std::uint32_t* leave, std::uint64_t most, std::uint32_t* by_word) {
  gpu::release_to_all(begun, 1);
  const std::uint64_t begin = gpu::nanoseconds();
  while (gpu::load_relaxed(leave) == 0) {
    if (gpu::nanoseconds() - begin > most) {
      *by_word = 0;
      return;
    }
    gpu::spin_pause();
  }
  *by_word = 1;
}

struct ConcurrencyResult {
  bool met = false;
  double longest_us = 0;  ///< of the two waits, where they met
};

/// Launches one kernel in each stream, and something between them.
template <int one, int other>
ConcurrencyResult run_concurrently(
    const Stream& a, const Stream& b, bool cooperative = false, const std::function<void()>& between = [] {}) {
  DeviceBuffer<std::uint32_t> flags(2);
  DeviceBuffer<std::uint64_t> waited(2);
  fill(DeviceSpan<std::byte>(reinterpret_cast<std::byte*>(flags.span().device_address()), 8), 0);
  std::uint32_t* const flag = flags.span().device_address();
  std::uint64_t* const time = waited.span().device_address();
  const gpu::Shape shape{.grid = dim3(1), .block = dim3(1), .shared_bytes = 0, .cooperative = cooperative};
  check_cuda(gpu::launch(meet<one>, shape, a.get(), flag, flag + 1, longest_wait_ns, time), "meet");
  between();
  check_cuda(gpu::launch(meet<other>, shape, b.get(), flag + 1, flag, longest_wait_ns, time + 1), "meet");
  a.synchronize();
  b.synchronize();
  std::array<std::uint64_t, 2> times{};
  copy<std::uint64_t>(times, waited.span(), a);
  a.synchronize();
  // The second kernel finds the flag of a first one that has given up.
  if (times[0] == never || times[1] == never) return {};
  return {.met = true, .longest_us = 1e-3 * static_cast<double>(times[0] > times[1] ? times[0] : times[1])};
}

int print_result(const ConcurrencyResult& m) {
  if (m.met) {
    std::printf("met, after %.0f us\n", m.longest_us);
  } else {
    std::printf("did not meet within 100 ms\n");
  }
  return 0;
}

int two_streams() {
  const Stream a, b;
  return print_result(run_concurrently<0, 1>(a, b));
}

int cooperative() {
  const Stream a, b;
  return print_result(run_concurrently<0, 1>(a, b, true));
}

int with_a_free_between() {
  const Stream a, b;
  DeviceBuffer<std::uint32_t> unused(1 << 10);
  run_concurrently<0, 1>(a, b);  // both are loaded
  return print_result(run_concurrently<0, 1>(a, b, false, [&] {
    std::thread([&] {  // as another rank's thread does it
      check_cuda(cudaSetDevice(0), "cudaSetDevice");
      unused = DeviceBuffer<std::uint32_t>();
    })
        .join();
  }));
}

/// The first stream with each of 32 others: those that share its hardware queue do not meet.
int many_streams() {
  const std::vector<Stream> streams(33);
  std::string apart;
  int met = 0;
  for (std::size_t i = 1; i < streams.size(); ++i) {
    if (run_concurrently<0, 1>(streams[0], streams[i]).met) {
      ++met;
    } else {
      apart += ' ' + std::to_string(i);
    }
  }
  std::printf("the first met %d of 32 others%s%s\n", met, apart.empty() ? "" : "; not those of number", apart.c_str());
  return 0;
}

/// Pinned memory that a kernel reads and writes.
class Word {
 public:
  Word() {
    check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&at_), sizeof *at_, cudaHostAllocMapped), "cudaHostAlloc");
    *at_ = 0;
  }
  ~Word() { note_cuda_error(cudaFreeHost(at_), "cudaFreeHost"); }
  Word(const Word&) = delete;
  Word& operator=(const Word&) = delete;
  std::uint32_t* address() const { return at_; }
  volatile std::uint32_t& value() { return *at_; }

 private:
  std::uint32_t* at_ = nullptr;
};

int leave(bool by_word) {
  using Clock = std::chrono::steady_clock;
  constexpr std::uint64_t most = 5'000'000'000;
  const auto left_after = by_word ? most : longest_wait_ns;
  Word begun, word;
  DeviceBuffer<std::uint32_t> answer(1);
  const Stream stream;
  check_cuda(gpu::launch(wait_for_host, {.grid = dim3(1), .block = dim3(1)}, stream.get(), begun.address(),
                         word.address(), left_after, answer.span().device_address()),
             "wait_for_host");
  const auto launched = Clock::now();
  while (begun.value() == 0) {
    if (Clock::now() - launched > std::chrono::seconds(4)) throw std::runtime_error("no kernel begins within 4 s");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto told = Clock::now();
  if (by_word) word.value() = 1;
  stream.synchronize();
  const double ms = 1e3 * std::chrono::duration<double>(Clock::now() - told).count();
  std::array<std::uint32_t, 1> left_by_word{};
  copy<std::uint32_t>(left_by_word, answer.span(), stream);
  stream.synchronize();
  std::printf("the kernel left by %s, %.2f ms later\n", left_by_word[0] != 0 ? "the host's word" : "its clock", ms);
  return (left_by_word[0] != 0) == by_word && ms < 3000 ? 0 : wrong;
}
int leave_by_word() { return leave(true); }
int leave_by_clock() { return leave(false); }

struct Situation {
  const char* what;
  const char *loading, *connections;  // CUDA_MODULE_LOADING, CUDA_DEVICE_MAX_CONNECTIONS
  int (*run)();
};
constexpr std::array<Situation, 9> situations{{
    {"a kernel that the host tells to leave", "EAGER", "32", leave_by_word},
    {"a kernel that nobody tells to leave", "EAGER", "32", leave_by_clock},
    {"two streams", "EAGER", "32", two_streams},
    {"two streams, kernels loaded at their first launch", "LAZY", "32", two_streams},
    {"33 streams, 32 hardware queues", "EAGER", "32", many_streams},
    {"33 streams, 8 hardware queues", "EAGER", "8", many_streams},
    {"two cooperative grids", "EAGER", "32", cooperative},
    {"two cooperative grids, loaded at their first launch", "LAZY", "32", cooperative},
    {"a cudaFree between the launches", "EAGER", "32", with_a_free_between},
}};

/// Runs this program again. What hangs is ended by its own alarm.
int run_in_a_process(std::size_t which) {
  const Situation& s = situations.at(which);
  std::printf("%-52s ", s.what);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no second process");
  if (child == 0) {
    setenv("CUDA_MODULE_LOADING", s.loading, 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", s.connections, 1);
    alarm(seconds_a_situation);
    execl("/proc/self/exe", "streams_probe", std::to_string(which).c_str(), nullptr);
    _exit(failed);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::printf("did not end within %u s\n", seconds_a_situation);
  return wrong;
}

int run_all() {
  int worst = 0;
  for (std::size_t i = 0; i < situations.size(); ++i) {
    const int code = run_in_a_process(i);
    if (worst == 0) worst = code;
  }
  return worst;
}

}  // namespace
}  // namespace gradmeter::runtime

int main(int argc, char** argv) try {
  using namespace gradmeter::runtime;
  if (argc == 1) return run_all();
  return situations.at(std::stoul(argv[1])).run();
} catch (const std::exception& e) {
  std::printf("not known\n");
  std::fprintf(stderr, "streams_probe: %s\n", e.what());
  return 3;
}
