#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# scripts/count-instructions.py with the real nvcc and nvdisasm, and a small kernel with the name of an encoder.
script=$root/scripts/count-instructions.py
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
mkdir -p "$work/build"

# Writes an encoder that does this with each of its lane's 16 numbers, and counts.
count() { # STATEMENTS [QUADS]
  cat >"$work/bucketed.cu" <<CU
namespace codecs {
enum class Rounding { stochastic, nearest };
template <unsigned long bits, Rounding> struct QsgdRule {};
struct FromFloats { const float4* x; };
template <class Rule, class Source> __global__ void encode_buckets(Source source, unsigned n, unsigned* codes) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n) {  // a ragged end, with more instructions
    for (unsigned i = 0; i < n; ++i) codes[i] = static_cast<unsigned>(source.x[i].x * 3);
    return;
  }
  unsigned word = 0;
  #pragma unroll
  for (unsigned q = 0; q < ${2:-4}; ++q) {
    const float4 quad = source.x[at + 32 * q];
    const unsigned all[4] = {__float_as_uint(quad.x), __float_as_uint(quad.y), __float_as_uint(quad.z), __float_as_uint(quad.w)};
    #pragma unroll
    for (unsigned v : all) { $1 }
  }
  codes[at] = word;
}
template __global__ void encode_buckets<QsgdRule<8, Rounding::stochastic>, FromFloats>(FromFloats, unsigned, unsigned*);
}
CU
  cat >"$work/build/compile_commands.json" <<JSON
[{"directory": "$work", "file": "$work/bucketed.cu",
  "command": "$nvcc -std=c++20 -c $work/bucketed.cu -o kernel.o"}]
JSON
  try python3 "$script" --rows '^qsgd8: encode$' "$work/build"
}

try python3 "$script" --nvdisasm "$work/none" "$work/build"
expect_equal "without nvdisasm nothing is counted" 77 "$code"
expect_contains "with a reason" "there is no nvdisasm" "$output"
[ "$failures" -eq 0 ] || finish
[ -x "$nvcc" ] || exit 77

count 'word += v;'
[ "$code" -ne 77 ] || exit 77
expect_equal "a short encoder is within the budget: $output" 0 "$code"
expect_contains "and has a row" "qsgd8: encode" "$output"

count '
    #pragma unroll
    for (int k = 0; k < 16; ++k) v = (v ^ v >> 15) * 0x7feb352du ^ v >> 9;
    word += v;'
expect_equal "a long one is not" 1 "$code"
expect_contains "and is named" "qsgd8: encode: " "$output"
expect_contains "with its time" "of the time in which 85% of the copy rate moves 5 bytes" "$output"

try python3 "$script" --rows 'qsgd2: encode$' "$work/build"
expect_equal "a kernel that is not there is a fault" 1 "$code"
expect_contains "by its name" "qsgd2: encode: no such kernel" "$output"

count 'word += v;' 2
expect_equal "one that reads less than the table says fails" 1 "$code"
expect_contains "with both counts" "the path moves 32 bytes of floats a lane, not 64" "$output"

# The kernel of a row of peers, which copies so many packs at once in each of its two loops.
peers() { # PACKS [OPTIONS...]
  cat >"$work/peer_kernels.cu" <<CU
template <class T> __global__ void pass_in_ring(const uint4* from, uint4* to, unsigned n) {
  #pragma unroll 1
  for (unsigned twice = 0; twice < 2; ++twice) {
    #pragma unroll 1
    for (unsigned i = threadIdx.x; i < n; i += $1 * blockDim.x) {
      uint4 p[$1];
      #pragma unroll
      for (unsigned u = 0; u < $1; ++u) p[u] = from[i + u * blockDim.x];
      #pragma unroll
      for (unsigned u = 0; u < $1; ++u) to[i + u * blockDim.x] = p[u];
    }
    from += n;
    __syncthreads();
    #pragma unroll 1
    for (unsigned i = threadIdx.x; i < n; i += $1 * blockDim.x) {
      uint4 p[$1];
      #pragma unroll
      for (unsigned u = 0; u < $1; ++u) p[u] = to[i + u * blockDim.x];
      #pragma unroll
      for (unsigned u = 0; u < $1; ++u) to[n + i + u * blockDim.x] = p[u];
    }
    __syncthreads();
  }
}
template __global__ void pass_in_ring<float>(const uint4*, uint4*, unsigned);
CU
  sed -i 's/bucketed.cu/peer_kernels.cu/g' "$work/build/compile_commands.json"
  try python3 "$script" --rows '^gpu-ring: send-receive$' "${@:2}" "$work/build"
}

peers 8 --markdown
expect_equal "a kernel with enough loads under way passes: $output" 0 "$code"
expect_contains "with its count" "| 512 x 36 | 8 | 8.0 | 2.36 |" "$output"
echo "$output" >"$work/recorded.md"
peers 8 --compare "$work/recorded.md"
expect_equal "a record with these rows is right: $output" 0 "$code"
echo >"$work/recorded.md"
peers 8 --compare "$work/recorded.md"
expect_equal "one without them is not" 1 "$code"
peers 2
expect_equal "one with too few fails" 1 "$code"
expect_contains "and is named" "gpu-ring: send-receive: 2 loads of 16 bytes before the first use are 0.59 MB" "$output"

finish
