// The calls of operations that a table's layers make, at one number of samples: which operation, on which memory.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"
#include "model/model.hpp"
#include "model/table/table_layers.hpp"

namespace gradmeter::model {

/// What an operand of a call is.
struct Place {
  enum class Kind : std::uint8_t {
    own,              ///< memory of this layer, or of the edge between it and its neighbour
    scratch,          ///< for the time of one call
    flow,             ///< the gradient that goes down from layer to layer
    random_gradient,  ///< the gradient that enters where the layer above does not give one
    tensor            ///< part of the flat buffers: a parameter, or its gradient
  };
  Kind kind = Kind::own;
  runtime::Buffer memory = runtime::no_floats;  ///< own
  std::size_t first = 0;                        ///< scratch: bytes; flow: which of two; tensor: elements
  std::size_t bytes = 0;                        ///< of the stored form
  const kernels::NumberFormat* format = nullptr;
  // Of a tensor:
  std::size_t count = 0;              ///< elements in the flat buffers
  kernels::Op* conversion = nullptr;  ///< to its stored form at scratch `stored_at`, or from it; null: they are one
  std::size_t stored_at = 0;          ///< bytes
  bool is_added_to = false;           ///< the operation adds: it is zeroed before
};

struct Call {
  kernels::Op* op = nullptr;
  std::string_view label, conversion_label;
  std::vector<Place> inputs, outputs;
};

struct LayerCalls {
  std::vector<Call> forward;
  std::vector<Call> weight_gradients, input_gradients;  ///< those of weights first, so that their exchange can begin
  Place output = {}, output_gradient = {};              ///< of an embedding, fp32
};

/// Where a row's tensor is in the flat buffers; count 0: it has none.
struct TensorPlace {
  std::size_t first = 0, count = 0;
};

struct TableSetting {
  std::size_t samples = 1;
  kernels::Precision precision = kernels::Precision::fp32;
};

/// Owns the operations and the memory that layers keep; scratch, flows and random gradients are the runner's.
/// Equal problems share an operation.
struct TableCalls {
  std::vector<LayerCalls> layers;
  std::size_t scratch_bytes = 0;
  std::array<std::size_t, 2> flow_bytes{};
  struct Random {
    const kernels::NumberFormat* format;
    std::size_t bytes;
  };
  std::vector<Random> random_gradients;  ///< the largest by format
  std::map<std::string, std::unique_ptr<kernels::Op>> operations;
  std::vector<runtime::OwnedBuffer> memory;
};

/// For the queue's device and the calling thread's compute_threads(). tensors: by row. seed: of random inputs.
/// Errors: UsageError or BackendError when no backend takes an operation; std::bad_alloc.
TableCalls make_table_calls(std::span<const TableLayer>, std::span<const TensorPlace> tensors, const TableSetting&,
                            runtime::Queue&, std::uint64_t seed);

/// kernels::fill_repeating, within work of the buffer's device.
void fill_random(const runtime::Buffer&, const kernels::NumberFormat&, std::uint64_t seed, double scale = 1);

}  // namespace gradmeter::model
