#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every check; goes on after a failed check (not after a failed build), and
# ends with ctest's own summaries and a table of the stages, with the files and tests that failed below theirs. Exit status 0:
# everything that ran passed. Every check looks at all files, wherever it runs; .ci/run is this command with two of its flags.
# Usage: scripts/test.sh [--preset NAME] [--quick] [--sanitizers] [--within MINUTES]
#   --preset NAME   a preset of CMakePresets.json (default: ci, warnings are errors)
#   --quick         the unit tests and the format only: no real ranks, no clang-tidy
#   --sanitizers    also the asan and tsan presets
#   --within MIN    after the tests, no stage begins when so many minutes are over: on a slow machine the last ones are left out, and
#                   named as such, where a limit of the machine's would end the whole run without any result
# shellcheck disable=SC2317  # the functions below are called through stage
set -uo pipefail

preset=ci
quick=false
sanitizers=false
within=''
while [ $# -gt 0 ]; do
  case "$1" in
    --preset)
      preset=${2:?"--preset needs a name"}
      shift
      ;;
    --quick) quick=true ;;
    --sanitizers) sanitizers=true ;;
    --within)
      within=${2:?"--within needs a number of minutes"}
      shift
      ;;
    -h | --help)
      sed -n '3,11s/^# //p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "test: unknown argument '$1'; scripts/test.sh --help lists them" >&2
      exit 2
      ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
# What presets compile by the same command is compiled once: paths relative to the tree, and no build folder in what ccache compares.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
jobs=$(nproc)
logs=build/stages  # what each stage printed
report=()          # one line for each stage, then one for each file or test of it that failed
failed=()          # names of the stages that failed
stages=0           # that ran
skipped=''         # how many were skipped, in words
left_out=()        # names of the stages that had no time
last_begin=''      # seconds after which no stage begins
summaries=()       # logs of the stages that ran ctest, in order
wrapper=(env)      # what builds and tests run under

# What a stage says that failed, each once: files with an error of a compiler, clang-tidy or clang-format, ninja's targets, ctest's
# tests, and lines "failed: NAME" of our own scripts. Of a test, also the checks that failed with what they found.
failures_in() { # LOG
  sed -nE -e "s#^($PWD/)?([^: ]+):[0-9]+:[0-9]+: (fatal )?error: .*#\2#p" -e 's/^FAILED: (.*[^ ]) *$/\1/p' \
    -e '/^FAILED [^:]/{N;N;s/^FAILED //;s/\n {7}/\n    /g;p}' -e 's/^\[  FAILED  \] ([^ ,]+).*ms\)$/\1/p' \
    -e 's/^[[:blank:]]+[0-9]+ - (.*)$/\1/p' -e 's/^failed: (.*)$/\1/p' "$1" | cut -c 1-400 | awk '!seen[$0]++'
}

# Runs a stage, keeps what it prints, notes its time and its outcome, and returns the outcome.
stage() { # NAME COMMAND...
  local name=$1 start=$SECONDS code=0
  local log=$logs/${name// /-}.log
  if [ -n "$last_begin" ] && [ "$start" -ge "$last_begin" ]; then
    left_out+=("$name")
    report+=("$(printf '%-24s           left out: no time' "$name")")
    return 1
  fi
  shift
  mkdir -p "$logs"
  printf '\n==> %s\n' "$name"
  # In braces: else a program's own process starts tee, and there is nothing to wait for here.
  { "$@"; } > >(tee "$log") 2>&1 || code=$?
  wait $!
  local outcome=passed
  if [ "$code" -eq 77 ]; then
    outcome=skipped code=0
    skipped=", $((${skipped//[!0-9]/} + 1)) of them skipped"
  elif [ "$code" -ne 0 ]; then
    outcome="FAILED ($code)"
    failed+=("$name")
  fi
  report+=("$(printf '%-24s %6d s  %s' "$name" $((SECONDS - start)) "$outcome")")
  [ "$code" -eq 0 ] || mapfile -t -O ${#report[@]} report < <(failures_in "$log" | sed 's/^/    /')
  stages=$((stages + 1))
  return "$code"
}

# Every C++ source of the repository, new files included, one a line; without git (a tarball) whatever is there.
sources() {
  git ls-files --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cu' '*.cuh' 2>/dev/null ||
    find src tests -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh'
}

check_format() {
  local tool
  tool=$(command -v clang-format-14 || command -v clang-format) || return
  sources | xargs -r "$tool" --dry-run -Werror && echo "$(sources | wc -l) files are formatted"
}

has_nvcc() {
  [ -x "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)" ]
}

# The program built with CUDA (and without MPI) starts without a driver; asked for a GPU it ends with one line and exit code 3.
check_without_gpu() {
  ! nvidia-smi -L >/dev/null 2>&1 || return 77
  local said code=0
  said=$(build/cuda/gradmeter allreduce --device cuda --thread-ranks 2 2>&1) || code=$?
  echo "$said"
  [[ $code -eq 3 && $said == "gradmeter: --device cuda: "* && $said != *$'\n'* ]]
}

configure() { # PRESET [CMAKE ARGUMENTS...]
  cmake --preset "$1" -DGRADMETER_TESTS=ON "${@:2}"
}
build() { # PRESET [CMAKE ARGUMENTS...]
  "${wrapper[@]}" cmake --build --preset "$1" --parallel "$jobs" "${@:2}"
}
# Tests on real ranks are registered to run alone, the others run side by side: of the whole program's, which wait half of
# their time, half as many again as there are cores.
run_tests() { # PRESET [CTEST ARGUMENTS...]
  local at_once=$jobs
  [ "$1" != "$preset" ] || at_once=$((jobs + (jobs + 1) / 2))
  summaries+=("$logs/test-$1.log")
  "${wrapper[@]}" ctest --preset "$1" --parallel "$at_once" "${@:2}"
}

prepare() { # PRESET
  stage "configure $1" configure "$1" && stage "build $1" build "$1"
}

finish() {
  local log
  for log in ${summaries[@]+"${summaries[@]}"}; do
    printf '\n==> %s\n' "$log"
    sed -n '/% tests passed/,$p' "$log"
  done
  printf '\n==> stages\n'
  printf '%s\n' "${report[@]}"
  local names
  if [ ${#left_out[@]} -gt 0 ]; then
    printf -v names '%s, ' "${left_out[@]}"
    echo "NOT CHECKED, as $within minutes were over: ${names%, }, and what follows from these"
  fi
  if [ ${#failed[@]} -gt 0 ]; then
    printf -v names '%s, ' "${failed[@]}"
    echo "FAILED: ${names%, }"
    exit 1
  fi
  echo "all $stages stages passed$skipped${left_out:+; ${#left_out[@]} were left out}"
  exit 0
}

stage packages gradmeter_install build test || finish
scripts/charts.sh || echo "charts are not drawn, and not tested: no vl-convert"
scripts/reframe.sh --install || echo "ReFrame's check is not run"
# Before anything is configured: else the first run of a clone would check other sources than the second.
if ! $quick && has_nvcc; then
  scripts/cusparselt.sh || echo "products in 2:4 are neither compiled nor run: no cuSPARSELt"
fi
stage format check_format
prepare "$preset" || finish
if $quick; then
  stage "test $preset" run_tests "$preset" --label-regex unit
else
  stage "test $preset" run_tests "$preset"
  last_begin=${within:+$((60 * within))}
  stage slurm scripts/slurm-in-a-box.sh test "build/$preset/gradmeter"
  # Configured only, never built.
  stage "configure tidy" configure tidy && stage clang-tidy scripts/tidy.sh
  # A missing include that a unity build hides; in kernels too where the toolkit's headers are.
  emulated=OFF
  ! has_nvcc || emulated=ON
  stage "configure alone" configure alone -DGRADMETER_CUDA_EMULATED=$emulated &&
    stage "compile alone" scripts/compile-alone.py
fi
# CUDA code: over an emulated runtime, and by nvcc, where the toolkit is. The latter needs a GPU to run.
if $quick; then
  :
elif has_nvcc; then
  prepare cuda-emulated && stage "test cuda-emulated" run_tests cuda-emulated
  # As a bundle wants it; the host's part is compiled with MPI by the preset cuda-emulated.
  stage "configure cuda" configure cuda -DGRADMETER_CUDA_ARCHITECTURES=90 -DGRADMETER_MPI=OFF -DGRADMETER_ONEDNN=OFF -DGRADMETER_GLOO=OFF &&
    stage "build cuda" build cuda --target device_tests gradmeter && {
    stage "refuse cuda" check_without_gpu
    stage "pack cuda" scripts/gpu-check.sh --bundle build/gpu.tar.xz --build build/cuda
    stage "device code" scripts/check-device-code.py --ptx-only
  }
else
  echo "CUDA code is not checked: no nvcc"
fi
if $sanitizers; then
  prepare asan && stage "test asan" run_tests asan
  # On kernels that randomise addresses widely the thread sanitizer of GCC 12 finds no room for its shadow memory.
  # The build runs the test programs too: to list their cases.
  if setarch --addr-no-randomize true 2>/dev/null; then wrapper=(setarch --addr-no-randomize); fi
  prepare tsan && stage "test tsan" run_tests tsan
fi
finish
