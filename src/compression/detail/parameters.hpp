// Readers of parameters that the registry's own do not cover.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/name.hpp"

namespace gradmeter::compression::detail {

/// A number in [least, most]; `most` itself only where `closed`. Errors: UsageError that says what is allowed.
double number_between(const core::ParsedName&, std::string_view parameter, double least, double most, bool closed);

/// The share of a tensor that is sent, held as the decimal that was written: 0.07 of 100 elements are 7, though the
/// double next to 0.07 times 100 is more than 7.
class Density {
 public:
  /// The parameter `density`. Errors: UsageError unless in (0, 1].
  explicit Density(const core::ParsedName&);
  /// ceil(density·n), exact, at most n.
  std::size_t of(std::size_t n) const;
  double value() const { return value_; }

 private:
  double value_;
  std::uint64_t digits_ = 0;  ///< density = digits / 10^places
  unsigned places_ = 0;
};

/// Indices are 32 bits wide. Errors: UsageError when n is more than they can name.
void require_indexable(std::string_view codec, std::size_t n);

}  // namespace gradmeter::compression::detail
