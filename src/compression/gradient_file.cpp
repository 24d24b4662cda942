#include "compression/gradient_file.hpp"

#include <bit>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"

namespace gradmeter::compression {
namespace {

using core::Json;
using core::UsageError;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

constexpr std::string_view magic = "GMGRAD1\n";
constexpr std::size_t longest_head = std::size_t{1} << 20;  // a thousand tensors take about 100 KiB
/// More than any memory holds, and far from where sizes in bytes would wrap.
constexpr std::size_t most_elements = std::size_t{1} << 40;

std::size_t whole(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) {
    throw UsageError(fmt::format("its head has no whole number '{}'", key));
  }
  return found->get<std::size_t>();
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) throw UsageError(fmt::format("its head has no text '{}'", key));
  return found->get<std::string>();
}

const Json& list(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) throw UsageError(fmt::format("its head has no list '{}'", key));
  return *found;
}

GradientTensor read_tensor(const Json& json, std::size_t before, std::size_t elements) {
  if (!json.is_object()) throw UsageError("a tensor of its head is not an object");
  GradientTensor t;
  t.name = text(json, "name");
  t.offset = whole(json, "offset");
  t.count = whole(json, "count");
  std::size_t product = 1;
  for (const Json& extent : list(json, "shape")) {
    if (!extent.is_number_unsigned()) throw UsageError("a tensor's shape is not made of whole numbers");
    const auto size = extent.get<std::size_t>();
    if (size > 0 && product > most_elements / size) {  // the product itself could wrap
      throw UsageError("a tensor's shape has more elements than can be");
    }
    product *= size;
    t.shape.push_back(size);
  }
  if (product != t.count) throw UsageError("a tensor's shape and count differ");
  if (t.offset < before) throw UsageError("its tensors do not follow one another");
  if (t.offset > elements || t.count > elements - t.offset) throw UsageError("a tensor lies beyond its values");
  return t;
}

struct Head {
  RecordedGradient gradient;
  std::size_t elements = 0;
};

Head read_head(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) throw UsageError("its head is not an object of JSON");
  // One by one: GCC 12 frees the members of a braced list twice where a later one throws.
  Head out;
  out.gradient.model = text(json, "model");
  out.gradient.step = whole(json, "step");
  out.elements = whole(json, "elements");
  if (out.elements == 0) throw UsageError("holds no values");
  if (out.elements > most_elements) throw UsageError("its head has more elements than can be");
  std::size_t end = 0;
  for (const Json& t : list(json, "tensors")) {
    const auto& read = out.gradient.tensors.emplace_back(read_tensor(t, end, out.elements));
    end = read.offset + read.count;
  }
  return out;
}

std::string head_line(const RecordedGradient& head, std::size_t elements) {
  Json json{{"model", head.model}, {"step", head.step}, {"elements", elements}, {"tensors", Json::array()}};
  for (const auto& t : head.tensors) {
    json["tensors"].push_back({{"name", t.name}, {"shape", t.shape}, {"offset", t.offset}, {"count", t.count}});
  }
  return json.dump() + "\n";
}

RecordedGradient parse(std::string_view bytes) {
  if (!bytes.starts_with(magic)) throw UsageError("is not a recorded gradient; write one by train --dump-gradients");
  bytes.remove_prefix(magic.size());
  const std::size_t end = bytes.substr(0, longest_head).find('\n');
  if (end == std::string_view::npos) throw UsageError("breaks off in its head");
  Head head = read_head(bytes.substr(0, end));
  bytes.remove_prefix(end + 1);
  if (bytes.size() != head.elements * sizeof(float)) {
    throw UsageError(
        fmt::format("holds {} bytes of values; its head says {}", bytes.size(), head.elements * sizeof(float)));
  }
  head.gradient.values.resize(head.elements);
  std::memcpy(head.gradient.values.data(), bytes.data(), bytes.size());
  return std::move(head.gradient);
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

}  // namespace gradmeter::compression
