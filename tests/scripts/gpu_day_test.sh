#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first day on a GPU, rehearsed on the emulated device: a bundle of this build, unpacked elsewhere, all steps run from it; a
# step that fails and one that hangs are reported as such, and a second start repeats nothing.
# Usage: gpu_day_test.sh BUILD
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
build=$1
for tool in patchelf xz; do
  command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
begin=$SECONDS
took() { echo "$((SECONDS - begin)) s: $*"; }

try bash "$root/scripts/gpu-check.sh" --bundle "$work/bundle.tar.xz" --build "$build"
took "$output"
expect_equal "the bundle is made" 0 "$code"
[ "$code" -eq 0 ] || finish
tar -xJf "$work/bundle.tar.xz" -C "$work"
there=$work/gpu-check
report() { cat "$work/out/report.md"; }
check() { # ARGUMENTS...
  try bash "$there/source/scripts/gpu-check.sh" --build "$there" --out "$work/out" "$@"
  took "$*: exit $code"
}
outcome() { # STEP
  sed -n "s/^| $1 | \([^|]*\) |.*/\1/p" "$work/out/report.md"
}

# A step that fails, and one that hangs.
mv "$there/bin/bench_device" "$there/bin/test_runtime_device" "$work"
printf '#!/bin/sh\necho bench_device: no such kernel >&2\nexit 3\n' >"$there/bin/bench_device"
printf '#!/bin/sh\nexec sleep 100\n' >"$there/bin/test_runtime_device"
chmod +x "$there/bin/bench_device" "$there/bin/test_runtime_device"
try bash "$there/source/scripts/gpu-check.sh" --build "$there" --out "$work/out" --only bars
expect_equal "a step that fails: exit 1" 1 "$code"
expect_equal "it is reported" "failed (3)" "$(outcome bars)"
mv "$there/tests.txt" "$work" && echo test_runtime_device >"$there/tests.txt"
check --only tests --limit 3
expect_equal "a step that hangs: exit 1" 1 "$code"
expect_equal "it is reported" hung "$(outcome test_runtime_device)"
expect_equal "and what was not asked for" "not run" "$(outcome codecs)"

# All is well again.
mv "$work/bench_device" "$work/test_runtime_device" "$there/bin"
# Of the programs with tests two, and one of NCCL's: ctest runs all of them beside this.
grep -E '^test_(runtime|kernels)_device$|nccl$' "$work/tests.txt" >"$there/tests.txt"
expect_equal "tests of both kinds are in the bundle" yes "$([ "$(wc -l <"$there/tests.txt")" -ge 3 ] && echo yes)"
rm -r "$there/gpu-check/steps"
check --minutes 30
expect_equal "the whole day" 0 "$code"
[ "$code" -eq 0 ] || report
for step in 'IPC of two processes' doctor bars products codecs 'training of mlp' 'two ranks of threads' 'gpu-direct and gpu-ring' \
  'streams that wait for each other' $(grep -v nccl "$there/tests.txt"); do
  expect_equal "$step" passed "$(outcome "$step")"
done
expect_equal "the sanitizer needs a GPU" "not run" "$(outcome 'memcheck of test_compression_device')"
expect_contains "the report has no rates" "no time and no rate here is a measurement" "$(report)"
expect_equal "few files" yes "$(find "$work/out" -type f | wc -l | awk '{print $1 <= 8 ? "yes" : $1}')"
expect_equal "none of them large" "" "$(find "$work/out" -size +15M)"
expect_contains "the log of each step" "logs/codecs.log" "$(tar -tzf "$work/out/logs.tar.gz")"
try python3 -c 'import json, sys; print(len([json.loads(l) for l in open(sys.argv[1])]) > 8)' "$work/out/rows.jsonl"
expect_equal "the rows" True "$output"
before=$SECONDS
check --minutes 30
expect_equal "a second start: exit 0" 0 "$code"
expect_equal "and repeats nothing" yes "$([ $((SECONDS - before)) -lt 20 ] && echo yes)"
finish
