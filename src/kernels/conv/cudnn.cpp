// SPDX-License-Identifier: Apache-2.0
// Convolutions on a GPU by cuDNN, forward and backward: fp32 without tf32; bf16 and fp16 with sums in fp32. Images and
// filters have the problem's layout (NCHW, KCRS). Direct algorithms that give the same bits each time are preferred:
// Winograd's and Fourier's transforms lose digits that a check of single elements would miss.
#include <array>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/backends.hpp"
#include "kernels/cuda/cudnn.hpp"
#include "kernels/cuda/device_op.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using CudnnFilter = CudnnOwner<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using CudnnConvolution = CudnnOwner<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

struct ConvDescriptors {
  CudnnTensor input, output;
  CudnnFilter filters;
  CudnnConvolution convolution;

  ConvDescriptors(const ConvShape& s, Precision p) {
    describe_tensor(input, p, s.batch, s.channels, s.height, s.width);
    describe_tensor(output, p, s.batch, s.filters, s.out_height(), s.out_width());
    check_cudnn(cudnnCreateFilterDescriptor(filters.out_address()), "cudnnCreateFilterDescriptor");
    check_cudnn(
        cudnnSetFilter4dDescriptor(filters.get(), cudnn_type(p), CUDNN_TENSOR_NCHW, cudnn_int(s.filters),
                                   cudnn_int(s.channels), cudnn_int(s.filter_height), cudnn_int(s.filter_width)),
        "cudnnSetFilter4dDescriptor");
    check_cudnn(cudnnCreateConvolutionDescriptor(convolution.out_address()), "cudnnCreateConvolutionDescriptor");
    check_cudnn(cudnnSetConvolution2dDescriptor(convolution.get(), cudnn_int(s.pad_height), cudnn_int(s.pad_width),
                                                cudnn_int(s.stride_height), cudnn_int(s.stride_width), 1, 1,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                "cudnnSetConvolution2dDescriptor");
    set_math(cudnn_math(p));
  }
  void set_math(cudnnMathType_t math) const {
    check_cudnn(cudnnSetConvolutionMathType(convolution.get(), math), "cudnnSetConvolutionMathType");
  }

 private:
  static void describe_tensor(CudnnTensor& t, Precision p, std::size_t n, std::size_t c, std::size_t h, std::size_t w) {
    check_cudnn(cudnnCreateTensorDescriptor(t.out_address()), "cudnnCreateTensorDescriptor");
    check_cudnn(cudnnSetTensor4dDescriptor(t.get(), CUDNN_TENSOR_NCHW, cudnn_type(p), cudnn_int(n), cudnn_int(c),
                                           cudnn_int(h), cudnn_int(w)),
                "cudnnSetTensor4dDescriptor");
  }
};

/// The operands' addresses, with the names of their descriptors. A pass reads two of them and writes the third.
struct ConvAddresses {
  std::byte *input, *filters, *output;
};

constexpr float one = 1, zero = 0;  // result = one · convolution + zero · result
constexpr int most_algorithms = 16;

// The library's calls for each pass, and which algorithms of the pass are direct.

struct ForwardPass {
  using Found = cudnnConvolutionFwdAlgoPerf_t;
  static bool is_direct(const Found& f) { return f.algo <= CUDNN_CONVOLUTION_FWD_ALGO_DIRECT; }
  static void estimate(cudnnHandle_t h, const ConvDescriptors& d, int* count, Found* found) {
    check_cudnn(cudnnGetConvolutionForwardAlgorithm_v7(h, d.input.get(), d.filters.get(), d.convolution.get(),
                                                       d.output.get(), most_algorithms, count, found),
                "cudnnGetConvolutionForwardAlgorithm_v7");
  }
  static void search(cudnnHandle_t h, const ConvDescriptors& d, const ConvAddresses& a,
                     const runtime::Buffer& workspace, int* count, Found* found) {
    check_cudnn(cudnnFindConvolutionForwardAlgorithmEx(
                    h, d.input.get(), a.input, d.filters.get(), a.filters, d.convolution.get(), d.output.get(),
                    a.output, most_algorithms, count, found, workspace.device().device_address(), workspace.bytes()),
                "cudnnFindConvolutionForwardAlgorithmEx");
  }
  static void run(cudnnHandle_t h, const ConvDescriptors& d, const ConvAddresses& a, const Found& f,
                  const runtime::Buffer& workspace) {
    check_cudnn(cudnnConvolutionForward(h, &one, d.input.get(), a.input, d.filters.get(), a.filters,
                                        d.convolution.get(), f.algo, workspace.device().device_address(),
                                        workspace.bytes(), &zero, d.output.get(), a.output),
                "cudnnConvolutionForward");
  }
};

struct InputGradientPass {
  using Found = cudnnConvolutionBwdDataAlgoPerf_t;
  static bool is_direct(const Found& f) { return f.algo <= CUDNN_CONVOLUTION_BWD_DATA_ALGO_1; }
  static void estimate(cudnnHandle_t h, const ConvDescriptors& d, int* count, Found* found) {
    check_cudnn(cudnnGetConvolutionBackwardDataAlgorithm_v7(h, d.filters.get(), d.output.get(), d.convolution.get(),
                                                            d.input.get(), most_algorithms, count, found),
                "cudnnGetConvolutionBackwardDataAlgorithm_v7");
  }
  static void search(cudnnHandle_t h, const ConvDescriptors& d, const ConvAddresses& a,
                     const runtime::Buffer& workspace, int* count, Found* found) {
    check_cudnn(cudnnFindConvolutionBackwardDataAlgorithmEx(
                    h, d.filters.get(), a.filters, d.output.get(), a.output, d.convolution.get(), d.input.get(),
                    a.input, most_algorithms, count, found, workspace.device().device_address(), workspace.bytes()),
                "cudnnFindConvolutionBackwardDataAlgorithmEx");
  }
  static void run(cudnnHandle_t h, const ConvDescriptors& d, const ConvAddresses& a, const Found& f,
                  const runtime::Buffer& workspace) {
    check_cudnn(cudnnConvolutionBackwardData(h, &one, d.filters.get(), a.filters, d.output.get(), a.output,
                                             d.convolution.get(), f.algo, workspace.device().device_address(),
                                             workspace.bytes(), &zero, d.input.get(), a.input),
                "cudnnConvolutionBackwardData");
  }
};

struct FiltersGradientPass {
  using Found = cudnnConvolutionBwdFilterAlgoPerf_t;
  static bool is_direct(const Found& f) {
    return f.algo <= CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 || f.algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3;
  }
  static void estimate(cudnnHandle_t h, const ConvDescriptors& d, int* count, Found* found) {
    check_cudnn(cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, d.input.get(), d.output.get(), d.convolution.get(),
                                                              d.filters.get(), most_algorithms, count, found),
                "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
  }
  static void search(cudnnHandle_t h, const ConvDescriptors& d, const ConvAddresses& a,
                     const runtime::Buffer& workspace, int* count, Found* found) {
    check_cudnn(cudnnFindConvolutionBackwardFilterAlgorithmEx(
                    h, d.input.get(), a.input, d.output.get(), a.output, d.convolution.get(), d.filters.get(),
                    a.filters, most_algorithms, count, found, workspace.device().device_address(), workspace.bytes()),
                "cudnnFindConvolutionBackwardFilterAlgorithmEx");
  }
  static void run(cudnnHandle_t h, const ConvDescriptors& d, const ConvAddresses& a, const Found& f,
                  const runtime::Buffer& workspace) {
    check_cudnn(cudnnConvolutionBackwardFilter(h, &one, d.input.get(), a.input, d.output.get(), a.output,
                                               d.convolution.get(), f.algo, workspace.device().device_address(),
                                               workspace.bytes(), &zero, d.filters.get(), a.filters),
                "cudnnConvolutionBackwardFilter");
  }
};

template <class PassCalls>
class CudnnConvOp final : public DeviceOp {
  using Found = typename PassCalls::Found;

 public:
  CudnnConvOp(const Problem& p, const OpOptions& o, const OperandLists& operands, runtime::Device& device)
      : DeviceOp(operands, {.flops = flops(p), .bytes = moved_bytes(operands)}),
        precision_(p.precision),
        descriptors_(std::get<ConvShape>(p.shape), p.precision),
        library_(CudnnLibrary::of_device()),
        chosen_(o.algorithm == AlgorithmSearch::exhaustive ? searched(device) : estimated()),
        workspace_(device.allocate(core::Element::i8, chosen_.memory)) {
    descriptors_.set_math(p.precision == Precision::fp32 ? CUDNN_FMA_MATH : chosen_.mathType);
  }

  std::size_t scratch_bytes() const override { return workspace_.buffer.bytes(); }
  std::string implementation() const override {
    return fmt::format("cudnn algorithm {}{}", static_cast<int>(chosen_.algo),
                       chosen_.determinism == CUDNN_DETERMINISTIC ? "" : ", not repeatable");
  }

 protected:
  void launch(Op::Inputs in, Op::Outputs out, cudaStream_t stream) override {
    const ConvAddresses a = addresses(in, out[0]);
    library_->with_handle(stream,
                          [&](cudnnHandle_t h) { PassCalls::run(h, descriptors_, a, chosen_, workspace_.buffer); });
  }

 private:
  static double moved_bytes(const OperandLists& o) {
    return static_cast<double>(o.inputs[0].stored_bytes + o.inputs[1].stored_bytes + o.outputs[0].stored_bytes);
  }
  /// The library takes no pointer to const; it does not write what it reads.
  static ConvAddresses addresses(Op::Inputs in, const runtime::Buffer& result) {
    auto* const first = const_cast<std::byte*>(address_of(in[0]));
    auto* const second = const_cast<std::byte*>(address_of(in[1]));
    auto* const out = address_of(result);
    if constexpr (std::is_same_v<PassCalls, ForwardPass>) return {.input = first, .filters = second, .output = out};
    if constexpr (std::is_same_v<PassCalls, InputGradientPass>)
      return {.input = out, .filters = second, .output = first};
    return {.input = first, .filters = out, .output = second};
  }

  /// The fastest algorithm that is direct and gives the same bits each time; else the fastest of all.
  Found best(std::span<const Found> all) const {
    constexpr std::size_t most_memory = std::size_t{1} << 30;
    std::optional<Found> any;
    for (const Found& f : all) {
      if (f.status != CUDNN_STATUS_SUCCESS || f.memory > most_memory) continue;
      const bool is_exact = precision_ != Precision::fp32 || f.mathType == CUDNN_FMA_MATH;
      if (is_exact && PassCalls::is_direct(f) && f.determinism == CUDNN_DETERMINISTIC) return f;
      if (!any) any = f;
    }
    if (!any) throw core::BackendError("cuDNN", "choice of an algorithm", "it has none for this convolution");
    return *any;
  }
  Found estimated() const {
    std::array<Found, most_algorithms> found{};
    int count = 0;
    library_->with_handle(nullptr,
                          [&](cudnnHandle_t h) { PassCalls::estimate(h, descriptors_, &count, found.data()); });
    return best(std::span(found).first(static_cast<std::size_t>(count)));
  }
  /// The best algorithm by the library's own measurements, which run on operands made here, all zero.
  Found searched(runtime::Device& device) const {
    constexpr std::size_t workspace_bytes = std::size_t{256} << 20;
    std::vector<runtime::OwnedBuffer> memory;
    std::vector<runtime::ConstBuffer> read;
    for (const Operand& o : inputs())
      read.emplace_back(memory.emplace_back(device.allocate(core::Element::i8, o.stored_bytes)).buffer);
    const auto out = device.allocate(core::Element::i8, outputs()[0].stored_bytes);
    const auto workspace = device.allocate(core::Element::i8, workspace_bytes);
    std::array<Found, most_algorithms> found{};
    int count = 0;
    const runtime::Stream stream;
    library_->with_handle(stream.get(), [&](cudnnHandle_t h) {
      PassCalls::search(h, descriptors_, addresses(read, out.buffer), workspace.buffer, &count, found.data());
    });
    stream.synchronize();
    return best(std::span(found).first(static_cast<std::size_t>(count)));
  }

  Precision precision_;
  ConvDescriptors descriptors_;
  std::shared_ptr<CudnnLibrary> library_;
  Found chosen_;
  runtime::OwnedBuffer workspace_;
};

}  // namespace

std::string cudnn_conv_refusal(const Problem& p) { return conv_shape_refusal(p); }

std::unique_ptr<Op> make_cudnn_conv_op(const Problem& p, const OpOptions& o, runtime::Device& device) {
  static_cast<runtime::CudaDevice&>(device).select();
  const OperandLists operands = conv_operands(std::get<ConvShape>(p.shape), p.pass, cudnn_element(p.precision));
  switch (p.pass) {
    case Pass::forward:
      return std::make_unique<CudnnConvOp<ForwardPass>>(p, o, operands, device);
    case Pass::backward_data:
      return std::make_unique<CudnnConvOp<InputGradientPass>>(p, o, operands, device);
    case Pass::backward_weights:
      break;
  }
  return std::make_unique<CudnnConvOp<FiltersGradientPass>>(p, o, operands, device);
}

}  // namespace gradmeter::kernels::cuda
