#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds gradmeter for the GPU of this machine, runs the tests of CUDA code on it, and measures what one GPU can show: in ten
# minutes at most, with a CUDA toolkit and a compiler, and without MPI and oneDNN. Leaves a report and the rows measured.
# Usage: scripts/gpu-check.sh [--out FOLDER] [--minutes N] [--debs FOLDER] [--emulated]
#        scripts/gpu-check.sh --fetch FOLDER
#   --out FOLDER    for report.md, rows.jsonl and log.txt, which are replaced (default: results/gpu-check)
#   --minutes N     all together (default: 10)
#   --debs FOLDER   packages to unpack beside the build, for a machine without network or root rights
#   --fetch FOLDER  downloads these packages, on a machine that has a network, and does nothing else
#   --emulated      without a GPU, on the tests' emulated CUDA runtime: shows that all runs; its times are no measurements
# Exit codes: 0 built, tested, no wrong result (what a command refused is in the report); 1 a build, a test or a result
# failed; 2 wrong arguments; 3 there is no toolkit or no GPU that can be used.
set -uo pipefail

out=results/gpu-check minutes=10 debs='' fetch='' emulated=false
refuse() { # CODE MESSAGE
  echo "gpu-check: $2" >&2
  exit "$1"
}
while [ $# -gt 0 ]; do
  case "$1" in
    --out | --minutes | --debs | --fetch)
      [ $# -gt 1 ] || refuse 2 "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    --emulated) emulated=true ;;
    -h | --help)
      sed -n '3,14s/^# //p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) refuse 2 "unknown argument '$1'; scripts/gpu-check.sh --help lists them" ;;
  esac
  shift
done
[[ $minutes =~ ^[1-9][0-9]{0,2}$ ]] || refuse 2 "'$minutes' is not a number of minutes; give a whole number from 1"
[ -z "$debs" ] || [ -d "$debs" ] || refuse 2 "--debs $debs is not a folder; scripts/gpu-check.sh --fetch FOLDER fills one"

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
deadline=$((SECONDS + 60 * minutes - 10))  # the rest is for the report
preset=cuda
$emulated && preset=cuda-emulated
build=build/gpu-check-$preset
gradmeter=$build/gradmeter
configuration=(-DGRADMETER_MPI=OFF -DGRADMETER_ONEDNN=OFF -DGRADMETER_GLOO=OFF -DGRADMETER_BENCHMARKS=OFF
  -DGRADMETER_TEST_SHARDS=ON -DGRADMETER_WARNINGS_AS_ERRORS=OFF -DGRADMETER_PYTHON="$(command -v python3 || echo python3)")
running=       # the process of the step that runs
# timeout's commands are a process group of their own, which a Ctrl-C at the terminal does not reach.
trap 'stop 130' INT
trap 'stop 143' TERM
rows=()        # of the report: what | outcome | seconds | note
failed=false
bars=''

stop() { # CODE
  [ -z "$running" ] || kill "$running" 2>/dev/null
  exit "$1"
}

# The packages, and what they themselves need of this kind; a machine with a compiler has the rest.
fetch_debs() { # FOLDER
  local -a wanted
  mkdir -p "$1" && cd "$1" || return
  mapfile -t wanted < <(gradmeter_packages gpu | xargs apt-cache depends --recurse --no-recommends --no-suggests \
    --no-conflicts --no-breaks --no-replaces --no-enhances 2>/dev/null |
    grep -E '^(lib(boost|fmt|hwy|hwloc|gtest|gmock|ltdl|udev1|pkgconf)[^:]*|pkg-config|pkgconf.*|googletest|nlohmann-json3-dev|zlib1g-dev)$' |
    sort -u)
  apt-get -q download "${wanted[@]}" && echo "${#wanted[@]} packages, $(du -sh . | cut -f1), are in $1"
}

unpack_debs() {
  local deb libraries prefix=$PWD/$build/debs
  mkdir -p "$prefix"
  for deb in "$debs"/*.deb; do dpkg -x "$deb" "$prefix" || return; done
  libraries=$prefix/usr/lib/$(uname -m)-linux-gnu
  export PATH=$PATH:$prefix/usr/bin CMAKE_PREFIX_PATH=$prefix/usr PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/share/pkgconfig
  export PKG_CONFIG_SYSROOT_DIR=$prefix LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# Finds the toolkit, and asks the driver for the GPU's architecture by a program of its own: nvidia-smi is not everywhere.
find_gpu() {
  local nvcc answer code=0
  nvcc=$(command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") ||
    refuse 3 "no CUDA toolkit: nvcc is neither on the PATH nor in ${CUDA_HOME:-/usr/local/cuda}/bin (set CUDA_HOME); --emulated does without"
  PATH=$PATH:$(dirname "$nvcc")
  cat >"$build/probe.cu" <<'CUDA'
#include <cstdio>
#include <cuda_runtime_api.h>
int main() {
  int devices = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  std::printf("%s\n", error == cudaSuccess ? "" : cudaGetErrorString(error));
  std::printf("%d%d %d\n", major, minor, devices);
  return error == cudaSuccess ? 0 : 3;
}
CUDA
  "$nvcc" -o "$build/probe" "$build/probe.cu" >>"$log" 2>&1 ||
    refuse 1 "$nvcc compiles no program: $(grep -im1 error "$log" || tail -n 1 "$log")"
  answer=$("$build/probe" 2>&1) || code=$?
  [ "$code" -eq 0 ] || refuse 3 "no GPU can be used ($(head -n 1 <<<"$answer")): run it on a machine with one, or with --emulated"
  read -r architecture devices <<<"$(tail -n 1 <<<"$answer")"
  configuration+=(-DGRADMETER_CUDA_ARCHITECTURES="$architecture")
}

note_row() { # WHAT OUTCOME SECONDS NOTE
  rows+=("| $1 | $2 | $3 | ${4//|/\\|} |")
  printf '%-24s %-10s %4d s  %s\n' "$1" "$2" "$3" "$4"
}

# Runs a command within what is left of the time; its output goes to the log, and, of this step alone, to $step_log.
run_for() { # LIMIT COMMAND...
  local left=$((deadline - SECONDS)) limit=$1
  shift
  if [ "$left" -lt 5 ]; then
    : >"$step_log"
    return 125
  fi
  printf '\n==> %s\n' "$*" >>"$log"
  timeout --kill-after=10 "$((limit < left ? limit : left))" "$@" >"$step_log" 2>&1 &
  running=$!
  local code=0
  wait "$running" || code=$?
  running=
  cat "$step_log" >>"$log"
  return "$code"
}

# A step that the rest needs, or whose failure is the machine's or the program's.
must() { # WHAT LIMIT COMMAND...
  local what=$1 start=$SECONDS code=0
  shift
  run_for "$@" || code=$?
  case $code in
    0) note_row "$what" ok $((SECONDS - start)) "$(grep -m1 '% tests passed' "$step_log")" ;;
    124 | 137) note_row "$what" stopped $((SECONDS - start)) "it took longer than it may" ;;
    125) note_row "$what" "not run" 0 "no time was left" ;;
    *) note_row "$what" failed $((SECONDS - start)) "$(grep -E -m1 '% tests passed|[Ee]rror' "$step_log" || tail -n 1 "$step_log")" ;;
  esac
  [ "$code" -eq 0 ] || failed=true
  return "$code"
}

# A command of gradmeter. What it refuses is reported and nothing more: a flag that does not exist yet, an operation
# without a kernel, a library that is not there. A wrong result is a failure.
measure() { # WHAT LIMIT ARGUMENTS...
  local what=$1 limit=$2 start=$SECONDS code=0 reason
  shift 2
  run_for "$limit" "$gradmeter" "$@" || code=$?
  reason=$(grep -m1 '^gradmeter' "$step_log" || tail -n 1 "$step_log")
  case $code in
    0) note_row "$what" ok $((SECONDS - start)) "$*" ;;
    2 | 3) note_row "$what" refused $((SECONDS - start)) "$reason" ;;
    4) note_row "$what" WRONG $((SECONDS - start)) "$reason" ;;
    5) note_row "$what" "GPU lost" $((SECONDS - start)) "$reason" ;;
    124 | 137) note_row "$what" stopped $((SECONDS - start)) "after $limit s; rows measured until then are kept" ;;
    125) note_row "$what" "not run" 0 "no time was left" ;;
    *) note_row "$what" "failed ($code)" $((SECONDS - start)) "$reason" ;;
  esac
  case $code in 0 | 2 | 3 | 124 | 125 | 137) ;; *) failed=true ;; esac
}

# Commands that leave rows put them into one file.
measure_rows() { # WHAT LIMIT ARGUMENTS...
  measure "$@" --out "$out/rows.jsonl" --append
}

measure_all() {
  local precision one=(--device cuda --thread-ranks 1) two=(--device cuda --thread-ranks 2)
  measure doctor 60 doctor --thread-ranks 1
  measure_bars
  # One by one: a name that is not known refuses its command whole.
  for precision in fp32 tf32 fp16 bf16 fp8 int8; do
    measure_rows "products in $precision" 20 kernels "${one[@]}" --shape gemm:m=8192,n=8192,k=8192 --precision "$precision" \
      --time-budget 8s
  done
  measure_rows "products in 2:4" 30 kernels "${one[@]}" --shape sparse:m=4096,n=4096,k=4096,sparsity=0.5,format=2:4 \
    --precision bf16,fp16,int8 --search all --time-budget 12s
  measure_rows kernels 60 kernels "${one[@]}" --time-budget 40s
  measure_rows codecs 60 codecs --device cuda --size 64M --time-budget 40s
  measure_rows "training of mlp" 40 train "${one[@]}" --model mlp --batch 1024 --steps 500
  measure_rows "training of cnn" 40 train "${one[@]}" --model cnn --batch 256 --steps 200
  measure_rows "training of lstm" 40 train "${one[@]}" --model lstm --batch 256 --steps 100
  measure_rows "training in bf16" 40 train "${one[@]}" --model mlp --batch 1024 --steps 500 --precision bf16
  measure_rows "two ranks of threads" 40 train "${two[@]}" --model mlp --batch 256 --steps 200 --strategy sync --algorithm ring
  measure_rows "their all-reduce" 40 allreduce "${two[@]}" --time-budget 25s
}

# Its bars are read by people: on a GPU that others use, or that is too hot, they say little.
measure_bars() { # ARGUMENTS of bench_device...
  local start=$SECONDS code=0
  run_for 90 "$build/tests/bench/bench_device" "$@" || code=$?
  case $code in
    0) note_row "bars" ok $((SECONDS - start)) "$(grep -cE ' met$|not judged' "$step_log") of $(grep -c ' / ' "$step_log")" ;;
    1) note_row "bars" missed $((SECONDS - start)) "$(grep -c ' MISSED$' "$step_log") of $(grep -c ' / ' "$step_log"); see below" ;;
    *) note_row "bars" "failed ($code)" $((SECONDS - start)) "$(tail -n 1 "$step_log")" ;;
  esac
  [ "$code" -le 1 ] || failed=true
  bars=$(cat "$step_log")
}

# The emulated device runs a few million threads a second.
measure_emulated() {
  local model few=(--batch 4 --steps 3 --train-samples 1000 --validation-samples 20)
  local small=(--model mlp --batch 16 --steps 5 --train-samples 1000 --validation-samples 100)
  measure doctor 60 doctor --thread-ranks 1
  measure_bars 64 1
  measure_rows products 60 kernels --device cuda --thread-ranks 1 --shape gemm:m=64,n=64,k=64 --time-budget 5s
  measure_rows codecs 60 codecs --device cuda --size 4K --codec bf16,qsgd4,topk --time-budget 5s
  measure_rows "training of mlp" 60 train --device cuda --thread-ranks 1 "${small[@]}"
  for model in cnn:convolutions=1,filters=2,hidden=8 lstm:hidden=8; do
    measure_rows "training of ${model%%:*}" 60 train --device cuda --thread-ranks 1 --model "$model" "${few[@]}"
  done
  measure_rows "two ranks of threads" 60 train --device cuda --thread-ranks 2 "${small[@]}" --strategy sync --algorithm ring
}

gpu_state() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null ||
    echo "not known: no nvidia-smi"
}

commit() {
  local id
  id=$(git rev-parse --short HEAD 2>/dev/null) || id=unknown
  [ "$id" = unknown ] || git diff --quiet HEAD || id="$id, changed"
  echo "$id"
}

write_report() {
  local nothing="**On the tests' emulated CUDA runtime: no time and no rate here is a measurement.**"
  $emulated || nothing="GPU before: $state_before; after: $(gpu_state | paste -sd';')"
  cat >"$out/report.md" <<REPORT
# GPU check

$(date -u +%Y-%m-%dT%H:%MZ), commit $(commit), preset $preset.
$nothing

| step | outcome | seconds | note |
| --- | --- | ---: | --- |
$(printf '%s\n' ${rows[@]+"${rows[@]}"})

Rows: rows.jsonl. All output: log.txt.

## Bars
Kernels beside the bare library and the device's own copy (tests/bench/device_speed.cpp):
\`\`\`
${bars:-not measured}
\`\`\`

## What this cannot show
- CUDA IPC: ranks must be processes, so it needs MPI; two may share this GPU.
  \`cmake --preset cuda && cmake --build --preset cuda && mpirun -np 2 build/cuda/gradmeter allreduce --device cuda\`
- NCCL beyond one rank: NCCL before 2.30 refuses two ranks on one GPU. Two GPUs: \`DEVICE=cuda RANKS_PER_NODE=2 bash jobs/weak-scaling.sh\`
- All-reduce against NCCL, overlap and scaling: 2 to 8 GPUs with NVLink, the same script.$(
    [ "${devices:-1}" -le 1 ] || echo " This machine has $devices GPUs.")
REPORT
}

if [ -n "$fetch" ]; then
  fetch_debs "$fetch"
  exit
fi
mkdir -p "$out" "$build"
out=$(cd "$out" && pwd)
log=$out/log.txt
step_log=$build/step.txt
rm -f "$out/rows.jsonl"
: >"$log"
$emulated || find_gpu
$emulated || state_before=$(gpu_state | paste -sd';')

if [ -n "$debs" ]; then
  unpack_debs >>"$log" 2>&1 || refuse 1 "the packages in $debs cannot be unpacked: $(tail -n 1 "$log")"
else
  gradmeter_install gpu >>"$log" 2>&1  # CMake names what is still missing
fi
if must configure 60 cmake --preset "$preset" -B "$build" "${configuration[@]}"; then
  must build $((36 * minutes)) cmake --build "$build" --parallel "$(nproc)" --target gradmeter device_tests &&
    must tests $((15 * minutes)) ctest --test-dir "$build" --label-regex device --parallel 4 --timeout 100 --output-on-failure
  [ ! -x "$gradmeter" ] || if $emulated; then measure_emulated; else measure_all; fi
fi
write_report
echo "report: $out/report.md"
if $failed; then exit 1; fi
