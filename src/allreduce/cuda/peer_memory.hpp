// Memory of the GPUs of a node that their kernels read from each other, and the calls of such kernels.
#pragma once
#ifdef GRADMETER_HAS_CUDA
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "allreduce/cuda/peer_window.hpp"
#include "allreduce/cuda/stream_collective.hpp"
#include "allreduce/request.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::allreduce {

/// Every rank's window as this rank's GPU reaches it: through CUDA IPC between processes, by plain addresses between
/// threads. Collective, as is the destructor. Errors: BackendError where GPUs cannot reach each other's memory, or
/// where more ranks share a GPU than kernels can wait for each other there.
class PeerMemory {
 public:
  /// `row` is named in errors: a literal.
  PeerMemory(const char* row, const runtime::Communicator&, runtime::CudaDevice&, std::size_t bytes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  std::span<std::byte* const> windows() const { return windows_; }
  /// Of a kernel that spins, on every GPU.
  unsigned blocks() const { return blocks_; }

 private:
  struct Shown;
  unsigned resident_blocks(const char* row, int device, std::ptrdiff_t ranks_on_it) const;
  std::byte* reach(const Shown& peer, const void* handle, const Shown& mine);

  runtime::Communicator communicator_;
  runtime::OwnedBuffer own_;
  std::vector<std::byte*> windows_;
  unsigned blocks_ = 1;
  std::vector<void*> opened_;
};

/// A collective whose call is one kernel in the queue's stream: nothing of it needs the host.
class PeerCollective final : public StreamCollective {
 public:
  struct Kernel {
    const char* row;                                      ///< a literal
    unsigned places;                                      ///< of a window, each for the longest buffer
    std::uint32_t barriers;                               ///< numbers of barriers that a call uses, at most
    double (*moved)(const cuda::PeerCall&, const Call&);  ///< bytes read and written
    /// In work of the queue.
    std::function<void(const cuda::PeerCall&, const Call&)> launch;
  };
  /// Collective. The queue outlives it.
  PeerCollective(std::string name, const runtime::Communicator&, runtime::CudaDevice&, runtime::Queue&,
                 std::size_t max_bytes, Kernel);
  /// Kernels read memory that goes next.
  ~PeerCollective() override;
  const std::string& name() const override { return name_; }
  void start(const Call&) override;
  void enqueue(const Call&) override;
  bool advance() override;

 private:
  void submit(const Call&);

  const std::string name_;
  const Kernel kernel_;
  runtime::Queue& queue_;
  cuda::PeerWindow window_;
  PeerMemory peers_;
  unsigned rank_;
  runtime::EventPtr done_;
  bool running_ = false;
};

/// Why kernels cannot read the memory of these ranks' GPUs; empty: they can, as far as the request says.
std::string peers_refusal(const Request&);
/// The queue's GPU. Errors: BackendError that names `row` when it is none.
runtime::CudaDevice& gpu_of(const char* row, runtime::Queue*);

}  // namespace gradmeter::allreduce
#endif
