#include "compression/qsgd.hpp"

#include "compression/detail/bucketed_plain.hpp"
#include "compression/detail/qsgd_rule.hpp"

namespace gradmeter::compression {
namespace {

using detail::Rounding;

template <std::size_t bits, Rounding rounding>
std::unique_ptr<Codec> made(const core::ParsedName& name) {
  using Rule = detail::QsgdRule<bits, rounding>;
  return std::make_unique<detail::Bucketed>(
      name.canonical(), detail::Bucketed::Settings{.layout = {.bucket = detail::bucket_of(name), .bits = bits},
                                                   .norm = detail::norm_of(name),
                                                   .fast = detail::plain_loops<Rule>,
                                                   .plain = detail::plain_loops<Rule>});
}

template <std::size_t bits>
std::unique_ptr<Codec> rounded_as_named(const core::ParsedName& name) {
  return detail::rounding_of(name) == Rounding::nearest ? made<bits, Rounding::nearest>(name)
                                                        : made<bits, Rounding::stochastic>(name);
}

}  // namespace

std::unique_ptr<Codec> make_qsgd8(const core::ParsedName& name) { return rounded_as_named<8>(name); }
std::unique_ptr<Codec> make_qsgd4(const core::ParsedName& name) { return rounded_as_named<4>(name); }
std::unique_ptr<Codec> make_qsgd2(const core::ParsedName& name) { return rounded_as_named<2>(name); }

}  // namespace gradmeter::compression
