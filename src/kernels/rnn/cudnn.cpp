// SPDX-License-Identifier: Apache-2.0
// Recurrent layers on a GPU by cuDNN: one layer, one direction, vanilla and lstm, forward and backward, in fp32
// (without tf32), bf16 and fp16. Each call first copies the weights into the library's order. All operands have the
// problem's format, except the gradients of weights, recurrent and bias, which are fp32. `kept` is the library's
// reserve space.
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/backends.hpp"
#include "kernels/cuda/cudnn.hpp"
#include "kernels/cuda/device_op.hpp"
#include "kernels/rnn/gpu_kernels.hpp"
#include "kernels/rnn/reference.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using CudnnRnn = CudnnOwner<cudnnRNNDescriptor_t, cudnnDestroyRNNDescriptor>;
using CudnnRnnData = CudnnOwner<cudnnRNNDataDescriptor_t, cudnnDestroyRNNDataDescriptor>;
using CudnnDropout = CudnnOwner<cudnnDropoutDescriptor_t, cudnnDestroyDropoutDescriptor>;

/// Where a gate's matrix or bias lies in the library's weights and in ours.
struct GatePlace {
  std::size_t offset;  ///< from the beginning of the library's weights [bytes]
  GateMatrix matrix;
};

/// The library's descriptors of a layer, of its inputs and outputs (x, y) and its state, and the sizes of its memory.
class RnnDescriptors {
 public:
  RnnDescriptors(const RnnShape& s, Precision p, cudnnForwardMode_t mode, cudnnHandle_t handle)
      : shape_(s), gates_(gates_of(s.cell)) {
    describe_layer(p, handle);
    describe_steps(x, p, s.input_width());
    describe_steps(y, p, s.hidden);
    describe_state(p);
    check_cudnn(cudnnGetRNNTempSpaceSizes(handle, rnn.get(), mode, x.get(), &work_bytes, &reserve_bytes),
                "cudnnGetRNNTempSpaceSizes");
    check_cudnn(cudnnGetRNNWeightSpaceSize(handle, rnn.get(), &weight_bytes), "cudnnGetRNNWeightSpaceSize");
  }

  /// Fills in `places`, gate by gate. `weights` is device memory of weight_bytes, whose address the library wants.
  void find_places(cudnnHandle_t handle, const std::byte* weights) {
    for (std::size_t gate = 0; gate < gates_; ++gate) {
      const auto [input_offset, bias_offset] = offsets_of(handle, weights, gate);
      const auto [state_offset, no_bias] = offsets_of(handle, weights, gates_ + gate);
      places[0].push_back({input_offset, {shape_.input_width(), gates_, shape_.hidden, gate}});
      places[1].push_back({state_offset, {shape_.hidden, gates_, shape_.hidden, gate}});
      places[2].push_back({bias_offset, {1, gates_, shape_.hidden, gate}});
    }
  }

  CudnnRnn rnn;
  CudnnRnnData x, y;
  CudnnTensor state;
  std::size_t work_bytes = 0, reserve_bytes = 0, weight_bytes = 0;
  std::array<std::vector<GatePlace>, 3> places;  ///< the places of the gates in weights, recurrent and bias

 private:
  void describe_layer(Precision p, cudnnHandle_t handle) {
    check_cudnn(cudnnCreateDropoutDescriptor(dropout_.out_address()), "cudnnCreateDropoutDescriptor");
    check_cudnn(cudnnSetDropoutDescriptor(dropout_.get(), handle, 0, nullptr, 0, 0), "cudnnSetDropoutDescriptor");
    check_cudnn(cudnnCreateRNNDescriptor(rnn.out_address()), "cudnnCreateRNNDescriptor");
    const int hidden = cudnn_int(shape_.hidden);
    check_cudnn(cudnnSetRNNDescriptor_v8(
                    rnn.get(), CUDNN_RNN_ALGO_STANDARD, shape_.cell == Cell::lstm ? CUDNN_LSTM : CUDNN_RNN_RELU,
                    CUDNN_RNN_SINGLE_INP_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, cudnn_type(p),
                    CUDNN_DATA_FLOAT, cudnn_math(p), cudnn_int(shape_.input_width()), hidden, hidden, 1, dropout_.get(),
                    CUDNN_RNN_PADDED_IO_DISABLED),
                "cudnnSetRNNDescriptor_v8");
  }
  /// Describes a tensor [steps x batch x width]: sequences of equal length, with the rows of a step one after another.
  void describe_steps(CudnnRnnData& data, Precision p, std::size_t width) const {
    const std::vector<int> lengths(shape_.batch, cudnn_int(shape_.steps));
    check_cudnn(cudnnCreateRNNDataDescriptor(data.out_address()), "cudnnCreateRNNDataDescriptor");
    check_cudnn(cudnnSetRNNDataDescriptor(data.get(), cudnn_type(p), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                          cudnn_int(shape_.steps), cudnn_int(shape_.batch), cudnn_int(width),
                                          lengths.data(), nullptr),
                "cudnnSetRNNDataDescriptor");
  }
  void describe_state(Precision p) {
    const int batch = cudnn_int(shape_.batch), hidden = cudnn_int(shape_.hidden);
    const std::array<int, 3> extents{1, batch, hidden}, strides{cudnn_int(shape_.batch * shape_.hidden), hidden, 1};
    check_cudnn(cudnnCreateTensorDescriptor(state.out_address()), "cudnnCreateTensorDescriptor");
    check_cudnn(cudnnSetTensorNdDescriptor(state.get(), cudnn_type(p), 3, extents.data(), strides.data()),
                "cudnnSetTensorNdDescriptor");
  }
  /// The offsets of the matrix and of the bias of a product [bytes]. Products [0, gates) are with the input, [gates,
  /// 2·gates) with the state; the latter have no bias.
  std::pair<std::size_t, std::size_t> offsets_of(cudnnHandle_t handle, const std::byte* weights,
                                                 std::size_t product) const {
    CudnnTensor matrix, bias;
    check_cudnn(cudnnCreateTensorDescriptor(matrix.out_address()), "cudnnCreateTensorDescriptor");
    check_cudnn(cudnnCreateTensorDescriptor(bias.out_address()), "cudnnCreateTensorDescriptor");
    void *matrix_at = nullptr, *bias_at = nullptr;
    check_cudnn(cudnnGetRNNWeightParams(handle, rnn.get(), 0, weight_bytes, weights, static_cast<std::int32_t>(product),
                                        matrix.get(), &matrix_at, bias.get(), &bias_at),
                "cudnnGetRNNWeightParams");
    const auto offset = [&](const void* at) {
      return at ? static_cast<std::size_t>(static_cast<const std::byte*>(at) - weights) : 0;
    };
    return {offset(matrix_at), offset(bias_at)};
  }

  RnnShape shape_;
  std::size_t gates_;
  CudnnDropout dropout_;
};

RnnDescriptors describe(CudnnLibrary& library, const Problem& p, const OpOptions& o) {
  const bool is_inference = p.pass == Pass::forward && !o.training;
  std::optional<RnnDescriptors> made;
  library.with_handle(nullptr, [&](cudnnHandle_t handle) {
    made.emplace(std::get<RnnShape>(p.shape), p.precision,
                 is_inference ? CUDNN_FWD_MODE_INFERENCE : CUDNN_FWD_MODE_TRAINING, handle);
  });
  return std::move(*made);
}

double moved_bytes(const OperandLists& all) {
  double sum = 0;
  for (const Operand& o : all.inputs) sum += static_cast<double>(o.stored_bytes);
  for (const Operand& o : all.outputs) sum += static_cast<double>(o.stored_bytes) * (o.is_added_to ? 2 : 1);
  return sum;
}

/// The code that both passes share.
class CudnnRnnOp : public DeviceOp {
 public:
  CudnnRnnOp(const Problem& p, RnnDescriptors d, const OperandLists& operands, std::shared_ptr<CudnnLibrary> library,
             runtime::Device& device)
      : DeviceOp(operands, {.flops = run_flops(p), .bytes = moved_bytes(operands)}),
        library_(std::move(library)),
        descriptors_(std::move(d)),
        element_(cudnn_element(p.precision)),
        is_lstm_(std::get<RnnShape>(p.shape).cell == Cell::lstm),
        weights_(device.allocate(core::Element::i8, descriptors_.weight_bytes)),
        work_(device.allocate(core::Element::i8, descriptors_.work_bytes)) {
    library_->with_handle(nullptr, [&](cudnnHandle_t handle) { descriptors_.find_places(handle, address(weights_)); });
  }
  std::size_t scratch_bytes() const override { return descriptors_.weight_bytes + descriptors_.work_bytes; }
  std::string implementation() const override { return "cudnn rnn standard"; }

 protected:
  static std::byte* address(const runtime::OwnedBuffer& b) { return address_of(b.buffer); }
  const std::byte* memory(Inputs in) const { return is_lstm_ ? address_of(in[2]) : nullptr; }
  std::size_t weights_index() const { return is_lstm_ ? 3 : 2; }
  void copy_weights(Inputs in, cudaStream_t stream) const {
    for (std::size_t i = 0; i < descriptors_.places.size(); ++i)
      for (const GatePlace& g : descriptors_.places[i])
        copy_gate_to_library(address_of(in[weights_index() + i]), address(weights_) + g.offset, element_, g.matrix,
                             stream);
  }

  std::shared_ptr<CudnnLibrary> library_;
  RnnDescriptors descriptors_;
  core::Element element_;
  bool is_lstm_;
  runtime::OwnedBuffer weights_, work_;
};

class RnnForwardOp final : public CudnnRnnOp {
 public:
  using CudnnRnnOp::CudnnRnnOp;

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    copy_weights(in, stream);
    const bool training = out.size() > 1;
    library_->with_handle(stream, [&](cudnnHandle_t handle) {
      check_cudnn(cudnnRNNForward(
                      handle, descriptors_.rnn.get(), training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                      nullptr, descriptors_.x.get(), address_of(in[0]), descriptors_.y.get(), address_of(out[0]),
                      descriptors_.state.get(), address_of(in[1]), nullptr, descriptors_.state.get(), memory(in),
                      nullptr, descriptors_.weight_bytes, address(weights_), descriptors_.work_bytes, address(work_),
                      training ? descriptors_.reserve_bytes : 0, training ? address_of(out[1]) : nullptr),
                  "cudnnRNNForward");
    });
  }
};

/// The library also writes to its reserve space in the backward pass, so it gets a copy, since `kept` may be read
/// again.
class RnnBackwardOp final : public CudnnRnnOp {
 public:
  RnnBackwardOp(const Problem& p, RnnDescriptors d, const OperandLists& operands, std::shared_ptr<CudnnLibrary> library,
                runtime::Device& device)
      : CudnnRnnOp(p, std::move(d), operands, std::move(library), device),
        reserve_(device.allocate(core::Element::i8, descriptors_.reserve_bytes)),
        gradients_(device.allocate(core::Element::i8, descriptors_.weight_bytes)) {}
  std::size_t scratch_bytes() const override {
    return CudnnRnnOp::scratch_bytes() + descriptors_.reserve_bytes + descriptors_.weight_bytes;
  }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    copy_weights(in, stream);
    const std::size_t output_index = weights_index() + 3;
    runtime::check_cuda(cudaMemcpyAsync(address(reserve_), address_of(in[output_index + 1]), descriptors_.reserve_bytes,
                                        cudaMemcpyDeviceToDevice, stream),
                        "cudaMemcpyAsync");
    runtime::check_cuda(cudaMemsetAsync(address(gradients_), 0, descriptors_.weight_bytes, stream), "cudaMemsetAsync");
    library_->with_handle(stream, [&](cudnnHandle_t handle) {
      gradients_of_data(handle, in, output_index, out);
      gradients_of_weights(handle, in, address_of(in[output_index]));
    });
    // The gradients are in the order of the inputs, so that of weights has the index weights_index().
    for (std::size_t i = 0; i < descriptors_.places.size(); ++i)
      for (const GatePlace& g : descriptors_.places[i])
        add_gate_gradient(address(gradients_) + g.offset, address_of<float>(out[weights_index() + i]), element_,
                          g.matrix, stream);
  }

 private:
  void gradients_of_data(cudnnHandle_t handle, Inputs in, std::size_t output_index, Outputs out) const {
    check_cudnn(
        cudnnRNNBackwardData_v8(handle, descriptors_.rnn.get(), nullptr, descriptors_.y.get(),
                                address_of(in[output_index]), address_of(in[output_index + 2]), descriptors_.x.get(),
                                address_of(out[0]), descriptors_.state.get(), address_of(in[1]), nullptr,
                                address_of(out[1]), descriptors_.state.get(), memory(in), nullptr,
                                is_lstm_ ? address_of(out[2]) : nullptr, descriptors_.weight_bytes, address(weights_),
                                descriptors_.work_bytes, address(work_), descriptors_.reserve_bytes, address(reserve_)),
        "cudnnRNNBackwardData_v8");
  }
  /// Adds to `gradients_`, which were set to zero: the library has no other mode.
  void gradients_of_weights(cudnnHandle_t handle, Inputs in, const std::byte* output) const {
    check_cudnn(
        cudnnRNNBackwardWeights_v8(handle, descriptors_.rnn.get(), CUDNN_WGRAD_MODE_ADD, nullptr, descriptors_.x.get(),
                                   address_of(in[0]), descriptors_.state.get(), address_of(in[1]), descriptors_.y.get(),
                                   output, descriptors_.weight_bytes, address(gradients_), descriptors_.work_bytes,
                                   address(work_), descriptors_.reserve_bytes, address(reserve_)),
        "cudnnRNNBackwardWeights_v8");
  }

  runtime::OwnedBuffer reserve_, gradients_;
};

}  // namespace

std::string cudnn_rnn_refusal(const Problem& p) {
  if (auto why = rnn_shape_refusal(p); !why.empty()) return why;
  return std::get<RnnShape>(p.shape).cell == Cell::gru
             ? "cuDNN's gru resets the state after its product, gradmeter's before it"
             : "";
}

std::unique_ptr<Op> make_cudnn_rnn_op(const Problem& p, const OpOptions& o, runtime::Device& device) {
  static_cast<runtime::CudaDevice&>(device).select();
  auto library = CudnnLibrary::of_device();
  RnnDescriptors d = describe(*library, p, o);
  const core::Element e = cudnn_element(p.precision);
  const OperandLists operands = rnn_operands(std::get<RnnShape>(p.shape), p.pass, o.training,
                                             {.layer = e, .memory = e, .gradient = e}, d.reserve_bytes);
  if (p.pass == Pass::forward)
    return std::make_unique<RnnForwardOp>(p, std::move(d), operands, std::move(library), device);
  return std::make_unique<RnnBackwardOp>(p, std::move(d), operands, std::move(library), device);
}

}  // namespace gradmeter::kernels::cuda
