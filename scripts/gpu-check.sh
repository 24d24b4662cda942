#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first half hour on a GPU, in commands of ten minutes: what the device does, the tests of CUDA code, the bars of our kernels,
# rows of all that one GPU can show, PyTorch beside it. Works from a bundle that another machine has made, or builds gradmeter here
# (with a CUDA toolkit and a compiler, without MPI and oneDNN). Started again, it goes on with what has not been run; with other
# programs than before it begins anew.
# Usage: scripts/gpu-check.sh [--build FOLDER] [--only GROUP,...] [--again] [--minutes N] [--out FOLDER]
#        scripts/gpu-check.sh --bundle FILE [--build FOLDER]
#        scripts/gpu-check.sh --plan | --fetch FOLDER
#   --build FOLDER  an unpacked bundle, or a finished build (default: builds build/gpu-check-cuda)
#   --only GROUPS   of: probe doctor tests bars rows sanitizer (default: all)
#   --again         also the steps that have ended before
#   --minutes N     of this command (default: 10); a step that may take longer than what is left is for the next one
#   --limit N       at most so many seconds for a step, for rehearsals
#   --out FOLDER    for report.md, rows.jsonl (packed where it is long) and logs.tar.gz, which are replaced (default: results/gpu-check)
#   --bundle FILE   makes the bundle of at most 48 MiB (a .tar.xz), of a finished build or of one made for it
#   --plan          prints the steps and how long each may take
#   --debs FOLDER   packages to unpack beside the build, for a machine without network or root rights; a bundle takes them along
#   --fetch FOLDER  downloads these packages, on a machine that has a network, and does nothing else
#   --emulated      without a GPU, on the tests' emulated CUDA runtime: shows that all runs; its times are no measurements
# Exit codes: 0 what was run is well (what a command refused, and what is left to run, is in the report); 1 a build, a test or a
# result failed; 2 wrong arguments; 3 there is no toolkit, no library of CUDA or no GPU that can be used.
set -uo pipefail

out='' minutes=10 debs='' fetch='' bundle='' build='' only='' limit='' emulated=false again=false plan=false
groups='probe doctor tests bars rows sanitizer'
refuse() { # CODE MESSAGE
  echo "gpu-check: $2" >&2
  exit "$1"
}
while [ $# -gt 0 ]; do
  case "$1" in
    --out | --minutes | --debs | --fetch | --bundle | --build | --only | --limit)
      [ $# -gt 1 ] || refuse 2 "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    --emulated) emulated=true ;;
    --again) again=true ;;
    --plan) plan=true ;;
    -h | --help)
      sed -n '3,24s/^# //p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) refuse 2 "unknown argument '$1'; scripts/gpu-check.sh --help lists them" ;;
  esac
  shift
done
[[ $minutes =~ ^[1-9][0-9]{0,2}$ ]] || refuse 2 "'$minutes' is not a number of minutes; give a whole number from 1"
[[ -z $limit || $limit =~ ^[1-9][0-9]{0,3}$ ]] || refuse 2 "'$limit' is not a number of seconds; give a whole number from 1"
[ -z "$debs" ] || [ -d "$debs" ] || refuse 2 "--debs $debs is not a folder; scripts/gpu-check.sh --fetch FOLDER fills one"
[ -z "$build" ] || [ -d "$build" ] || refuse 2 "--build $build is not a folder; unpack a bundle, or build gradmeter there"
for group in ${only//,/ }; do
  [[ " $groups " == *" $group "* ]] || refuse 2 "--only: '$group' is not known; the groups are ${groups// /, }"
done
for name in debs build; do [ -z "${!name}" ] || printf -v $name %s "$(realpath "${!name}")"; done
for name in bundle fetch out; do [ -z "${!name}" ] || printf -v $name %s "$(realpath -m "${!name}")"; done

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
out=${out:-results/gpu-check}
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
deadline=$((SECONDS + 60 * minutes - 15))  # the rest is for the report
unpacked=false
if [ -n "$build" ] && [ -e "$build/bundle.txt" ]; then
  unpacked=true
  ! grep -qx 'device: emulated' "$build/bundle.txt" || emulated=true
elif [ -n "$build" ] && grep -qsx 'GRADMETER_CUDA_EMULATED:BOOL=ON' "$build/CMakeCache.txt"; then
  emulated=true
fi
preset=cuda
$emulated && preset=cuda-emulated
finished=true  # there is a build already
if [ -z "$build" ]; then
  build=$PWD/build/gpu-check-$preset finished=false
fi
state=$build/gpu-check  # what each step has left: its line of the report, its output, its rows
configuration=(-DGRADMETER_MPI=OFF -DGRADMETER_ONEDNN=OFF -DGRADMETER_GLOO=OFF -DGRADMETER_BENCHMARKS=OFF
  -DGRADMETER_TEST_SHARDS=ON -DGRADMETER_WARNINGS_AS_ERRORS=OFF -DGRADMETER_PYTHON="$(command -v python3 || echo python3)")
running=  # the process of the step that runs
# timeout's commands are a process group of their own, which a Ctrl-C at the terminal does not reach.
trap 'stop 130' INT
trap 'stop 143' TERM
steps=()  # names of those of this plan, in order
bad='failed.*|hung|WRONG|GPU lost'  # outcomes that are failures
missing=()  # libraries of CUDA's that an unpacked bundle does not find
lost='' total=0

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
  local deb libraries prefix=$build/debs
  mkdir -p "$prefix"
  for deb in "$debs"/*.deb; do dpkg -x "$deb" "$prefix" || return; done
  libraries=$prefix/usr/lib/$(uname -m)-linux-gnu
  export PATH=$PATH:$prefix/usr/bin CMAKE_PREFIX_PATH=$prefix/usr PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/share/pkgconfig
  export PKG_CONFIG_SYSROOT_DIR=$prefix LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

find_toolkit() {
  local nvcc
  nvcc=$(command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") || return
  PATH=$PATH:$(dirname "$nvcc")
}

# Asks the driver for the GPU's architecture by a program of its own: nvidia-smi is not everywhere.
find_gpu() {
  local answer code=0
  find_toolkit ||
    refuse 3 "no CUDA toolkit: nvcc is neither on the PATH nor in ${CUDA_HOME:-/usr/local/cuda}/bin (set CUDA_HOME); --emulated does without"
  cat >"$state/architecture.cu" <<'CUDA'
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
  nvcc -o "$state/architecture" "$state/architecture.cu" >"$state/nvcc.log" 2>&1 ||
    refuse 1 "nvcc compiles no program: $(grep -im1 error "$state/nvcc.log" || tail -n 1 "$state/nvcc.log")"
  answer=$("$state/architecture" 2>&1) || code=$?
  [ "$code" -eq 0 ] || refuse 3 "no GPU can be used ($(head -n 1 <<<"$answer")): run it on a machine with one, or with --emulated"
  configuration+=(-DGRADMETER_CUDA_ARCHITECTURES="$(tail -n 1 <<<"$answer" | cut -d' ' -f1)")
}

# --- Programs of a bundle or of a build, and CUDA's libraries on this machine.

program() { # NAME
  if $unpacked; then
    echo "$build/bin/$1"
  elif [ "$1" = gradmeter ]; then
    echo "$build/gradmeter"
  else
    find "$build/tests" -name "$1" -type f -perm -u+x 2>/dev/null | head -n 1
  fi
}

# The programs of tests of CUDA code, those that may hang a GPU left out; one a line.
test_programs() {
  local list=$build/tests.txt
  if ! $unpacked; then
    list=$state/tests.txt
    python3 scripts/gpu-bundle.py --tests "$build" >"$list" || return
  fi
  grep -v nccl "$list"
}

# LD_LIBRARY_PATH gets the folders of those of CUDA's libraries that the loader does not find by itself: of the toolkit, or else
# of Python's packages, where PyTorch's wheels bring them. What is found nowhere is left in $missing.
find_libraries() {
  local -a folders
  local library folder
  mapfile -t folders < <(
    printf '%s\n' "${CUDA_HOME:-/usr/local/cuda}"/{lib64,lib,targets/x86_64-linux/lib}
    python3 -c 'import glob, sys; print("\n".join(f for p in sys.path if p for f in sorted(glob.glob(p + "/nvidia/*/lib"))))' 2>/dev/null)
  for _ in 1 2 3 4; do  # a library that is found may need another
    mapfile -t missing < <(missing_libraries)
    [ ${#missing[@]} -gt 0 ] || return 0
    for library in "${missing[@]}"; do
      for folder in "${folders[@]}"; do
        [ -e "$folder/$library" ] || continue
        case ":${LD_LIBRARY_PATH:-}:" in *":$folder:"*) ;; *) export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder ;; esac
        break
      done
    done
  done
  mapfile -t missing < <(missing_libraries)
}
missing_libraries() {
  find "$build/bin" -type f -exec ldd {} \; 2>/dev/null | sed -n 's/^\t\(.*\) => not found$/\1/p' | sort -u
}

# --- Steps

kept() { # NAME SUFFIX: a file of a step
  local name=${1//[^A-Za-z0-9.-]/_}
  echo "$state/steps/$name.$2"
}

note_row() { # WHAT OUTCOME SECONDS NOTE
  [ "$4" = "--only $only" ] || printf '%-32s %-10s %4d s  %s\n' "$1" "$2" "$3" "$4"
  [ "$2" = "not run" ] || printf '%s\n' "| $1 | $2 | $3 | ${4//|/\\|} |" >"$(kept "$1" row)"
  [ "$2" != "not run" ] || printf '%s\n' "| $1 | $2 | $3 | ${4//|/\\|} |" >"$(kept "$1" left)"
}

# A step's limit. The emulated device runs at the speed of a core, which others may use too.
longest() { # SECONDS
  local most=$1
  ! $emulated || most=$((3 * most))
  [ -z "$limit" ] || most=$((most < limit ? most : limit))
  echo "$most"
}

# Whether a step is to be run now. What has ended before stays, and what cannot be run says why.
due() { # GROUP WHAT LIMIT
  steps+=("$2")
  total=$((total + $3))
  if $plan; then
    printf '%-10s %-32s %4d s\n' "$1" "$2" "$3"
    return 1
  fi
  rm -f "$(kept "$2" left)"
  local chosen=true reason=''
  if [ -n "$only" ] && [ "$1" != build ]; then
    [[ ",$only," == *",$1,"* ]] || chosen=false
  fi
  if [ -e "$(kept "$2" row)" ]; then
    ! $again || ! $chosen || rm -f "$(kept "$2" row)"
    [ ! -e "$(kept "$2" row)" ] || return 1
  fi
  if ! $chosen; then
    reason="--only $only"
  elif [ -n "$lost" ]; then
    reason=$lost
  elif [ "$3" -lt 1 ] || { [ "$1" != build ] && [ $((deadline - SECONDS)) -lt "$3" ]; }; then
    reason="it may take $3 s, and no time was left: run this again"
  else
    return 0
  fi
  note_row "$2" "not run" 0 "$reason"
  return 1
}

# Runs a command, whose output is the step's log. Leaves its exit code in $code, its time in $took, its log in $log.
run_step() { # WHAT LIMIT COMMAND...
  local what=$1 most=$2 start=$SECONDS
  shift 2
  log=$(kept "$what" log) code=0
  echo "==> $*" >"$log"
  timeout --kill-after=10 "$most" "$@" >>"$log" 2>&1 &
  running=$!
  wait "$running" || code=$?
  running=
  took=$((SECONDS - start))
  case $code in 5 | 124 | 137 | 134 | 139) ask_gpu "$what" ;; esac
}

# After a step that hung or crashed: a GPU that answers nobody would let all other steps run into their limits.
ask_gpu() { # WHAT
  local alive
  $emulated && return
  alive=$(program ipc_probe)
  [ -x "$alive" ] && ! timeout --kill-after=5 30 "$alive" --alive >>"$log" 2>&1 || return 0
  lost="since '$1' the GPU answers nothing"
}

last_line() { tail -n 1 "$log" | cut -c1-300; }

# What must be well: a build, a test, a probe.
must() { # GROUP WHAT LIMIT COMMAND...
  local group=$1 what=$2 most=$3 note=''
  shift 3
  if [ "$group" = build ]; then
    most=$((deadline - SECONDS < most ? deadline - SECONDS : most))
  else
    most=$(longest "$most")
  fi
  due "$group" "$what" "$most" || return
  run_step "$what" "$most" "$@"
  case $code in
    0)
      note=$(grep -E -m1 '% tests passed|^\[  PASSED  \]' "$log" || :)
      note_row "$what" passed "$took" "${note}$(sed -n 's/^\[  SKIPPED \] \([0-9]* tests\?\).*/, \1 skipped/p' "$log")"
      ;;
    124 | 137) note_row "$what" hung "$took" "it had not ended after $most s$(in_which_test)" ;;
    5) note_row "$what" "GPU lost" "$took" "$(last_line)" ;;
    *) note_row "$what" failed "$took" "$(first_failure)" ;;
  esac
  return "$code"
}
first_failure() {
  { grep -E -m1 '^\[  FAILED  \] .*|% tests passed|: error|^[a-z_]+: ' "$log" || last_line; } | cut -c1-300
}
in_which_test() {
  local test
  test=$(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)
  [ -z "$test" ] || echo " in $test"
}

# A command of gradmeter. What it refuses is reported and nothing more: an operation without a kernel, a library that is not
# there. A wrong result is a failure, and so is a point that failed, although gradmeter goes on with the others.
measure() { # GROUP WHAT LIMIT ARGUMENTS...
  local group=$1 what=$2 most=$3 reason
  shift 3
  local arguments="$*"
  most=$(longest "$most")
  due "$group" "$what" "$most" || return 0
  rm -f "$(kept "$what" jsonl)"
  run_step "$what" "$most" "$gradmeter" "$@"
  reason=$(complaint)
  case $code in
    0) note_row "$what" passed "$took" "${arguments% --out *}" ;;
    1) note_row "$what" missed "$took" "$reason" ;;
    2) note_row "$what" refused "$took" "$reason" ;;
    3) if is_missing "$reason"; then note_row "$what" refused "$took" "$reason"; else note_row "$what" "failed (3)" "$took" "$reason"; fi ;;
    4) note_row "$what" WRONG "$took" "$reason" ;;
    5) note_row "$what" "GPU lost" "$took" "$reason" ;;
    124 | 137) note_row "$what" stopped "$took" "after $most s; rows measured until then are kept" ;;
    *) note_row "$what" "failed ($code)" "$took" "$reason" ;;
  esac
}

# The last line that gradmeter complained with; its first line of output is no complaint.
complaint() {
  local line
  line=$(grep -E '^gradmeter( [a-z]+)?: ' "$log" | tail -n 1 | cut -c1-300)
  if [ -n "$line" ]; then echo "$line"; else last_line; fi
}

# Exit code 3 is a refusal only where the message says that a part of the program or a library is not there.
is_missing() { # MESSAGE
  [[ $1 =~ (not built in|built without|is not installed) && ! $1 =~ points?\ failed ]]
}

# Commands that leave rows.
measure_rows() { # WHAT LIMIT ARGUMENTS...
  measure rows "$@" --out "$(kept "$1" jsonl)"
}

# Its bars are read by people: on a GPU that others use, or that is too hot, they say little.
measure_bars() { # LIMIT ARGUMENTS of bench_device...
  local most=$1
  shift
  most=$(longest "$most")
  due bars bars "$most" || return 0
  run_step bars "$most" "$(program bench_device)" "$@"
  case $code in
    0) note_row bars passed "$took" "$(grep -cE ' met$|not judged' "$log") of $(grep -c ' / ' "$log")" ;;
    1) note_row bars missed "$took" "$(grep -c ' MISSED$' "$log") of $(grep -c ' / ' "$log"); see below" ;;
    5) note_row bars "GPU lost" "$took" "$(last_line)" ;;
    124 | 137) note_row bars hung "$took" "it had not ended after $most s" ;;
    *) note_row bars "failed ($code)" "$took" "$(last_line)" ;;
  esac
}

# The toolkit's compute-sanitizer. It makes programs ten times as slow and more: what it has not come to is no failure.
sanitize() { # TOOL PROGRAM FILTER
  local most=45 what="$1 of $2" tool
  most=$(longest "$most")
  due sanitizer "$what" "$most" || return 0
  tool=$(command -v compute-sanitizer || command -v "${CUDA_HOME:-/usr/local/cuda}"/{bin,compute-sanitizer}/compute-sanitizer | head -n 1)
  if $emulated || [ -z "$tool" ]; then
    note_row "$what" "not run" 0 "$($emulated && echo "it needs a GPU" || echo "there is no compute-sanitizer")"
    return
  fi
  run_step "$what" "$most" "$tool" --tool "$1" --error-exitcode 9 --print-limit 20 "$(program "$2")" --gtest_filter="$3"
  if [ "$code" -eq 9 ] || grep -qE '^=========.*(Invalid|Error|Race reported|Barrier error|Uninitialized)' "$log"; then
    note_row "$what" failed "$took" "$(grep -E -m1 '^=========.*(Invalid|Error|Race|Barrier|Uninitialized)' "$log")"
  else
    case $code in
      0) note_row "$what" passed "$took" "$(grep -m1 'ERROR SUMMARY' "$log")" ;;
      124 | 137) note_row "$what" stopped "$took" "after $most s$(in_which_test); it had found nothing" ;;
      *) note_row "$what" "failed ($code)" "$took" "$(last_line)" ;;
    esac
  fi
}

# PyTorch's product, copy and training step on the same GPU, in turn with ours.
compare_pytorch() { # LIMIT ARGUMENTS...
  local most=$1 what='PyTorch beside it'
  shift
  most=$(longest "$most")
  due rows "$what" "$most" || return 0
  run_step "$what" "$most" python3 scripts/compare-pytorch.py "$gradmeter" "$@"
  case $code in
    0) note_row "$what" passed "$took" "see below" ;;
    2) note_row "$what" "refused" "$took" "$(last_line)" ;;
    124 | 137) note_row "$what" stopped "$took" "after $most s" ;;
    *) note_row "$what" "failed ($code)" "$took" "$(last_line)" ;;
  esac
}

run_tests() {
  local name
  local -a names shard=()
  if $plan; then
    names=(test_allreduce_device test_bench_device test_compression_device test_dataparallel_device test_dataparallel_device_losses
      test_kernels_device test_runtime_device)
  else
    mapfile -t names < <(test_programs)
  fi
  # The emulated device takes minutes for all: an eighth shows that they run.
  ! $emulated || shard=(env GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=3)
  for name in "${names[@]}"; do
    case $name in
      test_allreduce_device) must tests "$name" 60 "${shard[@]}" "$(program "$name")" '--gtest_filter=-*GpuDirect*:*GpuRing*' ;;
      *) must tests "$name" 60 "${shard[@]}" "$(program "$name")" ;;
    esac
  done
}

# Kernels of NCCL, and those that wait for each other: last, since they may hang a GPU.
run_late_tests() {
  local name shard=()
  ! $emulated || shard=(env GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=3)
  for name in test_runtime_nccl test_allreduce_nccl test_allreduce_nccl_messages; do
    $plan || [ -x "$(program $name)" ] || continue
    must tests "$name" 60 "${shard[@]}" "$(program $name)"
  done
  must tests 'gpu-direct and gpu-ring' 60 "${shard[@]}" "$(program test_allreduce_device)" '--gtest_filter=*GpuDirect*:*GpuRing*'
}

# One by one: a name that is not known refuses its command whole.
measure_all() {
  local precision one=(--device cuda --thread-ranks 1) two=(--device cuda --thread-ranks 2)
  must probe 'IPC of two processes' 60 "$(program ipc_probe)"
  measure doctor doctor 60 doctor --thread-ranks 1
  run_tests
  measure_bars 90
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
  compare_pytorch 120 --device cuda
  sanitize memcheck test_compression_device '*'
  sanitize racecheck test_compression_device '*'
  sanitize memcheck test_kernels_device '*'
  sanitize synccheck test_kernels_device '*'
  measure_rows "two ranks of threads" 40 train "${two[@]}" --model mlp --batch 256 --steps 200 --strategy sync --algorithm ring
  measure_rows "their all-reduce" 40 allreduce "${two[@]}" --time-budget 25s
  run_late_tests
  must probe 'streams that wait for each other' 90 "$(program streams_probe)"
}

# The emulated device runs a few million threads a second.
measure_emulated() {
  local model few=(--batch 4 --steps 3 --train-samples 1000 --validation-samples 20)
  local small=(--model mlp --batch 16 --steps 5 --train-samples 1000 --validation-samples 100)
  must probe 'IPC of two processes' 60 "$(program ipc_probe)"
  measure doctor doctor 60 doctor --thread-ranks 1
  run_tests
  measure_bars 60 64 1
  measure_rows products 60 kernels --device cuda --thread-ranks 1 --shape gemm:m=64,n=64,k=64 --time-budget 5s
  measure_rows codecs 60 codecs --device cuda --size 4K --codec bf16,qsgd4,topk --time-budget 5s
  measure_rows "training of mlp" 60 train --device cuda --thread-ranks 1 "${small[@]}"
  for model in cnn:convolutions=1,filters=2,hidden=8 lstm:hidden=8; do
    measure_rows "training of ${model%%:*}" 60 train --device cuda --thread-ranks 1 --model "$model" "${few[@]}"
  done
  compare_pytorch 60 --device cuda --edge 64 --mib 1 --models mlp --batches 16 --steps 12
  sanitize memcheck test_compression_device '*'
  measure_rows "two ranks of threads" 60 train --device cuda --thread-ranks 2 "${small[@]}" --strategy sync --algorithm ring
  run_late_tests
  must probe 'streams that wait for each other' 90 "$(program streams_probe)"
}

measure_everything() {
  if $emulated; then measure_emulated; else measure_all; fi
}

# --- The report

gpu_state() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.draw,temperature.gpu --format=csv,noheader 2>/dev/null ||
    echo "not known: no nvidia-smi"
}

commit() {
  local id
  if $unpacked; then
    sed -n 's/^commit: //p' "$build/bundle.txt"
    return
  fi
  if $finished; then  # it may be of another commit than the tree
    id=$("$gradmeter" --version 2>/dev/null | sed -n '1s/^gradmeter .*(\(.*\))$/\1/p')
    echo "${id:-unknown}"
    return
  fi
  id=$(git rev-parse --short HEAD 2>/dev/null) || id=unknown
  [ "$id" = unknown ] || git diff --quiet HEAD || id="$id, changed"
  echo "$id"
}

# A commit does not tell two changed trees apart, so the programs themselves are compared.
identity() {
  local -a places=("$build/bin")
  $unpacked || places=("$gradmeter" "$build/tests")
  commit
  find "${places[@]}" -type f -perm -u+x -print0 2>/dev/null | sort -z | xargs -0r cksum | cksum
}

# Steps that other programs have ended say nothing of these. The steps of the build itself are of this command.
keep_own_steps() {
  local own name
  local -a others
  own=$(identity)
  if [ ! -e "$state/identity" ] || [ "$own" != "$(<"$state/identity")" ]; then
    mapfile -t others < <(find "$state/steps" -type f ! -name 'configure.*' ! -name 'build.*')
    [ ${#others[@]} -eq 0 ] || echo "gpu-check: what was run before was of other programs, and is run again"
    for name in "${others[@]}"; do rm -f "$name"; done
    echo "$own" >"$state/identity"
  fi
}

all_rows() {
  local name
  for name in "${steps[@]}"; do cat "$(kept "$name" row)" 2>/dev/null || cat "$(kept "$name" left)" 2>/dev/null; done
}
count_rows() { # OUTCOMES, a pattern
  all_rows | cut -d'|' -f3 | grep -cE "^ ($1) $" || :
}
output_of() { # WHAT OTHERWISE
  sed 1d "$(kept "$1" log)" 2>/dev/null || echo "$2"
}

rows_file() {
  local name
  for name in rows.jsonl rows.jsonl.gz; do
    [ ! -e "$out/$name" ] || { echo "$name" && return; }
  done
  echo none
}

write_report() {
  local nothing="**On the tests' emulated CUDA runtime: no time and no rate here is a measurement.**"
  $emulated || nothing="GPU before: $state_before; after: $(gpu_state | paste -sd';')"
  summary="$(count_rows passed) passed, $(count_rows "$bad") failed, $(count_rows stopped) stopped by their limits, \
$(count_rows missed) missed a bar, $(count_rows refused) refused, $(count_rows 'not run') not run"
  cat >"$out/report.md" <<REPORT
# GPU check

$(date -u +%Y-%m-%dT%H:%MZ), commit $(commit), preset $preset: $summary.
$nothing

| step | outcome | seconds | note |
| --- | --- | ---: | --- |
$(all_rows)

Rows: $(rows_file). All output: logs.tar.gz.

## Bars
Kernels beside the bare library and the device's own copy (tests/bench/device_speed.cpp):
\`\`\`
$(output_of bars "not measured")
\`\`\`

## What the device does
\`\`\`
$(output_of 'IPC of two processes' "two processes: not asked")
$(output_of 'streams that wait for each other' "streams: not asked")
\`\`\`

## PyTorch
$(output_of 'PyTorch beside it' "not compared")

## What this cannot show
- Ranks as processes: they need MPI. On one GPU and with MPI:
  \`cmake --preset cuda && cmake --build --preset cuda && mpirun -np 2 build/cuda/gradmeter allreduce --device cuda\`
- NCCL beyond one rank: NCCL before 2.30 refuses two ranks on one GPU. Two GPUs: \`DEVICE=cuda RANKS_PER_NODE=2 bash jobs/weak-scaling.sh\`
- All-reduce against NCCL, overlap and scaling: 2 to 8 GPUs with NVLink, the same script.
REPORT
}

# At most 8 files under 16 MiB: what is larger is packed, and of a log the beginning and the end stay.
collect() {
  local name packed=$state/logs
  rm -rf "$packed" "$out"/{report.md,rows.jsonl,rows.jsonl.gz,logs.tar.gz}
  mkdir -p "$packed"
  for name in "${steps[@]}"; do
    [ ! -e "$(kept "$name" jsonl)" ] || cat "$(kept "$name" jsonl)" >>"$out/rows.jsonl"
    # shellcheck disable=SC2094  # two files
    [ ! -e "$(kept "$name" log)" ] || (head -c 200K && echo && tail -c 200K) <"$(kept "$name" log)" >"$packed/$(basename "$(kept "$name" log)")"
  done
  tar -C "$state" -czf "$out/logs.tar.gz" logs
  rm -rf "$packed"
  if [ -e "$out/rows.jsonl" ] && [ "$(stat -c %s "$out/rows.jsonl")" -gt 15000000 ]; then gzip -9f "$out/rows.jsonl"; fi
  write_report
}

# --- What is asked for

if [ -n "$fetch" ]; then
  fetch_debs "$fetch"
  exit
fi
if $plan; then
  gradmeter=gradmeter
  measure_everything
  printf '%-10s %-32s %4d s\n' all '' "$total"
  exit
fi
mkdir -p "$out" "$state/steps"
out=$(cd "$out" && pwd)
gradmeter=$(program gradmeter)

prepare() {
  if [ -n "$debs" ]; then
    unpack_debs >"$state/debs.log" 2>&1 || refuse 1 "the packages in $debs cannot be unpacked: $(tail -n 1 "$state/debs.log")"
  else
    gradmeter_install gpu >"$state/packages.log" 2>&1  # CMake names what is still missing
  fi
  rm -f "$(kept configure row)" "$(kept build row)"  # the tree may have changed
  must build configure 120 cmake --preset "$preset" -B "$build" "${configuration[@]}" &&
    must build build 7200 cmake --build "$build" --parallel "$(nproc)" --target gradmeter device_tests
}

if [ -n "$bundle" ]; then
  find_toolkit
  if ! $finished; then
    $emulated || configuration+=(-DGRADMETER_CUDA_ARCHITECTURES=90)
    minutes=120 deadline=$((SECONDS + 7200))
    prepare || refuse 1 "there is nothing to pack: $(last_line)"
  fi
  exec python3 scripts/gpu-bundle.py "$build" "$bundle" ${debs:+--debs "$debs"}
fi

if $unpacked; then
  find_libraries
  [ ${#missing[@]} -eq 0 ] || refuse 3 "no ${missing[*]}: neither in the toolkit (${CUDA_HOME:-/usr/local/cuda}, or set CUDA_HOME) nor in python3's packages nvidia/*; else build from $build/source: scripts/gpu-check.sh --debs $build/debs"
fi
if $finished; then
  [ -x "$gradmeter" ] || refuse 2 "--build $build has no gradmeter: give an unpacked bundle or a finished build"
  find_toolkit
  alive=$(timeout --kill-after=5 60 "$(program ipc_probe)" --alive 2>&1) || refuse 3 "no GPU can be used (${alive:-no answer within 60 s})"
  echo "$alive"
elif ! $emulated; then
  find_gpu
fi
state_before=$(gpu_state | paste -sd';')
if $finished || prepare; then
  keep_own_steps
  measure_everything
fi
collect
echo "$summary"
echo "report: $out/report.md"
[ -z "$lost" ] || echo "gpu-check: $lost"
[ -z "$lost" ] && [ "$(count_rows "$bad")" -eq 0 ]
