#include "runtime/cuda/host_view.hpp"

#include <iterator>

namespace gradmeter::runtime {
namespace {

std::uintptr_t number_of(const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address); }
std::byte* address_of(std::uintptr_t number) {
  return reinterpret_cast<std::byte*>(number);  // NOLINT(performance-no-int-to-ptr)
}

class StreamMark final : public Mark {
 public:
  explicit StreamMark(const Stream& stream) { event_.record(stream); }
  double until(const Mark& later) const override {
    return dynamic_cast<const StreamMark&>(later).event_.since(event_).value;
  }

 private:
  CudaEvent event_;
};

}  // namespace

HostView::Copy& HostView::copy_of(const CudaDevice::Range& range) const {
  // Addresses of freed memory are given out again, for other lengths too.
  const std::uintptr_t begin = number_of(range.begin);
  if (range.bytes > 0) copies_.erase(copies_.upper_bound(begin), copies_.lower_bound(begin + range.bytes));
  Copy& copy = copies_[begin];
  if (copy.bytes == range.bytes) return copy;
  check_cuda(cudaHostAlloc(copy.memory.receive(), range.bytes, cudaHostAllocDefault), "cudaHostAlloc");
  copy.bytes = range.bytes;
  return copy;
}

std::byte* HostView::seen(std::uintptr_t device_address) const {
  const auto& [begin, copy] = *std::prev(copies_.upper_bound(device_address));
  return copy.at(device_address - begin);
}

std::byte* HostView::host_address(const std::byte* device_address, std::size_t bytes, bool written) const {
  ++requests_;
  const CudaDevice::Range range = device_.range_of(device_address, bytes);
  const std::size_t offset = static_cast<std::size_t>(device_address - range.begin);
  // Before the copy is looked at: the stream may still copy it back.
  stream_.synchronize();
  const Copy& copy = copy_of(range);
  const auto whole =
      boost::icl::interval<std::uintptr_t>::right_open(number_of(device_address), number_of(device_address) + bytes);
  Addresses missing(whole);
  missing -= present_;
  for (const auto& part : missing) {
    check_cuda(cudaMemcpyAsync(seen(part.lower()), address_of(part.lower()), part.upper() - part.lower(),
                               cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpyAsync");
  }
  stream_.synchronize();
  present_ += whole;
  if (written) written_ += whole;
  return copy.at(offset);
}

void HostView::flush() const {
  for (const auto& part : written_) {
    check_cuda(cudaMemcpyAsync(address_of(part.lower()), seen(part.lower()), part.upper() - part.lower(),
                               cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync");
  }
  written_.clear();
  present_.clear();
}

bool HostView::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (bytes == 0) return true;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
  return true;
}

void HostView::to_transport(const std::byte* device_address, std::size_t bytes) const {
  copy(device_.twin_of(device_address, bytes), device_address, bytes);
}
void HostView::from_transport(std::byte* device_address, std::size_t bytes) const {
  copy(device_address, device_.twin_of(device_address, bytes), bytes);
}

MarkPtr HostView::mark() const {
  flush();
  return std::make_shared<StreamMark>(stream_);
}

}  // namespace gradmeter::runtime
