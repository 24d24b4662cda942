#include "kernels/conv_reference.hpp"

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

/// Where tap `tap` of the output at `out` looks along one axis, pad included; the input begins at `pad`.
bool inside(std::size_t at, std::size_t pad, std::size_t extent) { return at >= pad && at - pad < extent; }
/// Which output looks at padded place `at` with tap `tap`, if any.
bool seen(std::size_t at, std::size_t tap, std::size_t stride, std::size_t outputs) {
  return at >= tap && (at - tap) % stride == 0 && (at - tap) / stride < outputs;
}

}  // namespace

std::size_t input_elements(const ConvShape& s) { return s.batch * s.channels * s.height * s.width; }
std::size_t filter_elements(const ConvShape& s) { return s.filters * s.channels * s.filter_height * s.filter_width; }
std::size_t output_elements(const ConvShape& s) { return s.batch * s.filters * s.out_height() * s.out_width(); }

ReferenceSum conv_forward_at(const ConvShape& s, std::span<const float> input, std::span<const float> filters,
                             std::size_t at) {
  const Place o = place(at, s.filters, s.out_height(), s.out_width());
  ReferenceSum sum;
  for (std::size_t c = 0; c < s.channels; ++c)
    for (std::size_t fy = 0; fy < s.filter_height; ++fy)
      for (std::size_t fx = 0; fx < s.filter_width; ++fx) {
        const std::size_t y = o.y * s.stride_height + fy, x = o.x * s.stride_width + fx;
        if (!inside(y, s.pad_height, s.height) || !inside(x, s.pad_width, s.width)) continue;
        sum.add(input[index({o.outer, c, y - s.pad_height, x - s.pad_width}, s.channels, s.height, s.width)],
                filters[index({o.inner, c, fy, fx}, s.channels, s.filter_height, s.filter_width)]);
      }
  return sum;
}

ReferenceSum conv_backward_data_at(const ConvShape& s, std::span<const float> output, std::span<const float> filters,
                                   std::size_t at) {
  const Place i = place(at, s.channels, s.height, s.width);
  const std::size_t y = i.y + s.pad_height, x = i.x + s.pad_width;
  ReferenceSum sum;
  for (std::size_t k = 0; k < s.filters; ++k)
    for (std::size_t fy = 0; fy < s.filter_height; ++fy) {
      if (!seen(y, fy, s.stride_height, s.out_height())) continue;
      for (std::size_t fx = 0; fx < s.filter_width; ++fx) {
        if (!seen(x, fx, s.stride_width, s.out_width())) continue;
        sum.add(output[index({i.outer, k, (y - fy) / s.stride_height, (x - fx) / s.stride_width}, s.filters,
                             s.out_height(), s.out_width())],
                filters[index({k, i.inner, fy, fx}, s.channels, s.filter_height, s.filter_width)]);
      }
    }
  return sum;
}

ReferenceSum conv_backward_weights_at(const ConvShape& s, std::span<const float> input, std::span<const float> output,
                                      std::size_t at) {
  const Place f = place(at, s.channels, s.filter_height, s.filter_width);
  ReferenceSum sum;
  for (std::size_t n = 0; n < s.batch; ++n)
    for (std::size_t oy = 0; oy < s.out_height(); ++oy) {
      const std::size_t y = oy * s.stride_height + f.y;
      if (!inside(y, s.pad_height, s.height)) continue;
      for (std::size_t ox = 0; ox < s.out_width(); ++ox) {
        const std::size_t x = ox * s.stride_width + f.x;
        if (!inside(x, s.pad_width, s.width)) continue;
        sum.add(input[index({n, f.inner, y - s.pad_height, x - s.pad_width}, s.channels, s.height, s.width)],
                output[index({n, f.outer, oy, ox}, s.filters, s.out_height(), s.out_width())]);
      }
    }
  return sum;
}

}  // namespace gradmeter::kernels
