// SPDX-License-Identifier: Apache-2.0
// The registry of codecs. A new codec goes into the file of its family under codecs/, and gets a row in registry.cpp.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

using CodecPtr = std::shared_ptr<const Codec>;

/// How gradients with this encoding are exchanged.
enum class Exchange : std::uint8_t {
  /// by any schedule in which each block's sum is completed by a single rank; by the algorithm `direct` unless the user
  /// names another one
  schedule,
  gather,     ///< by an all-gather: every rank gets every encoded tensor and adds them up in rank order
  shared_sum  ///< by any all-reduce, also a vendor's, because encodings can be added up without decoding them
};

/// One row of the table. `parameters`: what may follow the colon in a name, with the defaults ("bucket=512,norm=max").
/// Every codec has two more: ef=on|off (error feedback), whose default is `feedback`, and min=N: tensors of fewer
/// elements are sent without the codec. `wire_text`: a formula of the bits an element takes on the wire. `rule`: how
/// elements are encoded, in words. `default_exchange`: how gradients are exchanged unless the parameter `exchange` says
/// otherwise (CodecChoice::exchange takes both into account). `make` gets a name with every parameter written out, and
/// refuses values that are not allowed. If a codec consists of collectives (allreduce/coded), or keeps state between
/// calls (`dgc`), `make` is null and `check` refuses values.
struct CodecInfo {
  std::string_view name = {}, parameters = {}, wire_text = {}, rule = {}, source = {};
  Exchange default_exchange = Exchange::schedule;
  bool feedback = false;
  /// Returns true if the squared error of random rounding may exceed the gradient's squared norm. ef=on is then
  /// refused, since error feedback would add up such losses without end. The elements are assumed to be Gaussian (for
  /// qsgd-elias: equally large). Null: with Gaussian elements the error of this codec stays below that norm. In a large
  /// bucket with one element far above all others, which is not considered here, most codecs may lose more.
  bool (*may_lose_more_than_gradient)(const core::ParsedName&) = nullptr;
  std::unique_ptr<Codec> (*make)(const core::ParsedName&) = nullptr;
  void (*check)(const core::ParsedName&) = nullptr;
};
std::span<const CodecInfo> codecs();

/// A codec as a user named it, checked, with every parameter written out.
struct CodecChoice {
  std::string name;   ///< canonical: equal codecs have equal names
  std::string label;  ///< short: only parameters that are not the defaults
  const CodecInfo* info = nullptr;
  core::ParsedName parsed;
  CodecPtr codec;  ///< null if the row has no `make`
  /// The row's `default_exchange`, unless the parameter `exchange` gives another one.
  Exchange exchange = Exchange::schedule;
  bool feedback = false;
  std::size_t min_elements = 0;
};
using CodecChoicePtr = std::shared_ptr<const CodecChoice>;

/// Finds the codec of a name such as "qsgd4" or "topk:density=0.001,ef=off". Null for "none" and its alias "fp32",
/// which encode nothing.
/// Errors: UsageError that lists the codecs, or the allowed values of the parameter.
CodecChoicePtr find_codec(std::string_view name);
/// Finds the codecs of a list of such names, separated by commas. A codec that is listed twice is returned once. In the
/// result, null stands for "none". In the list, "all" stands for "none" and every row of the table. Errors: UsageError.
std::vector<CodecChoicePtr> find_codecs(std::string_view list);
/// Checks codecs for a sweep and returns them unchanged. Errors: UsageError if a codec has a density warm-up
/// (codecs/dgc.hpp): only training warms up, while a sweep times codecs at their final density.
std::vector<CodecChoicePtr> require_no_warm_up(std::vector<CodecChoicePtr>);
/// The same codec, but with another value of one parameter. Errors: UsageError.
CodecChoicePtr with_parameter(const CodecChoice&, std::string_view parameter, std::string value);

// Functions that read values of parameters. Errors: UsageError with the codec's name and the values that are allowed.

std::size_t whole_number(const core::ParsedName&, std::string_view parameter, std::size_t least, std::size_t most);
double fraction(const core::ParsedName&, std::string_view parameter);  ///< in (0, 1]
/// The index of the value in `allowed`.
std::size_t index_among(const core::ParsedName&, std::string_view parameter, std::span<const std::string_view> allowed);

}  // namespace gradmeter::compression
