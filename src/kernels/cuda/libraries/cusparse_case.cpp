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
  static SparseOperands drawn(const SparseShape& s, std::uint64_t seed) {
    return random_sparse_operands(s, Precision::fp32, seed);
  }

 public:
  CusparseCase(const SparseShape& s, const KernelCaseOptions& o)
      : s_(s), first_(drawn(s, o.seed)), queue_(o.device->make_queue()) {
    for (std::size_t i = 0; i < o.sets; ++i) upload(i == 0 ? first_ : drawn(s, o.seed + 3 * i), *o.device);
  }

  void run(std::size_t set) override {
    queue_->submit("kernel", {}, [this, set] {
      Operands& x = sets_[set];
      x.product.multiply(x.b.buffer, x.c.buffer, gpu::stream());
    });
  }
  runtime::Queue* queue() override { return queue_.get(); }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    run(0);
    AlignedVector<float> result(s_.m * s_.n);
    queue_->copy("download", sets_[0].c.buffer, result);
    queue_->synchronise();
    const auto c = [&](std::size_t i) { return static_cast<double>(result[i]); };
    return checked_product(s_, Precision::fp32, first_, c, flops_at_most, inject_error);
  }

  std::string implementation() const override { return sets_[0].product.implementation(); }

 private:
  void upload(const SparseOperands& from, runtime::Device& device) {
    Operands& x = sets_.emplace_back(Operands{CusparseProduct(from.a, s_.n, device),
                                              device.allocate(core::Element::f32, from.b.size()),
                                              device.allocate(core::Element::f32, s_.m * s_.n)});
    queue_->copy("upload", from.b, x.b.buffer);
    queue_->synchronise();
  }

  SparseShape s_;
  SparseOperands first_;  // set 0 as the host has it, for the check
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
