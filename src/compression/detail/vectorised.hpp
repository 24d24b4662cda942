// A codec with two sets of loops: the fast ones, and plain ones that define their results.
#pragma once
#include <utility>

#include "compression/codec.hpp"

namespace gradmeter::compression::detail {

class Vectorised : public Codec {
 public:
  using Codec::Codec;
  /// One element at a time with no vectors: the same bytes and, decoded, the same bits. For tests.
  virtual const Codec& reference() const = 0;
};

}  // namespace gradmeter::compression::detail
