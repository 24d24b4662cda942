// Files as people have them: compressed, of other encodings, with a byte-order mark.
#pragma once
#include <string>
#include <string_view>

namespace gradmeter::importers {

/// UTF-8 without a byte-order mark, of a file that is that, UTF-16, or one of them compressed by gzip.
/// Errors: UsageError for a gzip stream that is cut or damaged.
std::string plain_text(std::string_view bytes);

}  // namespace gradmeter::importers
