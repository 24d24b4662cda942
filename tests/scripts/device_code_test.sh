#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# scripts/check-device-code.py with the real nvcc and one small kernel: each fault that is planted is found and named.
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || exit 77
mkdir -p "$work/build"

# Writes a kernel with this body and runs the script.
check() { # BODY [OPTIONS...]
  local body=$1
  shift
  printf '%s\n' 'struct Constants { static constexpr unsigned table[2] = {7, 9}; static constexpr unsigned scalar = 7; };' \
    'constexpr unsigned of_host(unsigned i) { return Constants::table[i & 1]; }' \
    "__global__ void kernel(unsigned* out, float* sums) { $body }" >"$work/kernel.cu"
  cat >"$work/build/compile_commands.json" <<JSON
[{"directory": "$work", "file": "$work/kernel.cu",
  "command": "$nvcc -std=c++20 ${*:---fmad=false} -c $work/kernel.cu -o kernel.o"}]
JSON
  try python3 "$root/scripts/check-device-code.py" --ptx-only "$work/build"
}

check 'out[threadIdx.x] = Constants::scalar;'
expect_equal "a kernel without a fault passes: $output" 0 "$code"

check 'out[threadIdx.x] = of_host(threadIdx.x);' --fmad=false --expt-relaxed-constexpr
expect_equal "a constant that only the host has in memory fails" 1 "$code"
expect_contains "as a trap" "1 traps  traps: it reads a constant that only the host has in memory" "$output"
expect_contains "and the flag that allows it is named" "--expt-relaxed-constexpr: mark what kernels call" "$output"

check 'out[threadIdx.x] = Constants::scalar; sums[0] = sums[1] * sums[2] + sums[3];' --fmad=true
expect_equal "a fused multiply-add fails" 1 "$code"
expect_contains "and is named" "fused multiply-adds: compile it with --fmad=false" "$output"

check 'out[threadIdx.x] = 1; } void start(unsigned* o) { kernel<<<1, 1>>>(o, nullptr);'
expect_equal "a launch past gpu::launch fails" 1 "$code"
expect_contains "with its line" "kernel.cu:3 launches a kernel without gpu::launch" "$output"

check 'out[threadIdx.x] = static_cast<unsigned>(static_cast<unsigned long long>(clock64()) % out[0]);'
expect_equal "a division of 64 bits fails" 1 "$code"
expect_contains "and is counted" "1 divisions of 64 bits: see kernels/cuda/divisor.cuh" "$output"

finish
