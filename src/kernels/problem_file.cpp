#include "kernels/problem_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::kernels {
namespace {

/// A value and the column of the file where it begins, from 1.
struct Cell1 {
  std::string text;
  std::size_t column = 1;
};

/// What is wrong with one row; caught by the reader of the file.
struct Fault {
  std::size_t column;
  std::string what;
};

std::vector<Cell1> cells_of(std::string_view line) {
  std::vector<Cell1> out;
  for (std::size_t at = 0;;) {
    Cell1 cell{.text = {}, .column = at + 1};
    if (at < line.size() && line[at] == '"') {
      const std::size_t end = line.find('"', at + 1);
      if (end == std::string_view::npos) throw Fault{at + 1, "a quote that does not end"};
      cell.text = line.substr(at + 1, end - at - 1);
      at = end + 1;
      if (at < line.size() && line[at] != ',') throw Fault{at + 1, "text behind a quoted value"};
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      cell.text = line.substr(at, end - at);
      at = end;
    }
    out.push_back(std::move(cell));
    if (at >= line.size()) return out;
    ++at;
  }
}

/// One row, asked by the names of its columns.
class Row {
 public:
  Row(const std::vector<std::string>& names, const std::vector<Cell1>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i >= names.size()) throw Fault{cells[i].column, fmt::format("more than {} values", names.size())};
      cells_[names[i]] = cells[i];
    }
    if (cells.size() < names.size()) {
      throw Fault{cells.back().column + cells.back().text.size(),
                  fmt::format("{} values, not {}: '{}' is missing", cells.size(), names.size(), names[cells.size()])};
    }
  }

  std::size_t count(const char* name, std::size_t least, std::optional<std::size_t> fallback = {}) const {
    const Cell1* c = find(name);
    if (!c && fallback) return *fallback;
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(c->text.data(), c->text.data() + c->text.size(), value);
    constexpr std::size_t most = std::size_t{1} << 40;
    if (error != std::errc{} || end != c->text.data() + c->text.size() || value < least || value > most) {
      throw Fault{c->column, fmt::format("'{}' is no whole number of at least {} for {}", c->text, least, name)};
    }
    return value;
  }
  double share(const char* name) const {
    const Cell1& c = *find(name);
    double value = 0;
    const auto [end, error] = std::from_chars(c.text.data(), c.text.data() + c.text.size(), value);
    if (error != std::errc{} || end != c.text.data() + c.text.size() || !(value >= 0 && value < 1)) {
      throw Fault{c.column, fmt::format("'{}' is no number from 0 to below 1 for {}", c.text, name)};
    }
    return value;
  }
  /// Which of `names` the value is; 0 where the column is not there.
  std::size_t choice(const char* name, const std::vector<std::string_view>& names) const {
    const Cell1* c = find(name);
    if (!c) return 0;
    const auto it = std::ranges::find(names, c->text);
    if (it == names.end()) throw Fault{c->column, fmt::format("'{}' is none of {}", c->text, fmt::join(names, ", "))};
    return static_cast<std::size_t>(it - names.begin());
  }
  std::string text(const char* name) const { return find(name) ? find(name)->text : ""; }
  std::size_t column(const char* name) const { return find(name) ? find(name)->column : 1; }

 private:
  const Cell1* find(const char* name) const {
    const auto it = cells_.find(name);
    return it == cells_.end() ? nullptr : &it->second;
  }
  std::map<std::string, Cell1> cells_;
};

Transpose transpose_of(const Row& r, const char* name) {
  return r.choice(name, {"N", "T"}) == 1 ? Transpose::yes : Transpose::no;
}

Shape gemm_of(const Row& r) {
  return GemmShape{r.count("m", 1), r.count("n", 1), r.count("k", 1), transpose_of(r, "trans_a"),
                   transpose_of(r, "trans_b")};
}
Shape sparse_of(const Row& r) {
  return SparseShape{r.count("m", 1), r.count("n", 1), r.count("k", 1), r.share("sparsity"),
                     static_cast<SparseFormat>(r.choice("format", {"csr", "blocked"}))};
}
Shape conv_of(const Row& r) {
  const ConvShape s{.width = r.count("w", 1),
                    .height = r.count("h", 1),
                    .channels = r.count("c", 1),
                    .batch = r.count("n", 1),
                    .filters = r.count("k", 1),
                    .filter_width = r.count("filter_w", 1),
                    .filter_height = r.count("filter_h", 1),
                    .pad_width = r.count("pad_w", 0, 0),
                    .pad_height = r.count("pad_h", 0, 0),
                    .stride_width = r.count("stride_w", 1, 1),
                    .stride_height = r.count("stride_h", 1, 1)};
  if (s.filter_width > s.width + 2 * s.pad_width)
    throw Fault{r.column("filter_w"), "the filter is wider than the image"};
  if (s.filter_height > s.height + 2 * s.pad_height) {
    throw Fault{r.column("filter_h"), "the filter is higher than the image"};
  }
  return s;
}
Shape rnn_of(const Row& r) {
  return RnnShape{static_cast<Cell>(r.choice("cell", {"vanilla", "lstm", "gru"})), r.count("hidden", 1),
                  r.count("batch", 1), r.count("timesteps", 1)};
}
Shape pointwise_of(const Row& r) {
  return PointwiseShape{static_cast<PointwiseKind>(r.choice("kind", {"sgd", "momentum", "adam", "lstm-cell"})),
                        r.count("elements", 1), r.choice("fused", {"yes", "no"}) == 0};
}

/// An operation is the first whose columns are all there.
struct Reader {
  std::vector<const char*> needs;
  Shape (*read)(const Row&);
};
const std::vector<Reader>& readers() {
  static const std::vector<Reader> all{
      {{"w", "h", "c", "n", "k", "filter_w", "filter_h"}, conv_of},
      {{"hidden", "batch", "timesteps", "cell"}, rnn_of},
      {{"m", "n", "k", "sparsity"}, sparse_of},
      {{"m", "n", "k"}, gemm_of},
      {{"kind", "elements"}, pointwise_of},
  };
  return all;
}

Problem problem_of(const Row& r, const Reader& reader) {
  std::vector<std::string_view> types;
  for (const Precision p : precisions()) types.push_back(name(p));
  return {.shape = reader.read(r),
          .pass = static_cast<Pass>(r.choice("pass", {"forward", "backward-data", "backward-weights"})),
          .precision = static_cast<Precision>(r.choice("precision", types)),
          .application = r.text("application")};
}

const Reader& reader_for(const std::vector<std::string>& names, const std::string& file) {
  for (const Reader& r : readers()) {
    if (std::ranges::all_of(r.needs, [&](const char* n) { return std::ranges::count(names, n) > 0; })) return r;
  }
  throw core::UsageError(fmt::format(
      "{}: its first line, '{}', names no operation's columns; gemm has m,n,k, conv w,h,c,n,k,filter_w,filter_h, rnn "
      "hidden,batch,timesteps,cell, sparse m,n,k,sparsity, pointwise kind,elements",
      file, fmt::join(names, ",")));
}

std::string_view without_return(std::string_view line) {
  return !line.empty() && line.back() == '\r' ? line.substr(0, line.size() - 1) : line;
}

constexpr std::array<std::string_view, 3> sets{"training", "server", "device"};

}  // namespace

ProblemList parse_problems(std::string_view text, const std::string& file) {
  ProblemList out;
  std::vector<std::string> names;
  const Reader* reader = nullptr;
  for (std::size_t at = 0, line = 1; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = without_return(text.substr(at, end - at));
    at = end + 1;
    if (row.empty() || row.front() == '#') continue;
    try {
      const auto cells = cells_of(row);
      if (reader) {
        out.problems.push_back({problem_of(Row(names, cells), *reader), line});
        continue;
      }
      for (const auto& c : cells) names.push_back(c.text);
      reader = &reader_for(names, file);
    } catch (const Fault& f) {
      out.faults.push_back(fmt::format("{}:{}:{}: {}", file, line, f.column, f.what));
    }
  }
  if (!reader) throw core::UsageError(fmt::format("{}: holds no problems; its first line must name columns", file));
  return out;
}

ProblemList read_problems(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw core::UsageError(fmt::format("{}: cannot be read; give a CSV file of problems", path));
  return parse_problems(text.str(), path);
}

std::span<const std::string_view> deepbench_sets() { return sets; }

std::vector<Problem> deepbench(Operation op, std::string_view set) {
  const std::string_view base = op == Operation::sparse ? "sparse_gemm" : name(op);
  const std::string wanted =
      set == "training" ? fmt::format("{}_training", base) : fmt::format("{}_inference_{}", base, set);
  std::vector<Problem> out;
  for (const auto& f : embedded_lists()) {
    if (f.name != wanted) continue;
    for (auto& p : parse_problems(f.text, wanted + ".csv").problems) {
      out.push_back(p.problem);
      if (set != "training" || op == Operation::gemm) continue;
      for (const Pass pass : {Pass::backward_data, Pass::backward_weights}) {
        out.push_back(p.problem);
        out.back().pass = pass;
      }
    }
  }
  return out;
}

}  // namespace gradmeter::kernels
