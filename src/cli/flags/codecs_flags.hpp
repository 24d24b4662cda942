// The options of `gradmeter codecs`.
#pragma once
#include <optional>

#include "bench/codecs/codecs.hpp"
#include "bench/codecs/exchange_error.hpp"
#include "cli/flags/flags.hpp"
#include "core/units.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::cli {

options::options_description describe_codecs();
/// Errors: UsageError of one line.
bench::CodecOptions read_codec_options(const Flags&, const runtime::HostFacts&);
/// --link. Errors: UsageError of one line.
std::optional<core::BytesPerSecond> read_link(const Flags&);
/// For --exchange. `cores`: shared by the threads that are its ranks.
bench::ExchangeErrorOptions read_exchange_options(const Flags&, const runtime::HostFacts&);

}  // namespace gradmeter::cli
