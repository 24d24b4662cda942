// The largest elements of a tensor; the others are kept in the residual.
#pragma once
#include <memory>
#include <vector>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// The k = ceil(density·n) largest |x| as they are, ties to the lowest place; all others decode to 0.
/// Wire:   k ascending places as u32, padded to 16 bytes; above density 1/32 a bitmap of n bits instead; then k fp32,
///         padded. An input that is not finite: the first k places, and k NaN for values, which no finite input has;
///         then the whole tensor decodes to NaN. decode_add leaves elements that were not sent as they are in `addend`.
/// Error:  the energy of what was not sent, at most (1 - k/n)|x|^2.
/// Cost:   four reads of the input to encode (radix select, see detail/largest.hpp); to decode and add in place, the
///         elements that were sent and no others.
/// Errors: UsageError beyond 2^32 elements; BackendError when what is decoded was damaged on its way.
/// Source: Aji & Heafield, EMNLP 2017; Stich et al., NeurIPS 2018.
std::unique_ptr<Codec> make_topk(const core::ParsedName&);

/// A received encoding by `make_topk`, to be read without decoding all of it.
class TopK : public Codec {
 public:
  using Codec::Codec;
  virtual std::size_t kept(std::size_t n) const = 0;  ///< k
  virtual bool sends_bitmap() const = 0;              ///< places as a bitmap, not as indices
  /// Sets to 0 the elements of `values` [n] that were sent; all of them when the input was not finite.
  virtual void clear_sent(std::span<const std::byte> wire, std::span<float> values) const = 0;
};
std::unique_ptr<TopK> make_topk_encoding(const core::ParsedName&);  ///< any name that has a density

}  // namespace gradmeter::compression
