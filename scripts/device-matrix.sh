#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of device code over the emulated CUDA runtime under many orders of its work, and under sanitizers.
# Usage: scripts/device-matrix.sh [--seeds N] [--out FILE] [PRESET...]
#   --seeds N   orders a test runs under without a sanitizer (default: 20); with one 3
#   --out FILE  writes the table there too
#   PRESET      of cuda-emulated, cuda-emulated-asan, cuda-emulated-tsan (default: all)
# The thread sanitizer takes each kernel's thread for a thread: there tests of whole trainings in every strategy, model and
# codec keep one case of each kind. Exit codes: 0 all pass; 1 a build or a program failed, or a program is not there; 2 wrong
# arguments.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

seeds=20 out='' presets=()
refuse() {
  echo "device-matrix: $1" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case "$1" in
    --seeds | --out)
      [ $# -gt 1 ] || refuse "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    cuda-emulated | cuda-emulated-asan | cuda-emulated-tsan) presets+=("$1") ;;
    -h | --help)
      sed -n '3,11s/^# //p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) refuse "unknown argument '$1'; scripts/device-matrix.sh --help lists them" ;;
  esac
  shift
done
[[ $seeds =~ ^[1-9][0-9]{0,3}$ ]] || refuse "'$seeds' is not a number of seeds; give a whole number from 1"
[ ${#presets[@]} -gt 0 ] || presets=(cuda-emulated cuda-emulated-asan cuda-emulated-tsan)
programs=(test_cuda_emulator test_runtime_device test_runtime_nccl test_compression_device test_kernels_device
  test_allreduce_device test_allreduce_nccl test_allreduce_nccl_messages test_dataparallel_device test_dataparallel_device_losses)

# What a sanitizer leaves out: more of what other cases run.
filter_of() { # PRESET PROGRAM
  case $1:$2 in
    cuda-emulated-tsan:test_dataparallel_device)
      echo '*HasTheHostsBits/sync:*HasTheHostsBits/gossip:*HasTheHostsBits/ps_sync:DeviceAsynchronous.*'
      ;;
    cuda-emulated-tsan:test_dataparallel_device_losses) echo '*/sync:*/bmuf*:DeviceSteps.*:DeviceLossesWithAScale.*' ;;
    *) echo '*' ;;
  esac
}

failed=false
rows=()
row() {
  rows+=("$1")
  echo "$1"
}
run_program() { # PRESET PROGRAM
  local start=$SECONDS log path passed code=0 count=$seeds
  [ "$1" = cuda-emulated ] || count=3
  log=build/$1/$2.matrix.log
  path=$(echo build/"$1"/tests/*/"$2")
  [ -x "$path" ] || {
    failed=true
    row "| $1 | $2 | **not there**: configuring did not find a library that it needs | | |"
    return
  }
  GRADMETER_DEVICE_SEEDS=$count OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0 \
    TSAN_OPTIONS="suppressions=$PWD/tests/thread_sanitizer.supp" \
    setarch --addr-no-randomize "$path" --gtest_brief=1 --gtest_filter="$(filter_of "$1" "$2")" >"$log" 2>&1 || code=$?
  # The processes of death tests say it too, before the program does.
  passed=$(grep -Eo 'PASSED  \] [0-9]+' "$log" | tail -n 1 | grep -Eo '[0-9]+$' || echo 0)
  if [ "$code" -ne 0 ] || [ "$passed" -eq 0 ]; then
    failed=true
    row "| $1 | $2 | **exit code $code**, $passed pass: see $log | $count | $((SECONDS - start)) |"
  else
    row "| $1 | $2 | $passed pass | $count | $((SECONDS - start)) |"
  fi
}

row "| preset | program | outcome | seeds | seconds |"
row "| --- | --- | --- | ---: | ---: |"
for preset in "${presets[@]}"; do
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" >/dev/null || exit 1
  if ! cmake --build --preset "$preset" --target device_tests >"build/$preset/matrix.log" 2>&1; then
    row "| $preset | its build | **failed**: see build/$preset/matrix.log | | |"
    failed=true
    continue
  fi
  for program in "${programs[@]}"; do run_program "$preset" "$program"; done
  for path in build/"$preset"/tests/*/test_*_{device,nccl}*; do
    [[ ! -x $path || " ${programs[*]} " == *" ${path##*/} "* ]] || {
      failed=true
      row "| $preset | ${path##*/} | **not in the list of this script** | | |"
    }
  done
done
[ -z "$out" ] || cat >"$out" <<REPORT
# Device tests under many orders

\`scripts/device-matrix.sh --seeds $seeds --out $out\`, $(date -u +%Y-%m-%d), on the tests' emulated CUDA runtime: every test of device
code, under so many orders of the device's work, and under both sanitizers; of whole trainings ThreadSanitizer has one case of each kind.
Seconds are of a busy machine.

$(printf '%s\n' "${rows[@]}")
REPORT
if $failed; then exit 1; fi
