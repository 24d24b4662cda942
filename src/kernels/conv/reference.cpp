// SPDX-License-Identifier: Apache-2.0
// Elements of a convolution's result, computed by its definition.
#include "kernels/conv/reference.hpp"

#include <algorithm>

namespace gradmeter::kernels {
namespace {

/// A place in a dense tensor of four dimensions.
struct Place {
  std::size_t outer, inner, y, x;
};
Place place(std::size_t index, std::size_t inner, std::size_t height, std::size_t width) {
  const std::size_t x = index % width, row = index / width, y = row % height, plane = row / height;
  return {plane / inner, plane % inner, y, x};
}
std::size_t index(Place p, std::size_t inner, std::size_t height, std::size_t width) {
  return ((p.outer * inner + p.inner) * height + p.y) * width + p.x;
}

/// The steps i, [first, last), for which the place first_at + i·stride, counted from the beginning of the padding, is
/// inside the input.
struct Range {
  std::size_t first, last;
};
Range inside(std::size_t first_at, std::size_t stride, std::size_t steps, std::size_t pad, std::size_t extent) {
  const std::size_t end = pad + extent;
  const std::size_t first = first_at >= pad ? 0 : (pad - first_at + stride - 1) / stride;
  const std::size_t last = first_at >= end ? 0 : std::min(steps, (end - first_at + stride - 1) / stride);
  return {std::min(first, last), last};
}
/// True if there is an output whose tap `tap` reads the place `at`, counted from the beginning of the padding.
bool is_read(std::size_t at, std::size_t tap, std::size_t stride, std::size_t outputs) {
  return at >= tap && (at - tap) % stride == 0 && (at - tap) / stride < outputs;
}

template <class Elements>
ReferenceSum forward_at(const ConvShape& s, const Elements& input, const Elements& filters, std::size_t at) {
  const Place o = place(at, s.filters, s.out_height(), s.out_width());
  const std::size_t y = o.y * s.stride_height, x = o.x * s.stride_width;
  const Range rows = inside(y, 1, s.filter_height, s.pad_height, s.height);
  const Range columns = inside(x, 1, s.filter_width, s.pad_width, s.width);
  ReferenceSum sum;
  if (columns.first == columns.last) return sum;
  for (std::size_t c = 0; c < s.channels; ++c)
    for (std::size_t fy = rows.first; fy < rows.last; ++fy) {
      const std::size_t in =
          index({o.outer, c, y + fy - s.pad_height, x + columns.first - s.pad_width}, s.channels, s.height, s.width);
      const std::size_t taps = index({o.inner, c, fy, columns.first}, s.channels, s.filter_height, s.filter_width);
      for (std::size_t i = 0; i < columns.last - columns.first; ++i) sum.add(input(in + i), filters(taps + i));
    }
  return sum;
}

template <class Elements>
ReferenceSum backward_data_at(const ConvShape& s, const Elements& output, const Elements& filters, std::size_t at) {
  const Place i = place(at, s.channels, s.height, s.width);
  const std::size_t y = i.y + s.pad_height, x = i.x + s.pad_width;
  const std::size_t plane = s.out_height() * s.out_width(), filter_size = s.channels * s.filter_height * s.filter_width;
  ReferenceSum sum;
  for (std::size_t fy = 0; fy < s.filter_height; ++fy) {
    if (!is_read(y, fy, s.stride_height, s.out_height())) continue;
    for (std::size_t fx = 0; fx < s.filter_width; ++fx) {
      if (!is_read(x, fx, s.stride_width, s.out_width())) continue;
      const std::size_t out = index({i.outer, 0, (y - fy) / s.stride_height, (x - fx) / s.stride_width}, s.filters,
                                    s.out_height(), s.out_width());
      const std::size_t tap = index({0, i.inner, fy, fx}, s.channels, s.filter_height, s.filter_width);
      for (std::size_t k = 0; k < s.filters; ++k) sum.add(output(out + k * plane), filters(tap + k * filter_size));
    }
  }
  return sum;
}

template <class Elements>
ReferenceSum backward_weights_at(const ConvShape& s, const Elements& input, const Elements& output, std::size_t at) {
  const Place f = place(at, s.channels, s.filter_height, s.filter_width);
  const std::size_t out_height = s.out_height(), out_width = s.out_width();
  const Range rows = inside(f.y, s.stride_height, out_height, s.pad_height, s.height);
  const Range columns = inside(f.x, s.stride_width, out_width, s.pad_width, s.width);
  ReferenceSum sum;
  if (columns.first == columns.last) return sum;
  for (std::size_t n = 0; n < s.batch; ++n)
    for (std::size_t oy = rows.first; oy < rows.last; ++oy) {
      const std::size_t y = oy * s.stride_height + f.y - s.pad_height;
      const std::size_t x = columns.first * s.stride_width + f.x - s.pad_width;
      const std::size_t in = index({n, f.inner, y, x}, s.channels, s.height, s.width);
      const std::size_t out = index({n, f.outer, oy, columns.first}, s.filters, out_height, out_width);
      for (std::size_t i = 0; i < columns.last - columns.first; ++i)
        sum.add(input(in + i * s.stride_width), output(out + i));
    }
  return sum;
}

template <class Elements>
ReferenceSum result_element(const ConvShape& s, Pass pass, const Elements& left, const Elements& right,
                            std::size_t at) {
  if (pass == Pass::forward) return forward_at(s, left, right, at);
  return pass == Pass::backward_data ? backward_data_at(s, left, right, at) : backward_weights_at(s, left, right, at);
}

/// Gives the elements of `x` in the form that the functions above read.
auto elements_of(std::span<const float> x) {
  return [x](std::size_t i) { return double{x[i]}; };
}

}  // namespace

std::size_t input_elements(const ConvShape& s) { return s.batch * s.channels * s.height * s.width; }
std::size_t filter_elements(const ConvShape& s) { return s.filters * s.channels * s.filter_height * s.filter_width; }
std::size_t output_elements(const ConvShape& s) { return s.batch * s.filters * s.out_height() * s.out_width(); }

ReferenceSum conv_at(const ConvShape& s, Pass pass, std::span<const float> left, std::span<const float> right,
                     std::size_t at) {
  return result_element(s, pass, elements_of(left), elements_of(right), at);
}
ReferenceSum conv_at(const ConvShape& s, Pass pass, const ElementAt& left, const ElementAt& right, std::size_t at) {
  return result_element(s, pass, left, right, at);
}

}  // namespace gradmeter::kernels
