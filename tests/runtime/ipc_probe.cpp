// SPDX-License-Identifier: Apache-2.0
// CUDA IPC between two processes, without MPI: what scripts/gpu-check.sh asks of a machine with a GPU.
//   ipc_probe            one process owns memory, the other opens it: does it read and write the same numbers, how fast
//   are
//                        copies from it, and do kernels of the two processes that wait for each other run at once?
//   ipc_probe --alive    does the GPU answer? A line with its name.
// With several GPUs the second process uses the last one. Kernels that do not meet are a fact that is printed, and no
// failure: on one GPU nothing promises it. Exit codes: 0 done; 1 a wrong number; 3 a call failed, or there is no GPU.
// The emulated build shows that it runs, and prints no rate.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/spin.hpp"

namespace gradmeter::runtime {
namespace {

#ifdef GRADMETER_CUDA_EMULATED
constexpr unsigned elements = 1U << 12;
constexpr bool emulated = true;
#else
constexpr unsigned elements = 1U << 24;  // 64 MiB
constexpr bool emulated = false;
#endif
constexpr unsigned threads = 256;
constexpr std::uint64_t longest_wait_ns = 2'000'000'000, never = ~std::uint64_t{0};
constexpr int patience_ms = 25'000;  // of one process for the other
constexpr int wrong = 1, failed = 3;

__host__ __device__ inline std::uint32_t number(std::uint32_t i) { return i * 2'654'435'761U; }

__global__ void fill_numbers(std::uint32_t* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = number(i);
}
__global__ void add_one(std::uint32_t* to) { ++to[blockIdx.x * blockDim.x + threadIdx.x]; }

/// Says that it is there, and waits for the other process's kernel. Leaves its time [ns], or `never`.
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

struct Offer {
  cudaIpcMemHandle_t numbers, flags;
};
struct Answer {
  std::uint32_t wrong_numbers;
  double bytes_per_second;
};

/// The other process's end of a socket. Errors: std::runtime_error when it says nothing for `patience_ms`, or has gone.
class Peer {
 public:
  explicit Peer(int descriptor) : descriptor_(descriptor) {}
  template <class T>
  void send(const T& value) const {
    if (write(descriptor_, &value, sizeof value) != sizeof value)
      throw std::runtime_error("the other process has gone");
  }
  template <class T>
  T receive() const {
    T value;
    pollfd wanted{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, patience_ms) <= 0) throw std::runtime_error("the other process says nothing for 25 s");
    if (recv(descriptor_, &value, sizeof value, MSG_WAITALL) != sizeof value) {
      throw std::runtime_error("the other process has gone");
    }
    return value;
  }

 private:
  int descriptor_;
};

gpu::Shape shape() { return {.grid = dim3(elements / threads), .block = dim3(threads)}; }

std::uint32_t count_wrong(DeviceSpan<const std::uint32_t> numbers, std::uint32_t added) {
  std::vector<std::uint32_t> host(numbers.size());
  const Stream stream;
  copy<std::uint32_t>(host, numbers, stream);
  stream.synchronize();
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < elements; ++i) count += host[i] != number(i) + added ? 1 : 0;
  return count;
}

std::uint64_t meet_peer(std::uint32_t* flags, unsigned own) {
  DeviceBuffer<std::uint64_t> waited(1);
  const Stream stream;
  check_cuda(gpu::launch(meet, {.grid = dim3(1), .block = dim3(1)}, stream.get(), flags + own, flags + (1 - own),
                         longest_wait_ns, waited.span().device_address()),
             "meet");
  std::array<std::uint64_t, 1> result{};
  copy<std::uint64_t>(result, waited.span(), stream);
  stream.synchronize();
  return result[0];
}

/// The median of five copies of the owner's memory to one's own.
double copy_rate(DeviceSpan<const std::uint32_t> from) {
  DeviceBuffer<std::uint32_t> to(from.size());
  const Stream stream;
  std::vector<double> seconds;
  for (int i = 0; i < 6; ++i) {  // the first is not counted
    const CudaEvent begin, end;
    begin.record(stream);
    copy<std::uint32_t>(to.span(), from, stream);
    end.record(stream);
    stream.synchronize();
    if (i > 0) seconds.push_back(end.since(begin).value);
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(from.bytes()) / seconds[2];
}

void* open(const cudaIpcMemHandle_t& handle) {
  void* opened = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  return opened;
}

int devices() {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count == 0) throw std::runtime_error("there is no GPU");
  return count;
}

int be_peer(const Peer& owner) {
  check_cuda(cudaSetDevice(devices() - 1), "cudaSetDevice");
  const auto offer = owner.receive<Offer>();
  auto* const numbers = static_cast<std::uint32_t*>(open(offer.numbers));
  auto* const flags = static_cast<std::uint32_t*>(open(offer.flags));
  const DeviceSpan<std::uint32_t> all(numbers, elements);
  Answer answer{.wrong_numbers = count_wrong(all, 0), .bytes_per_second = emulated ? 0 : copy_rate(all)};
  {
    const Stream stream;
    check_cuda(gpu::launch(add_one, shape(), stream.get(), numbers), "add_one");
    stream.synchronize();
  }
  owner.send(answer);
  owner.receive<char>();
  owner.send(meet_peer(flags, 1));
  check_cuda(cudaIpcCloseMemHandle(numbers), "cudaIpcCloseMemHandle");
  check_cuda(cudaIpcCloseMemHandle(flags), "cudaIpcCloseMemHandle");
  return 0;
}

int be_owner(const Peer& peer) {
  const int count = devices();
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
  DeviceBuffer<std::uint32_t> numbers(elements), flags(2);
  fill(DeviceSpan<std::byte>(reinterpret_cast<std::byte*>(flags.span().device_address()), 8), 0);
  {
    const Stream stream;
    check_cuda(gpu::launch(fill_numbers, shape(), stream.get(), numbers.span().device_address()), "fill_numbers");
    stream.synchronize();
  }
  Offer offer;
  check_cuda(cudaIpcGetMemHandle(&offer.numbers, numbers.span().device_address()), "cudaIpcGetMemHandle");
  check_cuda(cudaIpcGetMemHandle(&offer.flags, flags.span().device_address()), "cudaIpcGetMemHandle");
  peer.send(offer);
  const auto answer = peer.receive<Answer>();
  const std::uint32_t wrong_here = count_wrong(numbers.span(), 1);
  std::printf(
      "two processes on %s: %u numbers, of which the second read %u wrong and the first finds %u wrong afterwards\n",
      count > 1 ? "two GPUs" : "one GPU", elements, answer.wrong_numbers, wrong_here);
  if (!emulated) std::printf("copies of the first's memory by the second: %.1f GB/s\n", 1e-9 * answer.bytes_per_second);
  peer.send('m');
  const std::uint64_t here = meet_peer(flags.span().device_address(), 0), there = peer.receive<std::uint64_t>();
  if (here == never || there == never) {
    std::printf("kernels of two processes that wait for each other: did not meet within 2 s\n");
  } else {
    std::printf("kernels of two processes that wait for each other: met, after %.0f and %.0f us\n",
                1e-3 * static_cast<double>(here), 1e-3 * static_cast<double>(there));
  }
  return answer.wrong_numbers + wrong_here == 0 ? 0 : wrong;
}

/// The second process runs this program again: CUDA does not survive a fork.
int run_both() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) throw std::runtime_error("no pair of sockets");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no second process");
  if (child == 0) {
    close(ends[0]);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);  // the emulated device asks whose process it is
    execl("/proc/self/exe", "ipc_probe", "--peer", std::to_string(ends[1]).c_str(), nullptr);
    _exit(failed);
  }
  close(ends[1]);
  int code = failed;
  try {
    code = be_owner(Peer(ends[0]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ipc_probe: %s\n", e.what());
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return code == 0 && !ended_well ? failed : code;
}

int say_alive() {
  const int count = devices();
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  DeviceBuffer<std::uint32_t> numbers(elements);
  const Stream stream;
  check_cuda(gpu::launch(fill_numbers, shape(), stream.get(), numbers.span().device_address()), "fill_numbers");
  stream.synchronize();
  const bool right = count_wrong(numbers.span(), 0) == 0;
  std::printf("%s, compute capability %d.%d, %d of them%s\n", properties.name, properties.major, properties.minor,
              count, right ? "" : ": a kernel wrote wrong numbers");
  return right ? 0 : wrong;
}

}  // namespace
}  // namespace gradmeter::runtime

int main(int argc, char** argv) try {
  using namespace gradmeter::runtime;
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "--peer" && argc == 3) return be_peer(Peer(std::stoi(argv[2])));
  if (what == "--alive" && argc == 2) return say_alive();
  if (argc == 1) return run_both();
  std::fprintf(stderr, "ipc_probe: unknown argument '%s'; it takes --alive or nothing\n", argv[1]);
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "ipc_probe: %s\n", e.what());
  return 3;
}
