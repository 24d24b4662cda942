// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/attention/gpu_kernels.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/cuda/device_op.hpp"
#include "kernels/lns/gpu_kernels.hpp"
#include "kernels/loops.hpp"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using gpu::stream;
using runtime::check_cuda;

DeviceSpan<float> floats(const Buffer& b) { return device_values<float>(b); }
DeviceSpan<const float> floats(const ConstBuffer& b) { return device_values<float>(b); }
/// The numbers of a buffer; an empty span if the buffer has been left out.
DeviceSpan<float> if_any(const Buffer& b) { return b.count() > 0 ? floats(b) : DeviceSpan<float>(); }
DeviceSpan<const float> if_any(const ConstBuffer& b) { return b.count() > 0 ? floats(b) : DeviceSpan<const float>(); }
UpdateGate gate_of(const UpdateNumber& number) {
  return {number.value,
          number.counts.count() > 0 ? device_values<LossScaleCounts>(number.counts).device_address() : nullptr};
}

/// True if all buffers are on the device; an empty buffer counts as one on the device.
template <class... Buffers>
bool are_on_gpu(const Buffers&... b) {
  return ((b.on_device() || b.count() == 0) && ...);
}

/// Device memory for one call, allocated and freed in the order of the stream's work.
class Temporary {
 public:
  Temporary(std::size_t bytes, cudaStream_t s) : bytes_(bytes), stream_(s) {
    if (bytes > 0) check_cuda(cudaMallocAsync(&address_, bytes, s), "cudaMallocAsync");
  }
  ~Temporary() {
    if (address_) runtime::note_cuda_error(cudaFreeAsync(address_, stream_), "cudaFreeAsync");
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  template <class T>
  DeviceSpan<T> as() const {
    return DeviceSpan<T>(static_cast<T*>(address_), bytes_ / sizeof(T));
  }

 private:
  void* address_ = nullptr;
  std::size_t bytes_;
  cudaStream_t stream_;
};

/// Pinned memory for losses on their way to the host, used again since it is slow to allocate. Never freed, since
/// streams may end after all else. Any thread may use it.
class PinnedLosses {
 public:
  CrossEntropy* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) add();
    CrossEntropy* const place = free_.back();
    free_.pop_back();
    return place;
  }
  void give_back(CrossEntropy* place) {
    const std::lock_guard lock(mutex_);
    free_.push_back(place);
  }

 private:
  void add() {
    constexpr std::size_t at_once = 256;  // a page or two
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, at_once * sizeof(CrossEntropy), cudaHostAllocPortable), "cudaHostAlloc");
    for (std::size_t i = 0; i < at_once; ++i) free_.push_back(static_cast<CrossEntropy*>(memory) + i);
  }

  std::mutex mutex_;
  std::vector<CrossEntropy*> free_;
};
PinnedLosses& pinned_losses() {
  static auto& losses = *new PinnedLosses;
  return losses;
}

/// Copies the loss to the host, where `take` gets it on the thread that next waits for the queue.
void send_loss(const Temporary& total, const Loops::TakeLoss& take) {
  const std::shared_ptr<CrossEntropy> pinned(pinned_losses().take(),
                                             [](CrossEntropy* place) { pinned_losses().give_back(place); });
  check_cuda(cudaMemcpyAsync(pinned.get(), total.as<CrossEntropy>().device_address(), sizeof(CrossEntropy),
                             cudaMemcpyDeviceToHost, stream()),
             "cudaMemcpyAsync");
  gpu::when_done([pinned, take] { take(*pinned); });
}

/// Launches kernels for buffers in the GPU's memory. For buffers elsewhere, and for loops without a kernel, the host's
/// loops run.
class CudaLoops final : public Loops {
 public:
  void clear(Buffer b) const override {
    if (!b.on_device()) return Loops::clear(b);
    check_cuda(cudaMemsetAsync(b.device().device_address(), 0, b.bytes(), stream()), "cudaMemsetAsync");
  }
  void fill(Buffer b, float value) const override {
    if (!are_on_gpu(b)) return Loops::fill(b, value);
    cuda::fill(floats(b), value, stream());
  }
  void scale(Buffer b, float factor) const override {
    if (!are_on_gpu(b)) return Loops::scale(b, factor);
    cuda::scale(floats(b), factor, stream());
  }
  void add(ConstBuffer a, ConstBuffer b, Buffer to) const override {
    if (!are_on_gpu(a, b, to)) return Loops::add(a, b, to);
    cuda::add(floats(a), floats(b), floats(to), stream());
  }
  void add_and_scale(ConstBuffer a, ConstBuffer b, float factor, Buffer to) const override {
    if (!are_on_gpu(a, b, to)) return Loops::add_and_scale(a, b, factor, to);
    cuda::add_and_scale(floats(a), floats(b), factor, floats(to), stream());
  }
  void add_row(ConstBuffer x, ConstBuffer row, bool is_relu, Buffer to) const override {
    if (!are_on_gpu(x, row, to)) return Loops::add_row(x, row, is_relu, to);
    cuda::add_row(floats(x), floats(row), is_relu, floats(to), stream());
  }
  void column_sums(ConstBuffer matrix, Buffer sums) const override {
    if (!are_on_gpu(matrix, sums)) return Loops::column_sums(matrix, sums);
    const std::size_t columns = sums.count(), rows = columns == 0 ? 0 : matrix.count() / columns;
    const Temporary workspace(sizeof(float) * column_sums_workspace(rows, columns), stream());
    cuda::column_sums(floats(matrix), columns, floats(sums), workspace.as<float>(), stream());
  }
  void add_channels_and_relu(ConstBuffer bias, std::size_t pixels, Buffer images) const override {
    if (!are_on_gpu(bias, images)) return Loops::add_channels_and_relu(bias, pixels, images);
    cuda::add_channels_and_relu(floats(bias), pixels, floats(images), stream());
  }
  void channel_sums(ConstBuffer images, std::size_t pixels, Buffer sums) const override {
    if (!are_on_gpu(images, sums)) return Loops::channel_sums(images, pixels, sums);
    const std::size_t channels = sums.count(), samples = channels == 0 ? 0 : images.count() / (channels * pixels);
    const Temporary workspace(sizeof(float) * channel_sums_workspace(samples, channels), stream());
    cuda::channel_sums(floats(images), pixels, floats(sums), workspace.as<float>(), stream());
  }
  void relu_backward(ConstBuffer activation, Buffer gradient) const override {
    if (!are_on_gpu(activation, gradient)) return Loops::relu_backward(activation, gradient);
    cuda::relu_backward(floats(activation), floats(gradient), stream());
  }

  void gelu(ConstBuffer x, Buffer y) const override {
    if (!are_on_gpu(x, y)) return Loops::gelu(x, y);
    cuda::gelu(floats(x), floats(y), stream());
  }
  void gelu_backward(ConstBuffer x, ConstBuffer delta, Buffer to) const override {
    if (!are_on_gpu(x, delta, to)) return Loops::gelu_backward(x, delta, to);
    cuda::gelu_backward(floats(x), floats(delta), floats(to), stream());
  }
  void layer_norm(ConstBuffer x, ConstBuffer gain, ConstBuffer bias, Buffer y) const override {
    if (!are_on_gpu(x, gain, bias, y)) return Loops::layer_norm(x, gain, bias, y);
    cuda::layer_norm(floats(x), floats(gain), floats(bias), floats(y), stream());
  }
  void layer_norm_backward(ConstBuffer x, ConstBuffer gain, ConstBuffer delta, Buffer to) const override {
    if (!are_on_gpu(x, gain, delta, to)) return Loops::layer_norm_backward(x, gain, delta, to);
    cuda::layer_norm_backward(floats(x), floats(gain), floats(delta), floats(to), stream());
  }
  void layer_norm_backward_parameters(ConstBuffer x, ConstBuffer delta, Buffer gain, Buffer bias) const override {
    if (!are_on_gpu(x, delta, gain, bias)) return Loops::layer_norm_backward_parameters(x, delta, gain, bias);
    const Temporary workspace(sizeof(float) * layer_norm_workspace(x.count() / gain.count(), gain.count()), stream());
    cuda::layer_norm_backward_parameters(floats(x), floats(delta), floats(gain), floats(bias), workspace.as<float>(),
                                         stream());
  }
  void causal_softmax(Buffer scores, std::size_t steps, float factor) const override {
    if (!are_on_gpu(scores)) return Loops::causal_softmax(scores, steps, factor);
    cuda::causal_softmax(floats(scores), steps, factor, stream());
  }
  void causal_softmax_backward(ConstBuffer p, Buffer gradient, std::size_t steps, float factor) const override {
    if (!are_on_gpu(p, gradient)) return Loops::causal_softmax_backward(p, gradient, steps, factor);
    cuda::causal_softmax_backward(floats(p), floats(gradient), steps, factor, stream());
  }

  void embed(ConstBuffer words, ConstBuffer table, std::size_t width, Buffer to) const override {
    if (!are_on_gpu(words, table, to)) return Loops::embed(words, table, width, to);
    cuda::embed(floats(words), floats(table), width, floats(to), stream());
  }
  void embed_backward(ConstBuffer words, ConstBuffer delta, std::size_t width, bool clears,
                      Buffer table) const override {
    if (!are_on_gpu(words, delta, table)) return Loops::embed_backward(words, delta, width, clears, table);
    cuda::embed_backward(floats(words), floats(delta), width, clears, floats(table), stream());
  }
  void swap_rows_and_columns(ConstBuffer from, std::size_t rows, std::size_t columns, std::size_t width,
                             Buffer to) const override {
    if (!are_on_gpu(from, to)) return Loops::swap_rows_and_columns(from, rows, columns, width, to);
    cuda::swap_rows_and_columns(floats(from), rows, columns, width, floats(to), stream());
  }
  void reorder_heads(ConstBuffer from, const HeadLayout& s, Buffer to) const override {
    if (!are_on_gpu(from, to)) return Loops::reorder_heads(from, s, to);
    cuda::reorder_heads(floats(from), s, floats(to), stream());
  }

  void sgd(Buffer w, ConstBuffer g, float step, const UpdateNumber& number) const override {
    if (!are_on_gpu(w, g)) return Loops::sgd(w, g, step, number);
    cuda::sgd(floats(w), floats(g), step, gate_of(number), stream());
  }
  void momentum(Buffer w, Buffer v, ConstBuffer g, MomentumParameters p, const UpdateNumber& number) const override {
    if (!are_on_gpu(w, v, g)) return Loops::momentum(w, v, g, p, number);
    cuda::momentum(floats(w), floats(v), floats(g), p, gate_of(number), stream());
  }
  void adam(Buffer w, Buffer m, Buffer v, ConstBuffer g, AdamParameters p, float decay_factor) const override {
    if (!are_on_gpu(w, m, v, g)) return Loops::adam(w, m, v, g, p, decay_factor);
    cuda::adam(floats(w), floats(m), floats(v), floats(g), p, decay_factor, stream());
  }
  void adam_step(Buffer w, Buffer m, Buffer v, ConstBuffer g, AdamParameters p, float decay_factor,
                 const UpdateNumber& number) const override {
    if (!are_on_gpu(w, m, v, g) || number.counts.count() == 0)
      return Loops::adam_step(w, m, v, g, p, decay_factor, number);
    const Temporary rates(sizeof(AdamRates), stream());
    cuda::adam_step(floats(w), floats(m), floats(v), floats(g), p, decay_factor, gate_of(number), rates.as<AdamRates>(),
                    stream());
  }
  void lars_norms(ConstBuffer w, ConstBuffer g, Pieces pieces, Buffer sums) const override {
    if (!are_on_gpu(w, g, sums)) return Loops::lars_norms(w, g, pieces, sums);
    const Temporary workspace(norms_workspace(pieces), stream());
    cuda::lars_norms(floats(w), floats(g), pieces, device_values<NormSquares>(sums), workspace.as<NormSquares>(),
                     stream());
  }
  void lars(Buffer w, Buffer v, ConstBuffer g, Pieces pieces, ConstBuffer sums, LarsParameters p,
            const UpdateNumber& number) const override {
    if (!are_on_gpu(w, v, g, sums)) return Loops::lars(w, v, g, pieces, sums, p, number);
    cuda::lars(floats(w), floats(v), floats(g), pieces, device_values<NormSquares>(sums), p, gate_of(number), stream());
  }
  void lamb_norms(ConstBuffer w, Buffer m, Buffer v, ConstBuffer g, Pieces pieces, Buffer sums, LambParameters p,
                  const UpdateNumber& number) const override {
    if (!are_on_gpu(w, m, v, g, sums)) return Loops::lamb_norms(w, m, v, g, pieces, sums, p, number);
    const Temporary workspace(norms_workspace(pieces), stream());
    cuda::lamb_norms(floats(w), floats(m), floats(v), floats(g), pieces, device_values<NormSquares>(sums),
                     workspace.as<NormSquares>(), p, gate_of(number), stream());
  }
  void lamb(Buffer w, ConstBuffer m, ConstBuffer v, Pieces pieces, ConstBuffer sums, LambParameters p,
            const UpdateNumber& number) const override {
    if (!are_on_gpu(w, m, v, sums)) return Loops::lamb(w, m, v, pieces, sums, p, number);
    cuda::lamb(floats(w), floats(m), floats(v), pieces, device_values<NormSquares>(sums), p, gate_of(number), stream());
  }

  void bf16_nearest(ConstBuffer target, Buffer to, const UpdateNumber& number) const override {
    if (!are_on_gpu(target, to)) return Loops::bf16_nearest(target, to, number);
    cuda::bf16_nearest(floats(target), floats(to), gate_of(number), stream());
  }
  void bf16_kahan(Buffer w, ConstBuffer target, Buffer carry, const UpdateNumber& number) const override {
    if (!are_on_gpu(w, target, carry)) return Loops::bf16_kahan(w, target, carry, number);
    cuda::bf16_kahan(floats(w), floats(target), floats(carry), gate_of(number), stream());
  }
  void bf16_stochastic(Buffer w, ConstBuffer target, std::uint64_t place, const UpdateNumber& number) const override {
    if (!are_on_gpu(w, target)) return Loops::bf16_stochastic(w, target, place, number);
    cuda::bf16_stochastic(floats(w), floats(target), place, gate_of(number), stream());
  }
  void lns_round(unsigned bits, Buffer w) const override {
    if (!are_on_gpu(w)) return Loops::lns_round(bits, w);
    cuda::lns_round(device_lns_tables(bits), floats(w), stream());
  }
  void lns_update(LnsUpdateRule u, Buffer w, ConstBuffer target, Buffer carry,
                  const UpdateNumber& number) const override {
    if (!are_on_gpu(w, target, carry)) return Loops::lns_update(u, w, target, carry, number);
    cuda::lns_update(device_lns_tables(u.fraction_bits), floats(w), floats(target), if_any(carry), gate_of(number),
                     stream());
  }
  void lns_descend(LnsUpdateRule u, Buffer w, ConstBuffer g, float step, Buffer carry,
                   const UpdateNumber& number) const override {
    if (!are_on_gpu(w, g, carry)) return Loops::lns_descend(u, w, g, step, carry, number);
    cuda::lns_descend(device_lns_tables(u.fraction_bits), floats(w), floats(g), step, if_any(carry), gate_of(number),
                      stream());
  }

  void unscale(Buffer gradients, ConstBuffer scale) const override {
    if (!are_on_gpu(gradients, scale)) return Loops::unscale(gradients, scale);
    cuda::unscale(floats(gradients), floats(scale), stream());
  }
  void note_non_finite(ConstBuffer gradients, Buffer counts) const override {
    if (!are_on_gpu(gradients, counts)) return Loops::note_non_finite(gradients, counts);
    cuda::note_non_finite(floats(gradients), device_values<LossScaleCounts>(counts), stream());
  }
  void end_step(Buffer scale, Buffer counts, std::int64_t growth_interval) const override {
    if (!are_on_gpu(scale, counts)) return Loops::end_step(scale, counts, growth_interval);
    cuda::end_step(floats(scale), device_values<LossScaleCounts>(counts), growth_interval, stream());
  }

  void cross_entropy(ConstBuffer logits, ConstBuffer labels, ConstBuffer loss_scale, Buffer gradient,
                     const TakeLoss& take) const override {
    if (!are_on_gpu(logits, labels, loss_scale, gradient) || labels.count() == 0)
      return Loops::cross_entropy(logits, labels, loss_scale, gradient, take);
    const std::size_t rows = labels.count(), classes = logits.count() / rows;
    const Temporary workspace(cross_entropy_workspace(rows), stream()), total(sizeof(CrossEntropy), stream());
    softmax_cross_entropy(floats(logits), device_values<std::int32_t>(labels), classes, if_any(loss_scale),
                          if_any(gradient), total.as<CrossEntropy>(), workspace.as<std::byte>(), stream());
    send_loss(total, take);
  }
  void lns_cross_entropy(unsigned bits, ConstBuffer logits, ConstBuffer labels, ConstBuffer loss_scale, Buffer gradient,
                         const TakeLoss& take) const override {
    if (!are_on_gpu(logits, labels, loss_scale, gradient) || labels.count() == 0)
      return Loops::lns_cross_entropy(bits, logits, labels, loss_scale, gradient, take);
    const std::size_t rows = labels.count(), classes = logits.count() / rows;
    const Temporary workspace(lns_cross_entropy_workspace(rows, classes), stream()),
        total(sizeof(CrossEntropy), stream());
    lns_softmax_cross_entropy(device_lns_tables(bits), floats(logits), device_values<std::int32_t>(labels), classes,
                              if_any(loss_scale), if_any(gradient), total.as<CrossEntropy>(), workspace.as<std::byte>(),
                              stream());
    send_loss(total, take);
  }
};

}  // namespace

void add_cuda_loops() {
  static const CudaLoops cuda_loops;
  add_loops("cuda", cuda_loops);
}

}  // namespace gradmeter::kernels::cuda
