// What `gradmeter codecs` is asked for.
#pragma once
#include "bench/codecs/codecs.hpp"
#include "bench/codecs/exchange_error.hpp"
#include "cli/flags.hpp"
#include "runtime/host.hpp"

namespace gradmeter::cli {

options::options_description describe_codecs();
/// Errors: UsageError of one line.
bench::CodecOptions read_codec_options(const Flags&, const runtime::HostFacts&);
/// Of --exchange. `cores`: that the threads which play ranks share.
bench::ExchangeErrorOptions read_exchange_options(const Flags&, const runtime::HostFacts&);

}  // namespace gradmeter::cli
