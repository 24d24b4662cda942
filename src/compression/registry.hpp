// The registry of codecs. A new one is a file of its own and one row in registry.cpp.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

using CodecPtr = std::shared_ptr<const Codec>;

/// How gradients with this encoding are exchanged.
enum class Exchange : std::uint8_t {
  schedule,  ///< in the executor, over any schedule in which one rank finishes each block; `direct` where none is named
  gather,    ///< all-gather: every rank gets every encoded tensor and adds them up in rank order
  shared_sum  ///< linear: what is sent is itself summed, by any all-reduce, vendors' too
};

/// One row. `parameters`: what may follow the colon, with its default ("bucket=512,norm=max"); besides, every codec
/// takes ef=on|off (error feedback), whose default is `feedback`'s, and min=N: tensors of fewer elements go dense.
/// `make` is given a name with every parameter written out, and refuses values that it cannot take; null for codecs
/// that consist of collectives (allreduce/compressed), whose values `check` refuses.
struct CodecInfo {
  std::string_view name = {}, parameters = {}, wire_text = {}, rule = {}, source = {};
  Exchange exchange = Exchange::schedule;
  bool feedback = false;
  /// May random rounding lose more than the whole gradient? Error feedback would then grow without end, and ef=on is
  /// refused. Null: never.
  bool (*expands)(const core::ParsedName&) = nullptr;
  std::unique_ptr<Codec> (*make)(const core::ParsedName&) = nullptr;
  void (*check)(const core::ParsedName&) = nullptr;
};
std::span<const CodecInfo> codecs();

/// A codec as a user named it, checked, with every parameter written out.
struct CodecChoice {
  std::string name;   ///< canonical: equal names mean the same
  std::string label;  ///< short: only parameters that are not the defaults
  const CodecInfo* info = nullptr;
  core::ParsedName parsed;
  CodecPtr codec;  ///< null where the row has no `make`
  bool feedback = false;
  std::size_t min_elements = 0;
};
using CodecChoicePtr = std::shared_ptr<const CodecChoice>;

/// "qsgd4", "topk:density=0.001,ef=off". Null for "none" and for its alias "fp32": nothing is encoded.
/// Errors: UsageError that lists the codecs, or the allowed values of the parameter.
CodecChoicePtr find_codec(std::string_view name);
/// The same codec with another value of a parameter that it has. Errors: UsageError.
CodecChoicePtr with_parameter(const CodecChoice&, std::string_view parameter, std::string value);

/// Values of parameters. Errors: UsageError with the codec's name and what is allowed.
std::size_t whole_number(const core::ParsedName&, std::string_view parameter, std::size_t least, std::size_t most);
double fraction(const core::ParsedName&, std::string_view parameter);  ///< in (0, 1]
/// Which of `allowed` the value is.
std::size_t one_of(const core::ParsedName&, std::string_view parameter, std::span<const std::string_view> allowed);

}  // namespace gradmeter::compression
