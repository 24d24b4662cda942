// SPDX-License-Identifier: Apache-2.0
#include "compression/registry.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "compression/codecs/block_scaled.hpp"
#include "compression/codecs/casts.hpp"
#include "compression/codecs/dgc.hpp"
#include "compression/codecs/low_rank.hpp"
#include "compression/codecs/onebit.hpp"
#include "compression/codecs/quantized.hpp"
#include "compression/codecs/sparse.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression {
namespace {

bool always(const core::ParsedName&) { return true; }

constexpr std::array table{
    CodecInfo{.name = "bf16",
              .wire_text = "16",
              .rule = "rounded to nearest even; sums in fp32",
              .source = "Kalamkar et al., arXiv:1905.12322",
              .make = make_bf16},
    CodecInfo{.name = "dgc",
              .parameters = "density=0.01,momentum=0.9,clip=0,warmup=auto",
              .wire_text = "64*density (above 1/32: 1 + 32*density)",
              .rule = "as topk, of gradients gathered with their momentum; local clipping; density warm-up in train",
              .source = "Lin et al., ICLR 2018",
              .default_exchange = Exchange::gather,
              .feedback = true,
              .check = check_dgc},
    CodecInfo{.name = "fp16",
              .wire_text = "16",
              .rule = "rounded to nearest even; sums in fp32",
              .source = "IEEE 754-2008; Micikevicius et al., ICLR 2018",
              .make = make_fp16},
    CodecInfo{.name = "fp8-e4m3",
              .parameters = "bucket=512",
              .wire_text = "8 + 32/bucket",
              .rule = "scaled to 448 bucket by bucket, rounded to nearest even",
              .source = "Micikevicius et al., arXiv:2209.05433; OCP 8-bit Floating Point 1.0",
              .make = make_fp8_e4m3},
    CodecInfo{.name = "fp8-e5m2",
              .parameters = "bucket=512",
              .wire_text = "8 + 32/bucket",
              .rule = "scaled to 57344 bucket by bucket, rounded to nearest even",
              .source = "Micikevicius et al., arXiv:2209.05433; OCP 8-bit Floating Point 1.0",
              .make = make_fp8_e5m2},
    CodecInfo{.name = "lns4",
              .parameters = "bucket=512",
              .wire_text = "4 + 32/bucket",
              .rule = "seven powers of two up to the bucket's maximum, rounded at random without bias",
              .source = "Horvath et al., MSML 2022",
              .make = make_lns4},
    CodecInfo{.name = "natural8",
              .parameters = "bucket=512",
              .wire_text = "8 + 16/bucket",
              .rule = "powers of two, rounded at random without bias",
              .source = "Horvath et al., MSML 2022",
              .make = make_natural8},
    CodecInfo{
        .name = "onebit",
        .parameters = "bucket=512,means=1",
        .wire_text = "1 + 32*means/bucket",
        .rule =
            "the sign, times the bucket's mean magnitude (means=2: a mean for either sign); feedback keeps gradients, "
            "not steps",
        .source = "Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019",
        .feedback = true,
        .make = make_onebit},
    CodecInfo{.name = "powersgd",
              .parameters = "rank=4",
              .wire_text = "32*rank*(m + n)/(m*n)",
              .rule = "two thin factors of the gradient as a matrix, one power iteration a step; feedback keeps "
                      "gradients, not steps",
              .source = "Vogels et al., NeurIPS 2019",
              .default_exchange = Exchange::shared_sum,
              .feedback = true,
              .check = check_powersgd},
    CodecInfo{.name = "qsgd-elias",
              .parameters = "bucket=512,levels=7",
              .wire_text = "by the data; at most 3 + 2*log2(levels) + 32/bucket",
              .rule = "levels up to the bucket's L2 norm, at random without bias; Elias-gamma coded gaps and levels",
              .source = "Alistarh et al., NeurIPS 2017",
              .default_exchange = Exchange::gather,
              .may_lose_more_than_gradient = qsgd_elias_may_lose_more,
              .make = make_qsgd_elias},
    CodecInfo{.name = "qsgd1",
              .parameters = "bucket=512",
              .wire_text = "1 + 32/bucket",
              .rule = "the bucket's maximum with a random sign, without bias",
              .source = "Suresh et al., ICML 2017",
              .may_lose_more_than_gradient = always,
              .make = make_qsgd1},
    CodecInfo{.name = "qsgd2",
              .parameters = "bucket=512,norm=max,rounding=stochastic",
              .wire_text = "2 + 32/bucket",
              .rule = "1 level of either sign up to the bucket's norm, rounded at random without bias",
              .source = "Alistarh et al., NeurIPS 2017",
              .may_lose_more_than_gradient = qsgd_may_lose_more,
              .make = make_qsgd2},
    CodecInfo{.name = "qsgd4",
              .parameters = "bucket=512,norm=max,rounding=stochastic",
              .wire_text = "4 + 32/bucket",
              .rule = "7 levels of either sign up to the bucket's norm, rounded at random without bias",
              .source = "Alistarh et al., NeurIPS 2017",
              .may_lose_more_than_gradient = qsgd_may_lose_more,
              .make = make_qsgd4},
    CodecInfo{.name = "qsgd8",
              .parameters = "bucket=512,norm=max,rounding=stochastic",
              .wire_text = "8 + 32/bucket",
              .rule = "127 levels of either sign up to the bucket's norm, rounded at random without bias",
              .source = "Alistarh et al., NeurIPS 2017",
              .may_lose_more_than_gradient = qsgd_may_lose_more,
              .make = make_qsgd8},
    CodecInfo{.name = "randomk",
              .parameters = "density=0.01",
              .wire_text = "32*density",
              .rule =
                  "the values of k = ceil(density*n) places that all ranks draw alike, unscaled with error feedback; "
                  "ef=off: times n/k, without bias; feedback keeps gradients, not steps",
              .source = "Stich et al., NeurIPS 2018; Vogels et al., NeurIPS 2019",
              .default_exchange = Exchange::shared_sum,
              .feedback = true,
              .check = check_randomk},
    CodecInfo{.name = "terngrad",
              .parameters = "clip=2.5,exchange=gather",
              .wire_text = "2 + 32/n; exchange=sum: 8",
              .rule = "-1, 0 or +1 of the tensor's maximum, clipped at 2.5 sigma, which biases; at random without bias "
                      "otherwise; "
                      "sigma is the root mean square, not about the mean as in the paper",
              .source = "Wen et al., NeurIPS 2017",
              .default_exchange = Exchange::gather,
              .may_lose_more_than_gradient = always,
              .make = make_terngrad},
    CodecInfo{
        .name = "topk",
        .parameters = "density=0.01",
        .wire_text = "64*density (above 1/32: 1 + 32*density)",
        .rule = "the ceil(density*n) largest magnitudes as they are, the rest 0; feedback keeps gradients, not steps",
        .source = "Aji & Heafield, EMNLP 2017; Stich et al., NeurIPS 2018",
        .default_exchange = Exchange::gather,
        .feedback = true,
        .make = make_topk},
};

/// The default of the parameter `min`, which every codec takes besides its own. CGX leaves tensors of fewer elements
/// alone as well (Markov et al. 2022).
constexpr std::size_t default_min = 1024;

core::ParsedName defaults_of(const CodecInfo& row) {
  core::ParsedName out{.base = std::string(row.name), .bare = {}, .parameters = {}};
  if (!row.parameters.empty()) out = core::parse_name(fmt::format("{}:{}", row.name, row.parameters));
  out.parameters["ef"] = row.feedback ? "on" : "off";
  out.parameters["min"] = fmt::format("{}", default_min);
  return out;
}

core::ParsedName with_defaults(const CodecInfo& row, const core::ParsedName& given) {
  core::ParsedName out = defaults_of(row);
  if (!given.bare.empty()) {
    throw core::UsageError(fmt::format("codec {} takes no '{}'; parameters are key=value", row.name, given.bare));
  }
  std::vector<std::string> known;
  for (const auto& [key, value] : out.parameters) known.push_back(key);
  for (const auto& [key, value] : given.parameters) {
    if (!out.parameters.contains(key)) core::refuse_unknown(fmt::format("parameter of codec {}", row.name), key, known);
    out.parameters[key] = value;
  }
  return out;
}

std::string short_name(const CodecInfo& row, core::ParsedName parsed) {
  const core::ParsedName defaults = defaults_of(row);
  std::erase_if(parsed.parameters, [&](const auto& p) { return defaults.parameters.at(p.first) == p.second; });
  return parsed.canonical();
}

/// The values of the parameter `exchange` are those of `terngrad`, whose `make` has checked them.
Exchange exchange_of(const CodecInfo& row, const core::ParsedName& name) {
  const auto named = name.parameters.find("exchange");
  if (named == name.parameters.end()) return row.default_exchange;
  if (named->second == "sra") return Exchange::schedule;
  return named->second == "sum" ? Exchange::shared_sum : Exchange::gather;
}

CodecChoicePtr make_choice(const CodecInfo& row, const core::ParsedName& given) {
  static constexpr std::array<std::string_view, 2> switches{"off", "on"};
  CodecChoice c;
  c.info = &row;
  c.parsed = with_defaults(row, given);
  c.name = c.parsed.canonical();
  c.label = short_name(row, c.parsed);
  c.feedback = index_among(c.parsed, "ef", switches) == 1;
  c.min_elements = whole_number(c.parsed, "min", 0, std::size_t{1} << 40);
  if (c.feedback && row.may_lose_more_than_gradient && row.may_lose_more_than_gradient(c.parsed)) {
    throw core::UsageError(
        fmt::format("codec {}: ef=on would add up losses larger than the gradient itself, without end; its rounding is "
                    "unbiased and needs no feedback",
                    row.name));
  }
  if (row.check) row.check(c.parsed);
  if (row.make) c.codec = row.make(c.parsed);
  c.exchange = exchange_of(row, c.parsed);
  return std::make_shared<const CodecChoice>(std::move(c));
}

const std::string& text_of(const core::ParsedName& name, std::string_view parameter) {
  return name.parameters.at(std::string(parameter));
}

}  // namespace

std::span<const CodecInfo> codecs() { return table; }

CodecChoicePtr find_codec(std::string_view text) {
  const core::ParsedName parsed = core::parse_name(text);
  std::vector<std::string> names{"none"};
  for (const auto& row : table) {
    if (row.name == parsed.base) return make_choice(row, parsed);
    names.emplace_back(row.name);
  }
  if (parsed.base != "none" && parsed.base != "fp32") core::refuse_unknown("codec", parsed.base, names);
  if (parsed.canonical() != parsed.base)
    throw core::UsageError(fmt::format("codec {} takes no parameters", parsed.base));
  return nullptr;
}

std::vector<CodecChoicePtr> find_codecs(std::string_view list) {
  std::vector<CodecChoicePtr> out;
  const auto add = [&out](std::string_view name) {
    CodecChoicePtr codec = find_codec(name);
    const auto is_same = [&](const auto& c) { return codec ? c && c->name == codec->name : !c; };
    if (std::ranges::none_of(out, is_same)) out.push_back(std::move(codec));
  };
  for (const auto& name : core::split_names(list)) {
    if (name != "all") {
      add(name);
      continue;
    }
    add("none");
    for (const auto& row : table) add(row.name);
  }
  return out;
}

std::vector<CodecChoicePtr> require_no_warm_up(std::vector<CodecChoicePtr> codecs) {
  for (const auto& c : codecs) {
    if (!c || !c->parsed.parameters.contains("warmup") || warm_up_steps(c->parsed) == 0) continue;
    throw core::UsageError(fmt::format(
        "codec {}: what is timed is the density that a warm-up ends at; leave out warmup, which is for train",
        c->label));
  }
  return codecs;
}

CodecChoicePtr with_parameter(const CodecChoice& c, std::string_view parameter, std::string value) {
  core::ParsedName name = c.parsed;
  name.parameters.insert_or_assign(std::string(parameter), std::move(value));
  return find_codec(name.canonical());
}

std::size_t whole_number(const core::ParsedName& name, std::string_view parameter, std::size_t least,
                         std::size_t most) {
  const std::string& text = text_of(name, parameter);
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Only one text of each number is allowed, since names that mean the same must be equal.
  if (error != std::errc{} || fmt::format("{}", value) != text || value < least || value > most) {
    throw core::UsageError(fmt::format("codec {} takes whole numbers from {} to {} as {}, not '{}'", name.base, least,
                                       most, parameter, text));
  }
  return value;
}

double fraction(const core::ParsedName& name, std::string_view parameter) {
  const std::string& text = text_of(name, parameter);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0) || value > 1) {
    throw core::UsageError(
        fmt::format("codec {} takes numbers above 0 and up to 1 as {}, not '{}'", name.base, parameter, text));
  }
  if (fmt::format("{}", value) != text) {
    throw core::UsageError(fmt::format("codec {}: write {}={} in place of '{}': equal names must mean the same",
                                       name.base, parameter, value, text));
  }
  return value;
}

std::size_t index_among(const core::ParsedName& name, std::string_view parameter,
                        std::span<const std::string_view> allowed) {
  const std::string& text = text_of(name, parameter);
  const auto found = std::find(allowed.begin(), allowed.end(), text);
  if (found == allowed.end()) {
    throw core::UsageError(
        fmt::format("codec {} takes {} as {}, not '{}'", name.base, fmt::join(allowed, ", "), parameter, text));
  }
  return static_cast<std::size_t>(found - allowed.begin());
}

}  // namespace gradmeter::compression
