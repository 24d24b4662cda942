// A codec with two sets of loops: those that run, and the plain ones that say what they must do.
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
