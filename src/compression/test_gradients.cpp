// SPDX-License-Identifier: Apache-2.0
#include "compression/test_gradients.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <system_error>

#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/name.hpp"
#include "core/random.hpp"

namespace gradmeter::compression {
namespace {

using core::Json;
using core::UsageError;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

constexpr std::string_view magic = "GMGRAD1\n";
constexpr std::size_t longest_head = std::size_t{1} << 20;  // a thousand tensors take about 100 KiB
/// More than any memory holds, and few enough that sizes in bytes do not overflow.
constexpr std::size_t most_elements = std::size_t{1} << 40;

std::size_t whole_number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) {
    throw UsageError(fmt::format("its head has no whole number '{}'", key));
  }
  return found->get<std::size_t>();
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) throw UsageError(fmt::format("its head has no text '{}'", key));
  return found->get<std::string>();
}

const Json& list_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) throw UsageError(fmt::format("its head has no list '{}'", key));
  return *found;
}

GradientTensor read_tensor(const Json& json, std::size_t previous_end, std::size_t elements) {
  if (!json.is_object()) throw UsageError("a tensor of its head is not an object");
  GradientTensor t;
  t.name = text_at(json, "name");
  t.offset = whole_number_at(json, "offset");
  t.count = whole_number_at(json, "count");
  std::size_t product = 1;
  for (const Json& extent : list_at(json, "shape")) {
    if (!extent.is_number_unsigned()) throw UsageError("a tensor's shape is not made of whole numbers");
    const auto size = extent.get<std::size_t>();
    if (size > 0 && product > most_elements / size) {  // the product itself could wrap
      throw UsageError("a tensor's shape has more elements than can be");
    }
    product *= size;
    t.shape.push_back(size);
  }
  if (product != t.count) throw UsageError("a tensor's shape and count differ");
  if (t.offset < previous_end) throw UsageError("its tensors do not follow one another");
  if (t.offset > elements || t.count > elements - t.offset) throw UsageError("a tensor lies beyond its values");
  return t;
}

/// Reads everything except the values; returns the number of values.
std::size_t read_head(std::string_view line, RecordedGradient& out) {
  const Json json = core::try_parse_json(line).value_or(nullptr);
  if (!json.is_object()) throw UsageError("its head is not an object of JSON");
  // The members are set one by one, since GCC 12 frees the members of a braced list twice where a later one throws.
  out.model = text_at(json, "model");
  out.step = whole_number_at(json, "step");
  const std::size_t elements = whole_number_at(json, "elements");
  if (elements == 0) throw UsageError("holds no values");
  if (elements > most_elements) throw UsageError("its head has more elements than can be");
  std::size_t end = 0;
  for (const Json& t : list_at(json, "tensors")) {
    const auto& read = out.tensors.emplace_back(read_tensor(t, end, elements));
    end = read.offset + read.count;
  }
  return elements;
}

std::string head_line(const RecordedGradient& head, std::size_t elements) {
  Json json{{"model", head.model}, {"step", head.step}, {"elements", elements}, {"tensors", Json::array()}};
  for (const auto& t : head.tensors) {
    json["tensors"].push_back({{"name", t.name}, {"shape", t.shape}, {"offset", t.offset}, {"count", t.count}});
  }
  return core::json_text(json) + "\n";
}

RecordedGradient parse(std::string_view bytes) {
  if (!bytes.starts_with(magic)) throw UsageError("is not a recorded gradient; write one by train --dump-gradients");
  bytes.remove_prefix(magic.size());
  const std::size_t end = bytes.substr(0, longest_head).find('\n');
  if (end == std::string_view::npos) throw UsageError("breaks off in its head");
  RecordedGradient gradient;
  const std::size_t elements = read_head(bytes.substr(0, end), gradient);
  bytes.remove_prefix(end + 1);
  if (bytes.size() != elements * sizeof(float)) {
    throw UsageError(fmt::format("holds {} bytes of values; its head says {}", bytes.size(), elements * sizeof(float)));
  }
  gradient.values.resize(elements);
  std::memcpy(gradient.values.data(), bytes.data(), bytes.size());
  return gradient;
}

}  // namespace

RecordedGradient parse_gradient(std::string_view bytes, const std::string& label) {
  try {
    return parse(bytes);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", label, e.what()));
  }
}

RecordedGradient read_gradient(const fs::path& path) {
  std::error_code error;
  std::ifstream in(path, std::ios::binary);
  if (!in || fs::is_directory(path, error)) {
    throw UsageError(fmt::format("{}: cannot be read; name a file of train --dump-gradients", path.string()));
  }
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw core::BackendError("file system", "read", fmt::format("'{}' broke off", path.string()));
  return parse_gradient(bytes, path.string());
}

void check_gradient_path(const fs::path& path, bool replace) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw UsageError(fmt::format("{}: is a directory; give a file", path.string()));
  if (!replace && fs::exists(path, error)) {
    throw UsageError(fmt::format("{}: exists; --force replaces it", path.string()));
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) {
    throw UsageError(fmt::format("{}: there is no directory {}; make it first", path.string(), folder.string()));
  }
  if (::access((fs::exists(path, error) ? path : folder).c_str(), W_OK) != 0)
    throw UsageError(fmt::format("{}: cannot be written; choose another place", path.string()));
}

void write_gradient(const fs::path& path, const RecordedGradient& head, std::span<const float> values, bool replace) {
  check_gradient_path(path, replace);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) throw UsageError(fmt::format("{}: cannot be written; choose another place", path.string()));
  out << magic << head_line(head, values.size());
  const auto bytes = std::as_bytes(values);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw core::BackendError("file system", "write", fmt::format("'{}' broke off", path.string()));
}

namespace {

constexpr std::size_t table_size = std::size_t{1} << 16;
constexpr std::uint64_t whole_share = std::uint64_t{1} << 32;
constexpr std::uint64_t table_seed = 0x67726164;  // any; the tables are the same for every seed of a gradient

std::vector<float> gaussian_table() {
  const core::Random random(table_seed, 0);
  std::vector<float> out(table_size);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(random.gaussian(i));
  return out;
}

std::vector<float> laplace_table() {
  const core::Random random(table_seed, 1);
  std::vector<float> out(table_size);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto g = [&](std::size_t k) { return random.gaussian(4 * i + k); };
    out[i] = static_cast<float>(g(0) * g(1) - g(2) * g(3));
  }
  return out;
}

/// Refuses values that are not finite: with one of them no error of a codec has a meaning.
void require_finite(const RecordedGradient& g, std::string_view path) {
  const auto bad = std::ranges::find_if_not(g.values, [](float v) { return std::isfinite(v); });
  if (bad == g.values.end()) return;
  const auto place = static_cast<std::size_t>(bad - g.values.begin());
  const auto tensor = std::ranges::find_if(
      g.tensors, [&](const GradientTensor& t) { return place >= t.offset && place - t.offset < t.count; });
  throw UsageError(
      fmt::format("{}: element {}{} is not finite, so no codec's error can be measured; record the "
                  "gradient of another step (train --dump-step)",
                  path, place, tensor == g.tensors.end() ? "" : fmt::format(" (in {})", tensor->name)));
}

/// The parameter `density`, in (0, 1], written as the shortest text that means it.
double density_of(core::ParsedName& name) {
  for (const auto& [key, value] : name.parameters) {
    if (key != "density")
      core::refuse_unknown("parameter of distribution sparse", key, std::vector<std::string>{"density"});
  }
  name.parameters.try_emplace("density", "0.05");
  try {
    return fraction(name, "density");
  } catch (const core::UsageError&) {
    throw core::UsageError(fmt::format("distribution sparse takes numbers above 0 and up to 1 as density, not '{}'",
                                       name.parameters.at("density")));
  }
}

}  // namespace

GradientSource::GradientSource(std::string_view text) : nonzero_share_(whole_share) {
  constexpr std::string_view file = "file:";
  if (text.starts_with(file)) {
    recorded_ = std::make_shared<RecordedGradient>(read_gradient(std::string(text.substr(file.size()))));
    require_finite(*recorded_, text.substr(file.size()));
    name_ = text;
    return;
  }
  core::ParsedName parsed = core::parse_name(text);
  const bool sparse = parsed.base == "sparse";
  if (!sparse && parsed.base != "gaussian" && parsed.base != "laplace") {
    core::refuse_unknown("distribution", parsed.base,
                         std::vector<std::string>{"file:PATH", "gaussian", "laplace", "sparse"});
  }
  if (!parsed.bare.empty() || (!sparse && !parsed.parameters.empty())) {
    throw core::UsageError(fmt::format("distribution {} takes no '{}'", parsed.base,
                                       text.substr(std::min(text.size(), parsed.base.size() + 1))));
  }
  if (sparse)
    nonzero_share_ = static_cast<std::uint64_t>(std::llround(density_of(parsed) * static_cast<double>(whole_share)));
  table_ = parsed.base == "laplace" ? laplace_table() : gaussian_table();
  name_ = parsed.canonical();
}

void GradientSource::draw(std::uint64_t seed, std::uint64_t stream, std::span<float> out) const {
  if (recorded_) {
    const auto& values = recorded_->values;
    for (std::size_t i = 0; i < out.size();) {
      const std::size_t n = std::min(values.size(), out.size() - i);
      std::copy_n(values.begin(), n, out.begin() + static_cast<std::ptrdiff_t>(i));
      i += n;
    }
    return;
  }
  const core::Random random(seed, stream);
  std::array<std::uint64_t, 512> draws{};
  for (std::size_t first = 0; first < out.size(); first += draws.size()) {
    const auto batch = std::span(draws).first(std::min(draws.size(), out.size() - first));
    random.bits(first, batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const float magnitude = table_[batch[i] & (table_size - 1)];
      const float value = (batch[i] >> 16 & 1) != 0 ? -magnitude : magnitude;
      out[first + i] = batch[i] >> 32 < nonzero_share_ ? value : 0.0f;
    }
  }
}

}  // namespace gradmeter::compression
