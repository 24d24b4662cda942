#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# The script in a repository of its own, on a machine whose GPU, compiler and builds are stand-ins.
mkdir -p "$work/repo"
cp -r "$root/scripts" "$work/repo/"
report=$work/repo/results/gpu-check/report.md
PATH=$work/bin:/usr/bin:/bin
export CUDA_HOME=$work/no-toolkit
unset CUDA_VISIBLE_DEVICES
stand_in dpkg-query <<<'echo -n installed'
stand_in git <<<'exit 128'
stand_in nvidia-smi <<<'echo "GPU of the tests, 580.1, 345 MHz"'
stand_in ctest <<'END'
echo "ctest $*"
[ -z "${BROKEN_TEST:-}" ] || { echo "86% tests passed, 1 tests failed out of 7"; exit 8; }
echo "100% tests passed, 0 tests failed out of 7"
END
stand_in cmake <<END
echo "cmake \$*"
[ "\$1" = --build ] || exit 0
[ -z "\${BROKEN_BUILD:-}" ] || { echo "one.cu(3): error: no such thing"; exit 1; }
mkdir -p "\$2/tests/bench"
cp "$work/gradmeter" "\$2/gradmeter"
cp "$work/bench_device" "\$2/tests/bench/"
END
cat >"$work/bench_device" <<'END'
#!/usr/bin/env bash
echo "bf16 8192³ / bare cuBLASLt  0.990  0.98-1.00  0.97  met"
[ -z "${SLOW_SUMS:-}" ] || { echo "sum of 2 in fp32 / copy  0.500  0.49-0.51  0.90  MISSED"; exit 1; }
[ -z "${WRONG_BENCH:-}" ] || { echo "bench_device: no such kernel" >&2; exit "$WRONG_BENCH"; }
END
cat >"$work/gradmeter" <<'END'
#!/usr/bin/env bash
[ "$1" != "${REFUSED:-}" ] || { echo "gradmeter: --device: 'cuda' is not known | there are: cpu" >&2; exit "${REFUSED_CODE:-2}"; }
echo "gradmeter $*"
END
chmod +x "$work/gradmeter" "$work/bench_device"
run() {
  rm -rf "$work/repo/build" "$work/repo/results"
  try bash "$work/repo/scripts/gpu-check.sh" "$@"
}
log() { cat "$work/repo/results/gpu-check/log.txt"; }
report() { sed -E 's/\| [0-9]+ \|/| s |/' "$report"; }  # the times are this machine's
lines() { wc -l <<<"$output"; }

# --- nothing to run on
run
expect_equal "no toolkit" 3 "$code"
expect_equal "no toolkit: one line" 1 "$(lines)"
expect_contains "no toolkit: says where it looked" "no CUDA toolkit: nvcc is neither on the PATH nor in $work/no-toolkit/bin" "$output"
# nvcc makes programs that answer as a driver would.
stand_in nvcc <<'END'
[ -z "${BROKEN_NVCC:-}" ] || { echo "fatal error: unsupported GNU version"; exit 1; }
printf '#!/bin/sh\necho "%s"\necho "90 ${DEVICES:-1}"\nexit %s\n' "${NO_DRIVER:-}" "${NO_DRIVER:+3}" >"$2"
chmod +x "$2"
END
NO_DRIVER="CUDA driver version is insufficient" run
expect_equal "no driver" 3 "$code"
expect_equal "no driver: one line" 1 "$(lines)"
expect_contains "no driver: the runtime's reason" "no GPU can be used (CUDA driver version is insufficient)" "$output"
BROKEN_NVCC=1 run
expect_equal "nvcc that compiles nothing" 1 "$code"
expect_contains "and why" "compiles no program: fatal error: unsupported GNU version" "$output"

# --- all is well
run
expect_equal "passes" 0 "$code"
expect_contains "without MPI and oneDNN" "-DGRADMETER_MPI=OFF -DGRADMETER_ONEDNN=OFF" "$(log)"
expect_contains "for this GPU alone" "-DGRADMETER_CUDA_ARCHITECTURES=90" "$(log)"
expect_contains "the tests of CUDA code" "ctest --test-dir build/gpu-check-cuda --label-regex device" "$(log)"
for command in "kernels --device cuda" "codecs --device cuda" "train --device cuda --thread-ranks 1" "allreduce --device cuda --thread-ranks 2"; do
  expect_contains "measures $command" "gradmeter $command" "$(log)"
done
expect_contains "the report: tests" "| tests | ok | s | 100% tests passed, 0 tests failed out of 7 |" "$(report)"
expect_contains "the report: bars" "| bars | ok | s | 1 of 1 |" "$(report)"
expect_contains "and what was measured for them" "bf16 8192³ / bare cuBLASLt  0.990" "$(report)"
expect_contains "the report: the GPU" "GPU of the tests, 580.1" "$(report)"
expect_contains "the report: what needs processes or more GPUs" "NCCL beyond one rank" "$(report)"
expect_contains "and IPC" "CUDA IPC: ranks must be processes" "$(report)"
DEVICES=4 run
expect_contains "a machine with more GPUs" "This machine has 4 GPUs." "$(report)"

# --- what goes wrong
REFUSED=codecs run
expect_equal "a refusal is no failure" 0 "$code"
expect_contains "it is reported, with the reason" \
  "| codecs | refused | s | gradmeter: --device: 'cuda' is not known \\| there are: cpu |" "$(report)"
expect_contains "the rest is measured" "| their all-reduce | ok |" "$(report)"
SLOW_SUMS=1 run
expect_equal "a bar that is missed is no failure" 0 "$code"
expect_contains "it is reported" "| bars | missed | s | 1 of 2; see below |" "$(report)"
WRONG_BENCH=3 run
expect_equal "a benchmark that breaks is one" 1 "$code"
expect_contains "it is reported, and is no missed bar" "| bars | failed (3) | s | bench_device: no such kernel |" "$(report)"
REFUSED=codecs REFUSED_CODE=4 run
expect_equal "a wrong result is a failure" 1 "$code"
expect_contains "it is named" "| codecs | WRONG |" "$(report)"
REFUSED=codecs REFUSED_CODE=5 run
expect_equal "a GPU that is lost is a failure" 1 "$code"
expect_contains "it is named" "| codecs | GPU lost |" "$(report)"
REFUSED=codecs REFUSED_CODE=139 run
expect_equal "so is a crash" 1 "$code"
BROKEN_TEST=1 run
expect_equal "so is a failed test" 1 "$code"
expect_contains "it is reported" "| tests | failed | s | 86% tests passed, 1 tests failed out of 7 |" "$(report)"
expect_contains "and there are figures" "| codecs | ok |" "$(report)"
BROKEN_BUILD=1 run
expect_equal "and a failed build" 1 "$code"
expect_contains "with its first error" "| build | failed | s | one.cu(3): error: no such thing |" "$(report)"
expect_lacks "after which nothing is measured" "| codecs |" "$(report)"
# timeout that takes only gradmeter for too slow
stand_in timeout <<'END'
shift 2
case "$1" in *gradmeter) exit 124 ;; *) exec "$@" ;; esac
END
run
expect_equal "too slow is no failure" 0 "$code"
expect_contains "it is reported" "| codecs | stopped | s | after 60 s" "$(report)"
rm "$work/bin/timeout"
stand_in cmake <<<'exit 124'
run
expect_equal "too slow a build is one" 1 "$code"
expect_contains "it is reported" "| configure | stopped |" "$(report)"

# --- stopped: what it runs is stopped too
stand_in cmake <<END
touch "$work/started"
trap "touch '$work/told'; exit 1" TERM
for ((i = 0; i < 100; i++)); do sleep .1; done
END
bash "$work/repo/scripts/gpu-check.sh" >/dev/null 2>&1 &
job=$!
appears() { # FILE
  local i
  for ((i = 0; i < 100; i++)); do
    [ ! -e "$1" ] || return 0
    sleep .1
  done
  return 1
}
appears "$work/started"
kill -TERM "$job"
code=0
wait "$job" || code=$?
expect_equal "stopped by SIGTERM" 143 "$code"
appears "$work/told" || expect_equal "and what it ran is told" told "not told"

# --- on the emulated runtime: no toolkit and no GPU
stand_in cmake <<END
echo "cmake \$*"
[ "\$1" != --build ] || { mkdir -p "\$2/tests/bench" && cp "$work/gradmeter" "\$2/" && cp "$work/bench_device" "\$2/tests/bench/"; }
END
rm "$work/bin/nvcc"
run --emulated --out "$work/elsewhere"
expect_equal "emulated: passes without a toolkit" 0 "$code"
expect_contains "emulated: its preset" "cmake --preset cuda-emulated -B build/gpu-check-cuda-emulated" "$(cat "$work/elsewhere/log.txt")"
expect_contains "emulated: says that it measured nothing" "no rate here is a measurement" "$(cat "$work/elsewhere/report.md")"
expect_lacks "emulated: no GPU's state" "GPU before" "$(cat "$work/elsewhere/report.md")"

# --- packages for a machine without network
stand_in apt-cache <<<'printf "libfmt-dev\n  Depends: libfmt9\nlibfmt9\nlibc6\n"'
stand_in apt-get <<<'echo "apt-get $*"'
run --fetch "$work/debs"
expect_contains "downloads them, and what the machine will have not" "apt-get -q download libfmt-dev libfmt9" "$output"
touch "$work/debs/one.deb"
stand_in dpkg <<'END'
echo "dpkg $*"
END
run --emulated --debs "$work/debs"
expect_equal "unpacks them" 0 "$code"
expect_contains "beside the build" "dpkg -x $work/debs/one.deb $work/repo/build/gpu-check-cuda-emulated/debs" "$(log)"

run --debs "$work/none"
expect_equal "no such folder" 2 "$code"
run --minutes soon
expect_equal "no number of minutes" 2 "$code"
run --fast
expect_equal "an unknown argument" 2 "$code"
run --help
expect_contains "the help has the exit codes" "3 there is no toolkit or no GPU" "$output"
finish
