#include "kernels/cuda/libraries/cusparse_case.hpp"

#include <vector>

#include "kernels/cases/makers.hpp"
#include "kernels/cases/sparse_case.hpp"
#include "kernels/cuda/libraries/cusparse.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::kernels::cuda {
namespace {

class CusparseCase final : public KernelCase {
  struct Operands {
    CusparseProduct product;
    runtime::OwnedBuffer b, c;
  };

 public:
  CusparseCase(const SparseShape& s, const KernelCaseOptions& o)
      : s_(s), seed_(o.seed), queue_(o.device->make_queue()) {
    for (std::size_t i = 0; i < o.sets; ++i) upload(drawn(i), *o.device);
  }

  void run(std::size_t set) override {
    queue_->submit("kernel", {}, [this, set] {
      Operands& x = sets_[set];
      x.product.multiply(x.b.buffer, x.c.buffer, gpu::stream());
    });
  }
  runtime::Queue* queue() override { return queue_.get(); }

  /// Its matrices are made for the library once, so its sets keep their inputs.
  void redraw(std::size_t, std::uint64_t) override {}
  void prepare_check(const CheckedCall& call) override {
    const runtime::Buffer& c = sets_[call.set].c.buffer;
    const std::vector<std::byte> never(c.bytes(), std::byte{0x5a});
    queue_->copy("poison", runtime::ConstBuffer(core::Element::i8, std::span(never)), c);
    queue_->synchronise();
  }
  KernelCaseCheck finish_check(const CheckedCall& call) override {
    AlignedVector<float> result(s_.m * s_.n);
    queue_->copy("download", sets_[call.set].c.buffer, result);
    queue_->synchronise();
    const auto c = [&](std::size_t i) { return static_cast<double>(result[i]); };
    return checked_product(s_, Precision::fp32, drawn(call.set), c, call);
  }

  std::string implementation() const override { return sets_[0].product.implementation(); }

 private:
  SparseOperands drawn(std::size_t set) const { return random_sparse_operands(s_, Precision::fp32, seed_ + 3 * set); }
  void upload(const SparseOperands& from, runtime::Device& device) {
    Operands& x = sets_.emplace_back(Operands{CusparseProduct(from.a, s_.n, device),
                                              device.allocate(core::Element::f32, from.b.size()),
                                              device.allocate(core::Element::f32, s_.m * s_.n)});
    queue_->copy("upload", from.b, x.b.buffer);
    queue_->synchronise();
  }

  SparseShape s_;
  std::uint64_t seed_;
  std::vector<Operands> sets_;
  std::unique_ptr<runtime::Queue> queue_;  // ends first: it waits for calls under way
};

}  // namespace

std::string cusparse_case_refusal(const Problem& p) {
  const std::string why = sparse_case_refusal(p);
  return why.empty() ? cusparse_refusal(std::get<SparseShape>(p.shape)) : why;
}

std::unique_ptr<KernelCase> make_cusparse_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<CusparseCase>(std::get<SparseShape>(p.shape), o);
}

}  // namespace gradmeter::kernels::cuda
