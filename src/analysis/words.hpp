// SPDX-License-Identifier: Apache-2.0
// Values of factors in words, for sentences and for the labels of charts.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"

namespace gradmeter::analysis {

/// "4-bit gradients" for codec `qsgd4:bucket=512,…`, "batch 16", "2 ranks", "25 MiB". Models keep the name that
/// `--model` takes. Codecs and strategies have words in place of their parameters; parameters follow in brackets only
/// if another value in `beside` has the same words. Empty for null.
std::string in_words(core::Factor, const core::Value&, std::span<const core::Value> beside = {});

}  // namespace gradmeter::analysis
