// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv/gpu_kernels.hpp"

#include "kernels/cuda/divisor.cuh"
#include "kernels/gemm/product.cuh"

namespace gradmeter::kernels::cuda {
namespace {

/// An index of [outer × height × width] taken apart.
struct Place {
  unsigned outer, y, x;
};
/// The extents of a plane, and divisors that take an index apart into plane, row and column.
struct Planes {
  unsigned height, width;
  Divisor by_plane, by_width;
  Planes(std::size_t h, std::size_t w)
      : height(static_cast<unsigned>(h)), width(static_cast<unsigned>(w)), by_plane(h * w), by_width(w) {}
  __device__ Place place(unsigned i) const {
    const unsigned outer = by_plane(i), rest = i - outer * by_plane.value, y = by_width(rest);
    return {outer, y, rest - y * width};
  }
  __device__ std::size_t elements() const { return by_plane.value; }
};

/// The shape of a convolution as kernels use it. `taps`: the planes of the filters.
struct Geometry {
  Planes input, output, taps;
  unsigned channels, filters, pad_height, pad_width;
  Divisor stride_height, stride_width;
  explicit Geometry(const ConvShape& s)
      : input(s.height, s.width),
        output(s.out_height(), s.out_width()),
        taps(s.filter_height, s.filter_width),
        channels(static_cast<unsigned>(s.channels)),
        filters(static_cast<unsigned>(s.filters)),
        pad_height(static_cast<unsigned>(s.pad_height)),
        pad_width(static_cast<unsigned>(s.pad_width)),
        stride_height(s.stride_height),
        stride_width(s.stride_width) {}
};

/// The input elements that each tap reads for each output pixel: [channels × taps] by [images × output pixels].
template <class T>
struct InputPatches {
  const T* input;
  Geometry g;
  __device__ float at(unsigned tap, unsigned output) const {
    const Place t = g.taps.place(tap), o = g.output.place(output);
    // For places before the first row or column these unsigned numbers wrap around and are huge.
    const unsigned y = o.y * g.stride_height.value + t.y - g.pad_height,
                   x = o.x * g.stride_width.value + t.x - g.pad_width;
    if (y >= g.input.height || x >= g.input.width) return 0;
    return load(input + (std::size_t{o.outer} * g.channels + t.outer) * g.input.elements() + y * g.input.width + x);
  }
};
/// The right factor of a forward product: [channels × taps] by [images × output pixels].
template <class T>
struct PatchesByPlace {
  InputPatches<T> patches;
  unsigned extent;
  __device__ float at(unsigned, unsigned place, unsigned tap) const { return patches.at(tap, place); }
  __device__ bool is_contiguous_in_k() const { return false; }
};
/// The right factor of a product for the filters' gradient: [images × output pixels] by [channels × taps].
template <class T>
struct PatchesByTap {
  InputPatches<T> patches;
  unsigned extent;
  __device__ float at(unsigned, unsigned tap, unsigned place) const { return patches.at(tap, place); }
  __device__ bool is_contiguous_in_k() const { return true; }
};

/// The right factor of a product for the input's gradient: [filters × taps] by [images × input pixels]. The element is
/// the gradient of the output pixel whose tap reads the input pixel; 0 if there is no such output pixel.
template <class T>
struct GradientPatches {
  const T* output;
  Geometry g;
  unsigned extent;
  __device__ float at(unsigned, unsigned place, unsigned tap) const {
    const Place i = g.input.place(place), t = g.taps.place(tap);
    const unsigned down = i.y + g.pad_height - t.y, across = i.x + g.pad_width - t.x;
    const auto beyond = [](unsigned distance, const Divisor& stride, unsigned steps) {
      return distance >
             (steps - 1) * stride.value;  // also true before the first step, where `distance` has wrapped around
    };
    if (beyond(down, g.stride_height, g.output.height) || beyond(across, g.stride_width, g.output.width)) return 0;
    const unsigned y = g.stride_height(down), x = g.stride_width(across);
    if (y * g.stride_height.value != down || x * g.stride_width.value != across) return 0;
    return load(output + (std::size_t{i.outer} * g.filters + t.outer) * g.output.elements() + y * g.output.width + x);
  }
  __device__ bool is_contiguous_in_k() const { return false; }
};

/// Images as a matrix, [channels] by [images × pixels].
template <class T>
struct ChannelRows {
  T* images;
  unsigned extent;   ///< channels
  Divisor by_plane;  ///< by the pixels of an image
  __device__ std::size_t index(unsigned channel, unsigned place) const {
    const unsigned image = by_plane(place);
    return (std::size_t{image} * extent + channel) * by_plane.value + (place - image * by_plane.value);
  }
  __device__ float at(unsigned, unsigned channel, unsigned place) const { return load(images + index(channel, place)); }
  __device__ bool is_contiguous_in_k() const { return true; }
  __device__ void put(unsigned, unsigned channel, unsigned place, float sum) const {
    store(sum, images + index(channel, place));
  }
};

/// The left factor of a product for the input's gradient: [channels] by [filters × taps].
template <class T>
struct FiltersByChannel {
  const T* filters;
  unsigned extent;  ///< channels
  Divisor by_taps;
  __device__ float at(unsigned, unsigned channel, unsigned tap) const {
    const unsigned filter = by_taps(tap);
    return load(filters + (std::size_t{filter} * extent + channel) * by_taps.value + (tap - filter * by_taps.value));
  }
  __device__ bool is_contiguous_in_k() const { return true; }
};

/// Filters as a matrix as they lie in memory, [filters] by [channels × taps].
template <class T>
struct FilterRows {
  T* first;
  unsigned extent, columns;  ///< filters, channels × taps
  __device__ float at(unsigned, unsigned filter, unsigned tap) const {
    return load(first + std::size_t{filter} * columns + tap);
  }
  __device__ bool is_contiguous_in_k() const { return true; }
  __device__ void put(unsigned, unsigned filter, unsigned tap, float sum) const {
    store(sum, first + std::size_t{filter} * columns + tap);
  }
};

template <class T>
void check(const ConvShape& s, Pass pass, const ConvOperands<T>& o) {
  const std::size_t input = s.batch * s.channels * s.height * s.width,
                    filters = s.filters * s.channels * s.filter_height * s.filter_width,
                    output = s.batch * s.filters * s.out_height() * s.out_width();
  const bool forward = pass == Pass::forward, backward_data = pass == Pass::backward_data;
  check_lengths(backward_data ? "conv: output gradient" : "conv: input", o.left.size(), backward_data ? output : input);
  check_lengths(forward || backward_data ? "conv: filters" : "conv: output gradient", o.right.size(),
                forward || backward_data ? filters : output);
  check_lengths("conv: result", o.result.size(), forward ? output : backward_data ? input : filters);
}

template <class T>
void launch_convolution(const ConvShape& s, Pass pass, const ConvOperands<T>& o, cudaStream_t stream) {
  check(s, pass, o);
  const Geometry g(s);
  const ProductExtents e = extents_of(s, pass);
  const T *left = o.left.device_address(), *right = o.right.device_address();
  T* const result = o.result.device_address();
  const Divisor out_plane(s.out_height() * s.out_width());
  if (pass == Pass::forward) {
    launch_product(FilterRows<const T>{right, e.m, e.k}, PatchesByPlace<T>{{left, g}, e.n},
                   ChannelRows<T>{result, e.m, out_plane}, e, o.scratch, stream);
  } else if (pass == Pass::backward_data) {
    launch_product(FiltersByChannel<T>{right, e.m, Divisor(s.filter_height * s.filter_width)},
                   GradientPatches<T>{left, g, e.n}, ChannelRows<T>{result, e.m, Divisor(s.height * s.width)}, e,
                   o.scratch, stream);
  } else {
    launch_product(ChannelRows<const T>{right, e.m, out_plane}, PatchesByTap<T>{{left, g}, e.n},
                   FilterRows<T>{result, e.m, e.n}, e, o.scratch, stream);
  }
}

}  // namespace

ProductExtents extents_of(const ConvShape& s, Pass pass) {
  const auto filters = static_cast<unsigned>(s.filters), channels = static_cast<unsigned>(s.channels),
             taps = static_cast<unsigned>(s.filter_height * s.filter_width),
             places = static_cast<unsigned>(s.batch * s.out_height() * s.out_width());
  if (pass == Pass::forward) return {filters, places, channels * taps, 1};
  if (pass == Pass::backward_weights) return {filters, channels * taps, places, 1};
  return {channels, static_cast<unsigned>(s.batch * s.height * s.width), filters * taps, 1};
}

void convolve(const ConvShape& s, Pass pass, const ConvOperands<float>& o, cudaStream_t stream) {
  launch_convolution(s, pass, o, stream);
}
void convolve(const ConvShape& s, Pass pass, const ConvOperands<Bf16>& o, cudaStream_t stream) {
  launch_convolution(s, pass, o, stream);
}
void convolve(const ConvShape& s, Pass pass, const ConvOperands<Fp16>& o, cudaStream_t stream) {
  launch_convolution(s, pass, o, stream);
}

}  // namespace gradmeter::kernels::cuda
