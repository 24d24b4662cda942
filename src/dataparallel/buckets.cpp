// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/buckets.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace gradmeter::dataparallel {
namespace {

/// A tensor as a matrix of `rows` x `columns`: a convolution's weight [out, in, height, width] is the matrix [out, in ·
/// height · width]; a vector has 0 rows.
allreduce::TensorPart part_of(const model::Tensor& t, std::size_t bucket_offset) {
  const bool matrix = t.shape.size() > 1 && t.shape.front() > 0;
  return {.offset = t.offset - bucket_offset,
          .count = t.count,
          .rows = matrix ? t.shape.front() : 0,
          .columns = matrix ? t.count / t.shape.front() : 0};
}

}  // namespace

std::vector<Bucket> make_buckets(std::span<const model::Tensor> tensors, std::size_t element_count,
                                 std::size_t bucket_bytes, std::span<const std::size_t> ends) {
  constexpr std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::vector<Bucket> out;
  if (tensors.empty()) return out;
  std::size_t first = 0;
  auto close = [&](std::size_t end) {
    const std::size_t from = tensors[first].offset;
    const std::size_t to =
        end == tensors.size() ? element_count : tensors[end].offset;  // includes the padding behind the bucket
    out.push_back({first, end - first, from, to - from});
    for (std::size_t i = first; i < end; ++i) out.back().parts.push_back(part_of(tensors[i], from));
    first = end;
  };
  for (const std::size_t end : ends) close(end);
  for (std::size_t i = first; i < tensors.size(); ++i) {
    const std::size_t limit = out.empty() ? std::min(first_bucket_bytes, bucket_bytes) : bucket_bytes;
    const std::size_t with_it = (tensors[i].offset + tensors[i].count - tensors[first].offset) * sizeof(float);
    if (bucket_bytes > 0 && i > first && with_it > limit) close(i);
  }
  if (first < tensors.size()) close(tensors.size());
  return out;
}

ExchangeCost fit_cost(std::span<const double> bytes, std::span<const double> seconds) {
  // Least squares for the equations c·call + b·byte = 1, one for each call of n bytes in s seconds, with c = 1/s and b
  // = n/s. The sums of the normal equations: cc of c·c, cb of c·b, bb of b·b, c1 of c, b1 of b.
  double cc = 0, cb = 0, bb = 0, c1 = 0, b1 = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] <= 0 || seconds[i] <= 0) continue;
    const double c = 1 / seconds[i], b = bytes[i] / seconds[i];
    cc += c * c, cb += c * b, bb += b * b, c1 += c, b1 += b;
  }
  if (bb == 0) return {};
  const double determinant = cc * bb - cb * cb;
  if (determinant > 1e-9 * cc * bb) {
    const ExchangeCost both{.seconds_per_call = (c1 * bb - b1 * cb) / determinant,
                            .seconds_per_byte = (b1 * cc - c1 * cb) / determinant};
    if (both.seconds_per_call >= 0 && both.seconds_per_byte >= 0) return both;
    if (both.seconds_per_byte < 0) return {.seconds_per_call = c1 / cc};
  }
  return {.seconds_per_byte = b1 / bb};
}

double exchange_end(std::span<const ReadyTensor> tensors, std::span<const std::size_t> ends, ExchangeCost cost) {
  double ready = 0, end = 0;
  std::size_t next = 0;
  for (const std::size_t bucket_end : ends) {
    double bytes = 0;
    for (; next < bucket_end; ++next) {
      ready = std::max(ready, tensors[next].ready);
      bytes += tensors[next].bytes;
    }
    end = std::max(end, ready) + cost.seconds_per_call + cost.seconds_per_byte * bytes;
  }
  return end;
}

double least_exchange_end(std::span<const ReadyTensor> tensors, double seconds_per_byte) {
  std::vector<std::size_t> one_tensor_each(tensors.size());
  std::iota(one_tensor_each.begin(), one_tensor_each.end(), std::size_t{1});
  return exchange_end(tensors, one_tensor_each, {.seconds_per_byte = seconds_per_byte});
}

std::vector<std::size_t> best_cut(std::span<const ReadyTensor> tensors, ExchangeCost cost, double slack) {
  constexpr std::size_t most_buckets = 128;
  const std::size_t n = tensors.size(), bucket_limit = std::min(n, most_buckets);
  if (n == 0) return {};
  std::vector<double> ready(n + 1, 0.0),
      bytes(n + 1, 0.0);  // by i: when the first i tensors are ready, and their bytes
  for (std::size_t i = 0; i < n; ++i) {
    ready[i + 1] = std::max(ready[i], tensors[i].ready);
    bytes[i + 1] = bytes[i] + tensors[i].bytes;
  }
  // end[k][i]: the earliest time at which the first i tensors can have been sent in k buckets. last_begin[k][i]: the
  // first tensor of the last of these buckets. An earlier end of the first buckets never delays the later ones, so the
  // best cut contains the best cut of its first tensors.
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> end(bucket_limit + 1, std::vector<double>(n + 1, never));
  std::vector<std::vector<std::size_t>> last_begin(bucket_limit + 1, std::vector<std::size_t>(n + 1, 0));
  end[0][0] = 0;
  double earliest = never;
  for (std::size_t k = 1; k <= bucket_limit; ++k) {
    for (std::size_t i = k; i <= n; ++i) {
      for (std::size_t begin = k - 1; begin < i; ++begin) {
        const double finish = std::max(end[k - 1][begin], ready[i]) + cost.seconds_per_call +
                              cost.seconds_per_byte * (bytes[i] - bytes[begin]);
        if (finish < end[k][i]) end[k][i] = finish, last_begin[k][i] = begin;
      }
    }
    earliest = std::min(earliest, end[k][n]);
  }
  std::size_t buckets = 1;
  while (end[buckets][n] > earliest + slack) ++buckets;
  std::vector<std::size_t> ends(buckets);
  for (std::size_t i = n; buckets > 0; i = last_begin[buckets--][i]) ends[buckets - 1] = i;
  return ends;
}

}  // namespace gradmeter::dataparallel
