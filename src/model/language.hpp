// A language that the program draws: its entropy is known, so a model's loss has a floor to be compared with.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "model/dataset.hpp"

namespace gradmeter::model {

struct LanguageRange {
  std::size_t samples = 0;
  std::uint64_t seed = 1;    ///< of the language and of its sentences
  std::uint64_t offset = 0;  ///< the first sentence's number
};

/// "language" or "language:vocabulary=16,steps=20".
bool is_language(std::string_view source);

/// Sentences of `steps` tokens over `vocabulary` words. The inputs are the first token, which is word 0, and all but
/// the last; the labels are the tokens after the first. After each two words (before the first both are word 0) four
/// words can follow, chosen by the seed, with probabilities 1/2, 1/4, 1/8, 1/8: a label has 1.75 bits (1.2130 nats)
/// given all before it, whatever they are, and nothing less than the last two words tells it. Sentence i is a function
/// of (seed, i) alone, the same on every machine. Cost: 16 bytes and a few draws a token, each time it is read. Errors:
/// UsageError on a parameter that it does not take.
std::shared_ptr<const Dataset> make_language(std::string_view source, const LanguageRange&);

}  // namespace gradmeter::model
