#include "kernels/cuda/own/lns_tables.hpp"

#include <map>
#include <mutex>
#include <type_traits>
#include <vector>

#include "kernels/lns/softmax.hpp"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using runtime::DeviceBuffer;

class Tables {
 public:
  explicit Tables(unsigned fraction_bits) {
    const LnsConversionTables& to_host = lns_conversion(fraction_bits);
    const runtime::Stream stream;
    upload(doubled_, lns_tables(fraction_bits).doubled(), stream);
    upload(number_, to_host.number, stream);
    upload(code_, to_host.code, stream);
    upload(begin_, to_host.begin, stream);
    const std::vector<std::uint16_t> exponential = lns_exponentials(fraction_bits);
    upload(exponential_, exponential, stream);
    stream.synchronize();  // so any stream may read them
    view_ = {.doubled = doubled_.span(),
             .conversion = {number_.span().device_address(), code_.span().device_address(),
                            begin_.span().device_address(), fraction_bits},
             .exponential = exponential_.span()};
  }
  const DeviceLnsTables& view() const { return view_; }

 private:
  template <class T>
  static void upload(DeviceBuffer<T>& to, std::span<const std::type_identity_t<T>> from,
                     const runtime::Stream& stream) {
    to = DeviceBuffer<T>(from.size());
    runtime::copy<T>(to.span(), from, stream);
  }

  DeviceBuffer<std::int16_t> doubled_;
  DeviceBuffer<float> number_;
  DeviceBuffer<std::uint16_t> code_, exponential_;
  DeviceBuffer<std::uint32_t> begin_;
  DeviceLnsTables view_;
};

}  // namespace

const DeviceLnsTables& device_lns_tables(unsigned fraction_bits) {
  static std::mutex mutex;
  // Never freed, since streams may end after all else.
  static auto& all = *new std::map<std::pair<int, unsigned>, Tables>;
  int device = 0;
  runtime::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  return all.try_emplace({device, fraction_bits}, fraction_bits).first->second.view();
}

}  // namespace gradmeter::kernels::cuda
