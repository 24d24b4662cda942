// SPDX-License-Identifier: Apache-2.0
// Operations on plain fp32, as models use them: on the host or on a device, packed and unpacked.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/op.hpp"
#include "runtime/device.hpp"

namespace gradmeter::test {

using Floats = std::vector<float>;
using core::Element;
using kernels::Op;
using kernels::Operand;
using kernels::OpOptions;
using kernels::Problem;

/// As is what only its backend reads.
inline bool has_floats(const Operand& o) {
  return !o.format || (!o.packed && *o.format == kernels::number_format(Element::f32));
}

/// ‖found − expected‖ / ‖expected‖.
inline double distance(const Floats& found, const Floats& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const double e = expected[i], f = found[i];
    apart += (f - e) * (f - e), size += e * e;
  }
  return std::sqrt(apart / std::max(size, 1e-30));
}

/// Operations on plain fp32, as models use them.
class OpRunner {
 public:
  explicit OpRunner(runtime::Device& device)
      : device_(device), own_(device.make_queue()), queue_(own_ ? *own_ : host_) {}

  runtime::Queue& queue() { return queue_; }
  runtime::OwnedBuffer upload(const Floats& x, std::size_t offset = 0) {
    auto b = device_.allocate(Element::f32, x.size() + offset);
    b.buffer = b.buffer.part(offset, x.size());
    queue_.run_and_wait([&] { std::ranges::copy(x, b.buffer.values<float>().begin()); });
    return b;
  }
  Floats read(const runtime::ConstBuffer& b) {
    Floats x;
    queue_.run_and_wait([&] { x.assign(b.values<float>().begin(), b.values<float>().end()); });
    return x;
  }
  /// An input's stored form. Offset: elements before it, so that it is less aligned.
  runtime::OwnedBuffer stored(const Op& op, std::size_t input, const Floats& x, std::size_t offset = 0) {
    const Operand& o = op.inputs()[input];
    if (has_floats(o)) return upload(x, offset);
    const std::size_t before = offset * o.format->bytes;
    auto b = device_.allocate(Element::i8, o.stored_bytes + before);
    b.buffer = b.buffer.part(before, o.stored_bytes);
    const auto plain = upload(x);
    op.packing_from_fp32(input)->run(queue_, "pack", {plain.buffer}, {b.buffer});
    queue_.synchronise();
    return b;
  }
  Floats plain(const Op& op, const runtime::OwnedBuffer& stored, std::size_t output = 0) {
    const Operand& o = op.outputs()[output];
    auto floats = device_.allocate(Element::f32, o.format ? o.elements : o.stored_bytes / sizeof(float));
    if (has_floats(o)) {
      queue_.copy("copy", stored.buffer, floats.buffer);
    } else {
      op.unpacking_to_fp32(output)->run(queue_, "unpack", {stored.buffer}, {floats.buffer});
    }
    return read(floats.buffer);
  }
  /// Stored forms to stored forms, which are zero before the first of `calls` but for those whose numbers are given.
  std::vector<runtime::OwnedBuffer> call(Op& op, const std::vector<runtime::OwnedBuffer>& inputs, int calls = 1,
                                         const std::vector<Floats>& before = {}) {
    std::vector<runtime::ConstBuffer> in;
    std::vector<runtime::OwnedBuffer> results;
    std::vector<runtime::Buffer> out;
    for (const auto& x : inputs) in.emplace_back(x.buffer);
    for (std::size_t i = 0; i < op.outputs().size(); ++i) {
      const bool is_given = i < before.size() && !before[i].empty();
      results.push_back(is_given ? upload(before[i]) : device_.allocate(Element::i8, op.outputs()[i].stored_bytes));
      out.push_back(results.back().buffer);
    }
    for (int i = 0; i < calls; ++i) op.run(queue_, "call", in, out);
    queue_.synchronise();
    return results;
  }
  std::vector<runtime::OwnedBuffer> stored(const Op& op, const std::vector<Floats>& inputs, std::size_t offset = 0) {
    std::vector<runtime::OwnedBuffer> all;
    for (std::size_t i = 0; i < inputs.size(); ++i) all.push_back(stored(op, i, inputs[i], offset));
    return all;
  }
  /// Of the first output.
  Floats run(Op& op, const std::vector<Floats>& inputs, int calls = 1, std::size_t offset = 0) {
    return plain(op, call(op, stored(op, inputs, offset), calls)[0]);
  }
  Floats run(const Problem& p, const std::vector<Floats>& inputs, int calls = 1, const OpOptions& o = {}) {
    return run(*kernels::prepare(p, o, device_), inputs, calls);
  }

 private:
  runtime::Device& device_;
  runtime::HostQueue host_;
  std::unique_ptr<runtime::Queue> own_;
  runtime::Queue& queue_;
};

}  // namespace gradmeter::test
