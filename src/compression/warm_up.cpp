#include "compression/warm_up.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression {
namespace {

constexpr std::array<std::string_view, 4> densities{"0.25", "0.0625", "0.015625", "0.00390625"};
constexpr std::uint64_t most_steps = std::uint64_t{1} << 40;

bool is_automatic(const core::ParsedName& name) {
  const auto warm_up = name.parameters.find("warmup");
  return warm_up != name.parameters.end() && warm_up->second == "auto";
}

}  // namespace

std::uint64_t warm_up_steps(const core::ParsedName& name) {
  if (!name.parameters.contains("warmup") || is_automatic(name)) return 0;
  return whole_number(name, "warmup", 0, most_steps);
}

CodecChoicePtr with_warm_up(const CodecChoicePtr& c, std::uint64_t steps) {
  if (!c || !is_automatic(c->parsed)) return c;
  return with_parameter(*c, "warmup", std::to_string(std::min(steps, most_steps)));
}

std::vector<CodecChoicePtr> warm_up_stages(const CodecChoice& c) {
  const CodecChoicePtr last = with_parameter(c, "warmup", "0");
  std::vector<CodecChoicePtr> out;
  for (const auto density : densities) {
    const auto stage = with_parameter(*last, "density", std::string(density));
    if (fraction(stage->parsed, "density") > fraction(last->parsed, "density")) out.push_back(stage);
  }
  out.push_back(last);
  return out;
}

std::size_t warm_up_stage(std::uint64_t warm_up_steps, std::size_t stages, std::uint64_t step) {
  if (step >= warm_up_steps) return stages - 1;
  return std::min(stages - 1, static_cast<std::size_t>(densities.size() * step / warm_up_steps));
}

std::vector<Phase> warm_up_phases(const CodecChoicePtr& c, std::uint64_t first, std::uint64_t steps) {
  const std::uint64_t warm_up = c ? warm_up_steps(c->parsed) : 0;
  if (warm_up == 0) return {{c, steps}};
  const auto stages = warm_up_stages(*c);
  std::vector<Phase> out;
  for (std::uint64_t at = first; at < first + steps;) {
    const std::size_t stage = warm_up_stage(warm_up, stages.size(), at);
    std::uint64_t end = first + steps;
    if (stage + 1 < stages.size()) {
      const std::uint64_t next = ((stage + 1) * warm_up + densities.size() - 1) / densities.size();
      end = std::min(end, next);
    }
    out.push_back({stages[stage], end - at});
    at = end;
  }
  return out;
}

std::vector<CodecChoicePtr> as_timed(std::vector<CodecChoicePtr> codecs) {
  for (const auto& c : codecs) {
    if (!c || warm_up_steps(c->parsed) == 0) continue;
    throw core::UsageError(fmt::format(
        "codec {}: what is timed is the density that a warm-up ends at; leave out warmup, which is for train",
        c->label));
  }
  return codecs;
}

}  // namespace gradmeter::compression
