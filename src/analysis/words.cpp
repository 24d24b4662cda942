// SPDX-License-Identifier: Apache-2.0
#include "analysis/words.hpp"

#include <cstdlib>
#include <map>
#include <string_view>
#include <variant>

#include "core/format.hpp"
#include "core/name.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::ParsedName;

/// By name: its words in sentences.
using Words = std::map<std::string_view, std::string_view>;
const Words& codec_words() {
  static const Words words{
      {"none", "uncompressed gradients"},  {"bf16", "bf16 gradients"},         {"fp16", "fp16 gradients"},
      {"fp8-e4m3", "fp8-e4m3 gradients"},  {"fp8-e5m2", "fp8-e5m2 gradients"}, {"lns4", "4-bit logarithmic gradients"},
      {"natural8", "8-bit powers of two"}, {"onebit", "signs of gradients"},   {"qsgd-elias", "Elias-coded gradients"},
      {"qsgd1", "1-bit gradients"},        {"qsgd2", "2-bit gradients"},       {"qsgd4", "4-bit gradients"},
      {"qsgd8", "8-bit gradients"},        {"terngrad", "ternary gradients"}};
  return words;
}
const Words& strategy_words() {
  static const Words words{{"ad-psgd", "asynchronous gossip"},
                           {"adacomm", "averaging at adaptive intervals"},
                           {"bmuf", "block-momentum averaging"},
                           {"d-psgd", "averaging with neighbours"},
                           {"dc-asgd", "delay-compensated parameter server"},
                           {"diloco", "DiLoCo"},
                           {"easgd", "elastic averaging"},
                           {"es", "evolution strategies"},
                           {"independent", "no exchange"},
                           {"model-averaging", "model averaging"},
                           {"population", "population-based training"},
                           {"ps-async", "asynchronous parameter server"},
                           {"ps-backup", "parameter server with backup workers"},
                           {"ps-softsync", "softsync parameter server"},
                           {"ps-ssp", "stale-synchronous parameter server"},
                           {"ps-sync", "synchronous parameter server"},
                           {"sharded", "sharded optimizer"},
                           {"slowmo", "slow momentum"},
                           {"sync", "synchronous SGD"}};
  return words;
}

/// The words for a name; the name itself if the table lacks it.
std::string words_for(const std::string& name, const Words& table) {
  const auto found = table.find(name);
  return found == table.end() ? name : std::string(found->second);
}

/// "1 %" of "0.01"; the text itself where it is no number.
std::string percent_of(const std::string& share) {
  char* end = nullptr;
  const double value = std::strtod(share.c_str(), &end);
  return end == share.c_str() ? share : fmt::format("{:.3g} %", 100 * value);
}

std::string codec_in_words(const ParsedName& name) {
  const auto parameter = [&](const char* key) {
    const auto at = name.parameters.find(key);
    return at == name.parameters.end() ? std::string() : at->second;
  };
  const std::string density = parameter("density");
  const std::string share = density.empty() ? "" : percent_of(density) + " ";
  if (name.base == "topk") return fmt::format("largest {}of gradients", share);
  if (name.base == "dgc")
    return fmt::format("deep gradient compression{}{}", share.empty() ? "" : " to ",
                       share.empty() ? "" : percent_of(density));
  if (name.base == "randomk") return fmt::format("random {}of gradients", share);
  if (name.base == "powersgd")
    return parameter("rank").empty() ? "low-rank gradients" : fmt::format("rank-{} gradients", parameter("rank"));
  return words_for(name.base, codec_words());
}

std::string without_parameters(Factor f, const ParsedName& name) {
  if (f == Factor::codec) return codec_in_words(name);
  return f == Factor::strategy ? words_for(name.base, strategy_words()) : name.base;
}

/// The parameters in which `name` differs from a value of `beside` with the same words.
std::string telling_parameters(Factor f, const ParsedName& name, std::span<const core::Value> beside) {
  std::map<std::string, std::string> telling;
  for (const auto& value : beside) {
    const auto* text = value.as<std::string>();
    if (!text || text->empty()) continue;
    const ParsedName other = core::parse_name_or_text(*text);
    if (without_parameters(f, other) != without_parameters(f, name)) continue;
    for (const auto& [key, own] : name.parameters) {
      const auto at = other.parameters.find(key);
      if (at == other.parameters.end() || at->second != own) telling[key] = own;
    }
  }
  std::string out;
  for (const auto& [key, value] : telling) out += fmt::format("{}{}={}", out.empty() ? "" : ",", key, value);
  return out.empty() ? "" : fmt::format(" ({})", out);
}

bool has_parameters(Factor f) {
  return f == Factor::codec || f == Factor::strategy || f == Factor::algorithm || f == Factor::update;
}

std::string counted(std::int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string number_in_words(Factor f, std::int64_t n) {
  switch (f) {
    case Factor::ranks:
      return counted(n, "rank");
    case Factor::nodes:
      return counted(n, "node");
    case Factor::ranks_per_node:
      return counted(n, "rank") + " on a node";
    case Factor::threads:
      return counted(n, "thread") + " a rank";
    case Factor::batch_per_rank:
      return fmt::format("batch {}", n);
    case Factor::batch_global:
      return fmt::format("global batch {}", n);
    case Factor::accumulate:
      return counted(n, "micro-batch");
    case Factor::pairs:
      return counted(n, "pair");
    case Factor::repeat:
      return fmt::format("measurement {}", n);
    case Factor::size_bytes:
      return core::to_text(core::Bytes{static_cast<std::size_t>(n)});
    case Factor::bucket_bytes:
      return "buckets of " + core::to_text(core::Bytes{static_cast<std::size_t>(n)});
    default:
      return fmt::format("{} {}", core::name(f), n);
  }
}

std::string text_in_words(Factor f, const std::string& text, std::span<const core::Value> beside) {
  if (has_parameters(f) && !text.empty()) {
    const ParsedName name = core::parse_name_or_text(text);
    return without_parameters(f, name) + telling_parameters(f, name, beside);
  }
  switch (f) {
    case Factor::scaling:
      return text + " scaling";
    case Factor::overlap:
      return text == "none" ? "no overlap" : text + " overlap";
    case Factor::bucket_bytes:
      return "buckets found by timing";
    case Factor::gradients:
      return "gradients in " + text;
    case Factor::accum_dtype:
      return "sums in " + text;
    case Factor::inject:
      return "injected " + text;
    case Factor::tuned_table:
      return "tuned table " + text;
    case Factor::mapping:
    case Factor::placement:
    case Factor::cadence:
    case Factor::reduction:
    case Factor::op:
    case Factor::cache:
    case Factor::buffers:
    case Factor::loss_scale:
    case Factor::search:
    case Factor::mesh:
      return fmt::format("{} {}", core::name(f), text);
    default:
      return text;
  }
}

}  // namespace

std::string in_words(Factor f, const core::Value& value, std::span<const core::Value> beside) {
  if (core::is_null(value)) return "";
  if (const auto* n = value.as<std::int64_t>()) return number_in_words(f, *n);
  if (const auto* truth = value.as<bool>()) {
    if (f == Factor::in_place) return *truth ? "in place" : "out of place";
    return fmt::format("{} {}", core::name(f), *truth);
  }
  if (const auto* text = value.as<std::string>()) return text_in_words(f, *text, beside);
  return core::to_text(value);
}

}  // namespace gradmeter::analysis
