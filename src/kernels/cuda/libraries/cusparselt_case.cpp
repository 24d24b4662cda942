#include "kernels/cuda/libraries/cusparselt_case.hpp"

#include <span>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/small_float.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/cases/sparse_case.hpp"
#include "kernels/cuda/libraries/cusparselt.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using core::Element;

/// The numbers of a matrix, or of its transposed one, as they lie in memory.
std::vector<std::byte> stored_numbers(std::span<const float> x, Element element, std::size_t columns,
                                      bool is_transposed) {
  const std::size_t bytes = core::size_of(element), rows = x.size() / columns;
  std::vector<std::byte> out(x.size() * bytes);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      core::store(element, &out[(is_transposed ? j * rows + i : i * columns + j) * bytes], x[i * columns + j]);
  return out;
}

runtime::ConstBuffer buffer_of(const std::vector<std::byte>& x) {
  return runtime::ConstBuffer(Element::i8, std::span(x));
}

class CusparseltCase final : public KernelCase {
  struct Operands {
    runtime::OwnedBuffer a, b, c;
  };

 public:
  CusparseltCase(const Problem& p, const KernelCaseOptions& o)
      : s_(std::get<SparseShape>(p.shape)),
        precision_(p.precision),
        types_(sparselt_types(p.precision)),
        seed_(o.seed),
        product_(s_, precision_, *o.device),
        queue_(o.device->make_queue()) {
    for (std::size_t i = 0; i < o.sets; ++i) add_set(drawn(i), *o.device);
    if (o.search != AlgorithmSearch::exhaustive) return;
    const Operands& x = sets_.front();
    queue_->submit("search", {}, [&] { product_.search(x.a.buffer, x.b.buffer, x.c.buffer, gpu::stream()); });
  }

  void run(std::size_t set) override {
    queue_->submit("kernel", {}, [this, set] {
      const Operands& x = sets_[set];
      product_.multiply(x.a.buffer, x.b.buffer, x.c.buffer, gpu::stream());
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
    std::vector<std::byte> result(sets_[call.set].c.buffer.bytes());
    queue_->copy("download", sets_[call.set].c.buffer, runtime::Buffer(Element::i8, std::span(result)));
    queue_->synchronise();
    const auto c = [&](std::size_t i) { return core::load(types_.result, &result[i * core::size_of(types_.result)]); };
    return checked_product(s_, precision_, drawn(call.set), c, call);
  }

  std::string implementation() const override { return fmt::format("cusparselt {}", product_.algorithm()); }

 private:
  SparseOperands drawn(std::size_t set) const { return random_sparse_operands(s_, precision_, seed_ + 3 * set); }
  void add_set(const SparseOperands& from, runtime::Device& device) {
    const auto b = stored_numbers(from.b, types_.operand, s_.n, types_.is_b_transposed());
    Operands& x =
        sets_.emplace_back(Operands{compressed(from.a, device), device.allocate(Element::i8, b.size()),
                                    device.allocate(Element::i8, s_.m * s_.n * core::size_of(types_.result))});
    queue_->copy("upload", buffer_of(b), x.b.buffer);
    queue_->synchronise();
  }

  runtime::OwnedBuffer compressed(const SparseMatrix& a, runtime::Device& device) {
    const auto numbers = stored_numbers(to_dense(a), types_.operand, s_.k, false);
    const auto dense = device.allocate(Element::i8, numbers.size()), found = device.allocate(Element::i32, 1);
    const auto scratch = device.allocate(Element::i8, product_.compression_scratch_bytes());
    auto result = device.allocate(Element::i8, product_.compressed_bytes());
    queue_->copy("upload", buffer_of(numbers), dense.buffer);
    queue_->submit("compress", {}, [&] {
      product_.check_pruned(dense.buffer, found.buffer, gpu::stream());
      product_.compress(dense.buffer, result.buffer, scratch.buffer, gpu::stream());
    });
    std::vector<std::byte> not_pruned(sizeof(int));
    queue_->copy("download", found.buffer, runtime::Buffer(Element::i8, std::span(not_pruned)));
    queue_->synchronise();
    if (core::load(Element::i32, not_pruned.data()) != 0)
      throw core::BackendError("cuSPARSELt", "cusparseLtSpMMAPruneCheck", "A is not 2:4");
    return result;
  }

  SparseShape s_;
  Precision precision_;
  SparseLtTypes types_;
  std::uint64_t seed_;
  SparseLtProduct product_;
  std::vector<Operands> sets_;
  std::unique_ptr<runtime::Queue> queue_;  // ends first: it waits for calls under way
};

}  // namespace

std::string cusparselt_case_refusal(const Problem& p) {
  const std::string why = sparse_case_refusal(p);
  return why.empty() ? cusparselt_refusal(p) : why;
}

std::size_t cusparselt_case_bytes(const Problem& p) {
  const auto& s = std::get<SparseShape>(p.shape);
  const SparseLtTypes t = sparselt_types(p.precision);
  const std::size_t bytes = core::size_of(t.operand), kept = s.m * s.k / 2;
  return kept * bytes + kept / 4 + s.k * s.n * bytes + s.m * s.n * core::size_of(t.result);
}

std::unique_ptr<KernelCase> make_cusparselt_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<CusparseltCase>(p, o);
}

}  // namespace gradmeter::kernels::cuda
