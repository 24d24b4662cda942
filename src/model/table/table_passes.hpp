// The two passes over a table's layers at one number of samples.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "model/table/table_calls.hpp"

namespace gradmeter::model {

/// For the queue's device and the calling thread's compute_threads(). Layers and tensor places must outlive it.
/// Errors: those of make_table_calls.
class TablePasses {
 public:
  TablePasses(std::span<const TableLayer>, std::span<const TensorPlace>, const TableSetting&, Queue&,
              std::uint64_t seed);

  bool fits(std::size_t samples, Queue&) const;
  void forward(Queue&, const ConstBuffer& parameters);
  /// turn: which random gradients enter where the layer above gives none. `ready(row)` for each row that has a tensor
  /// of its own, last first, once its gradient's work is submitted.
  void backward(Queue&, Buffers, std::uint64_t turn, const std::function<void(std::size_t row)>& ready);

 private:
  /// Both signs of random numbers; a pass takes one of them, at one of a few distances from its begin.
  struct RandomGradient {
    const kernels::NumberFormat* format;
    std::array<runtime::OwnedBuffer, 2> signs;
  };
  void run(Queue&, const Call&, const ConstBuffer& parameters, const Buffer& gradients);
  Buffer memory_of(const Place&) const;
  Buffer random_part(const Place&) const;
  void embed(Queue&, std::size_t layer, const ConstBuffer& parameters) const;
  void embedding_gradient(Queue&, std::size_t layer, const Buffer& gradients) const;
  void fill_tensors(Queue&, std::size_t layer, const Buffer& gradients, const std::function<void(std::size_t)>& ready);
  TensorPlace tensor(std::size_t row) const { return tensors_[row]; }

  std::span<const TableLayer> layers_;
  std::span<const TensorPlace> tensors_;
  TableSetting setting_;
  int threads_;
  runtime::Device& device_;
  TableCalls calls_;
  runtime::OwnedBuffer scratch_;
  std::array<runtime::OwnedBuffer, 2> flows_;
  std::vector<RandomGradient> random_gradients_;
  RandomGradient computed_by_none_;  ///< fp32: gradients of the tensors that no operation computes
  std::uint64_t turn_ = 0;
};

}  // namespace gradmeter::model
