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
unset CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH
stand_in dpkg-query <<<'echo -n installed'
stand_in git <<<'exit 128'
stand_in nvidia-smi <<<'echo "GPU of the tests, 580.1, 345 MHz"'
# Lists the tests of CUDA code, as ctest does with two shards of one program.
stand_in ctest <<'END'
test() { printf '{"name":"%s","command":["%s","--gtest_brief=1"]}' "$1.$2" "$PWD/build/gpu-check-cuda/tests/x/$1"; }
echo "{\"tests\":[$(test test_sums_device 0),$(test test_sums_device 1),$(test test_allreduce_device 0),$(test bench_device 0),$(test test_x_nccl 0)]}"
END
# What a build makes: stand-ins for its programs. GOES_WRONG=PROGRAM:CODE.
cat >"$work/program" <<'END'
#!/usr/bin/env bash
name=$(basename "$0")
[ "$*" != --version ] || { echo "gradmeter 0.2.0 (${COMMIT:-unknown})"; exit; }
echo "$name $*" >>"$CALLS"
[ "$name" != gradmeter ] || echo "gradmeter 0.2.0 (0123abc)  ${1:-}  1 rank on 1 node"
echo "${LD_LIBRARY_PATH:-}" >"$CALLS.path"
[ "${HANGS:-}" != "$name" ] || exec sleep 60
[ "${GPU_DIES_IN:-}" != "$name" ] || { touch "$CALLS.dead"; exit 139; }
case "$name $*" in
  "ipc_probe --alive") [ ! -e "$CALLS.dead" ] && echo "GPU of the tests, compute capability 9.0"; exit ;;
  ipc_probe*) echo "kernels of two processes: met" ;;
  bench_device*)
    echo "bf16 8192³ / bare cuBLASLt  0.990  0.98-1.00  0.97  met"
    [ -z "${SLOW_SUMS:-}" ] || { echo "sum of 2 in fp32 / copy  0.500  0.49-0.51  0.90  MISSED"; exit 1; }
    ;;
  test_*) echo "[  PASSED  ] 7 tests." ;;
esac
case "${GOES_WRONG:-}" in "$name:"*) echo "$name: a reason"; exit "${GOES_WRONG#*:}" ;; esac
[ -z "${REFUSED:-}" ] || [ "$1" != "$REFUSED" ] || { echo "gradmeter: ${WHY:---device: 'cuda' is not known | there are: cpu}" >&2; exit "${REFUSED_CODE:-2}"; }
while [ $# -gt 1 ]; do
  [ "$1" != --out ] || echo "{\"row of\":\"$name\"}" >"$2"
  [ -z "${LONG:-}" ] || [ "$1" != --out ] || head -c 2M /dev/zero >>"$2"
  shift
done
END
chmod +x "$work/program"
stand_in cmake <<END
echo "cmake \$*"
[ "\$1" = --build ] || exit 0
[ -z "\${BROKEN_BUILD:-}" ] || { echo "one.cu(3): error: no such thing"; exit 1; }
mkdir -p "\$2/tests/x"
cp "$work/program" "\$2/gradmeter"
for name in bench_device ipc_probe streams_probe test_sums_device test_allreduce_device; do cp "$work/program" "\$2/tests/x/\$name"; done
END
stand_in compute-sanitizer <<'END'
[ -z "${RACE:-}" ] || { echo "========= Error: Race reported between Write access"; exit 9; }
echo "========= ERROR SUMMARY: 0 errors"
END
# No PyTorch here.
stand_in python3 <<'END'
case "$1" in *compare-pytorch.py) echo "compare-pytorch: PyTorch or numpy is missing" >&2; exit 2 ;; esac
exec /usr/bin/python3 "$@"
END
export CALLS=$work/calls
again() { # ARGUMENTS...
  : >"$CALLS"
  try bash "$work/repo/scripts/gpu-check.sh" "$@"
}
run() {
  rm -rf "$work/repo/build" "$work/repo/results" "$CALLS.dead"
  again "$@"
}
log() { tar -xzOf "$work/repo/results/gpu-check/logs.tar.gz"; }
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
for command in "kernels --device cuda" "codecs --device cuda" "train --device cuda --thread-ranks 1" "allreduce --device cuda --thread-ranks 2"; do
  expect_contains "measures $command" "gradmeter $command" "$(<"$CALLS")"
done
expect_contains "the report: a program of tests, once for its shards" "| test_sums_device | passed | s | [  PASSED  ] 7 tests. |" "$(report)"
expect_equal "which ran once" 1 "$(grep -c '^test_sums_device' "$CALLS")"
expect_contains "kernels that wait for each other are left out" "test_allreduce_device --gtest_filter=-*GpuDirect*" "$(<"$CALLS")"
expect_equal "and come last, but for the streams" "test_allreduce_device --gtest_filter=*GpuDirect*:*GpuRing*
streams_probe " "$(tail -n 2 "$CALLS")"
expect_contains "the report: bars" "| bars | passed | s | 1 of 1 |" "$(report)"
expect_contains "and what was measured for them" "bf16 8192³ / bare cuBLASLt  0.990" "$(report)"
expect_contains "the report: the GPU" "GPU of the tests, 580.1" "$(report)"
expect_contains "the report: what the device does" "kernels of two processes: met" "$(report)"
expect_contains "the report: the sanitizer" "| memcheck of test_compression_device | passed | s | ========= ERROR SUMMARY: 0 errors |" "$(report)"
expect_contains "the report: no PyTorch" "| PyTorch beside it | refused | s | compare-pytorch: PyTorch or numpy is missing |" "$(report)"
expect_contains "a summary" "0 failed, 0 stopped by their limits, 0 missed a bar, 1 refused, 0 not run" "$(report)"
expect_contains "rows of all commands in one file" '{"row of":"gradmeter"}' "$(<"$work/repo/results/gpu-check/rows.jsonl")"
expect_equal "three files" "logs.tar.gz report.md rows.jsonl" "$(cd "$work/repo/results/gpu-check" && echo *)"

# --- started again
again
expect_equal "nothing is repeated" "" "$(<"$CALLS")"
expect_contains "and its outcomes are still there" "| codecs | passed |" "$(report)"
again --only bars --again
expect_equal "unless it is asked for" "bench_device " "$(<"$CALLS")"
run --only probe,bars
expect_equal "parts of it" "ipc_probe 
bench_device 
streams_probe " "$(<"$CALLS")"
expect_contains "the others are in the report" "| codecs | not run | s | --only probe,bars |" "$(report)"
again
expect_lacks "and only they are run by the next command" bench_device "$(<"$CALLS")"
expect_contains "all of them" "gradmeter codecs" "$(<"$CALLS")"
run --minutes 1
expect_contains "no time left for long steps" "| bars | not run | s | it may take 90 s, and no time was left: run this again |" "$(report)"
expect_contains "short ones are run" "| products in fp32 | passed |" "$(report)"

# --- started again after a build of other programs
run
echo '# another commit' >>"$work/program"
again --only bars
expect_contains "what other programs have shown is not theirs" "| codecs | not run | s | --only bars |" "$(report)"
expect_contains "it says so" "what was run before was of other programs" "$output"
expect_lacks "nor are their rows" "row of" "$(cat "$work/repo/results/gpu-check/"rows.jsonl* 2>&1)"
expect_contains "the build itself is of this command" "| build | passed |" "$(report)"
again
expect_contains "and all is run again" "gradmeter codecs" "$(<"$CALLS")"
COMMIT=fed987-dirty again --build "$work/repo/build/gpu-check-cuda" --only bars
expect_contains "a finished build says itself of which commit it is" "commit fed987-dirty, " "$(report)"

# --- rows of more than 15 MB are packed, and what an earlier command packed goes
LONG=1 run --only rows
expect_equal "packed" "logs.tar.gz report.md rows.jsonl.gz" "$(cd "$work/repo/results/gpu-check" && echo *)"
expect_contains "the report has its name" "Rows: rows.jsonl.gz." "$(report)"
LONG=1 again --only rows --again
expect_contains "also where there is one of an earlier command" "Rows: rows.jsonl.gz." "$(report)"
again --only rows --again
expect_equal "and short ones replace it" "logs.tar.gz report.md rows.jsonl" "$(cd "$work/repo/results/gpu-check" && echo *)"

# --- what goes wrong
REFUSED=codecs run
expect_equal "a refusal is no failure" 0 "$code"
expect_contains "it is reported, with the reason" \
  "| codecs | refused | s | gradmeter: --device: 'cuda' is not known \\| there are: cpu |" "$(report)"
expect_contains "the rest is measured" "| their all-reduce | passed |" "$(report)"
REFUSED=codecs REFUSED_CODE=3 run --only rows
expect_equal "a command that a library failed is one" 1 "$code"
expect_contains "it is named, with the reason and not the first line of output" \
  "| codecs | failed (3) | s | gradmeter: --device: 'cuda' is not known \\| there are: cpu |" "$(report)"
expect_contains "the rest is measured" "| their all-reduce | passed |" "$(report)"
REFUSED=codecs REFUSED_CODE=3 WHY="cuSPARSELt, which is not built in" run --only rows
expect_equal "a library that is not built in is none" 0 "$code"
expect_contains "it is reported" "| codecs | refused | s | gradmeter: cuSPARSELt, which is not built in |" "$(report)"
REFUSED=codecs REFUSED_CODE=3 WHY="1 of 2 points failed and has no result, the first because: built without it" run --only rows
expect_equal "a point that failed is a failure" 1 "$code"
SLOW_SUMS=1 run --only bars
expect_equal "a bar that is missed is no failure" 0 "$code"
expect_contains "it is reported" "| bars | missed | s | 1 of 2; see below |" "$(report)"
GOES_WRONG=bench_device:3 run --only bars
expect_equal "a benchmark that breaks is one" 1 "$code"
expect_contains "it is reported, and is no missed bar" "| bars | failed (3) | s | bench_device: a reason |" "$(report)"
again --only doctor
expect_equal "and stays one while it is in the report" 1 "$code"
REFUSED=codecs REFUSED_CODE=4 run --only rows
expect_equal "a wrong result is a failure" 1 "$code"
expect_contains "it is named" "| codecs | WRONG |" "$(report)"
REFUSED=codecs REFUSED_CODE=5 run --only rows
expect_equal "a GPU that is lost is a failure" 1 "$code"
expect_contains "it is named" "| codecs | GPU lost |" "$(report)"
expect_contains "a GPU that answers again goes on" "| their all-reduce | passed |" "$(report)"
GPU_DIES_IN=test_sums_device run
expect_equal "a GPU that answers nothing any more is one" 1 "$code"
expect_contains "the crash is in the report" "| test_sums_device | failed |" "$(report)"
expect_contains "and nothing is tried on it" "| codecs | not run | s | since 'test_sums_device' the GPU answers nothing |" "$(report)"
expect_lacks "indeed" "gradmeter codecs" "$(<"$CALLS")"
GOES_WRONG=test_sums_device:1 run
expect_equal "so is a failed test" 1 "$code"
expect_contains "it is reported" "| test_sums_device | failed | s | test_sums_device: a reason |" "$(report)"
expect_contains "and there are figures" "| codecs | passed |" "$(report)"
RACE=1 run --only sanitizer
expect_equal "and what the sanitizer finds" 1 "$code"
expect_contains "with its words" "| racecheck of test_compression_device | failed | s | ========= Error: Race reported between Write access |" "$(report)"
BROKEN_BUILD=1 run
expect_equal "and a failed build" 1 "$code"
expect_contains "with its first error" "| build | failed | s | one.cu(3): error: no such thing |" "$(report)"
expect_lacks "after which nothing is measured" "| codecs |" "$(report)"
HANGS=test_sums_device run --only tests --limit 1
expect_equal "and a hang" 1 "$code"
expect_contains "which its limit ends" "| test_sums_device | hung | s | it had not ended after 1 s |" "$(report)"
expect_contains "the next step is run" "| gpu-direct and gpu-ring | passed |" "$(report)"
HANGS=gradmeter run --only rows --limit 1
expect_equal "a measurement that its limit ends is none" 0 "$code"
expect_contains "it is reported" "| codecs | stopped | s | after 1 s" "$(report)"

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

# --- an unpacked bundle
mkdir -p "$work/bundle/bin"
printf 'commit: 0123abc\ndevice: sm_90\n' >"$work/bundle/bundle.txt"
echo test_sums_device >"$work/bundle/tests.txt"
for name in gradmeter bench_device ipc_probe streams_probe test_sums_device test_allreduce_device; do
  cp "$work/program" "$work/bundle/bin/$name"
done
stand_in cmake <<<'exit 1'
run --build "$work/bundle"
expect_equal "a bundle is run without a build" 0 "$code"
expect_contains "and says what it is of" "commit 0123abc" "$(report)"
expect_lacks "nothing is built" "| build |" "$(report)"
stand_in ldd <<'END'
[ -n "$LD_LIBRARY_PATH" ] || printf '\tlibcublasLt.so.13 => not found\n'
END
again --build "$work/bundle" --again --only bars
expect_equal "a library of CUDA's that is nowhere" 3 "$code"
expect_contains "is named, and where it was looked for" "no libcublasLt.so.13: neither in the toolkit ($work/no-toolkit" "$output"
mkdir -p "$work/no-toolkit/lib64" && touch "$work/no-toolkit/lib64/libcublasLt.so.13"
again --build "$work/bundle" --again --only bars
expect_equal "one of the toolkit's is found" 0 "$code"
expect_equal "and given to the programs" "$work/no-toolkit/lib64" "$(<"$CALLS.path")"
rm -r "$work/no-toolkit"
mkdir -p "$work/packages/nvidia/cu13/lib" && touch "$work/packages/nvidia/cu13/lib/libcublasLt.so.13"
PYTHONPATH=$work/packages again --build "$work/bundle" --again --only bars
expect_equal "and one of Python's packages" 0 "$code"
expect_equal "as well" "$work/packages/nvidia/cu13/lib" "$(<"$CALLS.path")"
rm "$work/bin/ldd"
touch "$CALLS.dead"
again --build "$work/bundle"
expect_equal "no GPU for a bundle" 3 "$code"
rm "$CALLS.dead" "$work/bundle/bin/gradmeter"
again --build "$work/bundle"
expect_equal "an incomplete one" 2 "$code"

# --- on the emulated runtime: no toolkit and no GPU
stand_in cmake <<END
echo "cmake \$*"
[ "\$1" != --build ] || { mkdir -p "\$2/tests/x" && cp "$work/program" "\$2/gradmeter" && cp "$work/program" "\$2/tests/x/bench_device"; }
END
rm "$work/bin/nvcc"
run --emulated --out "$work/elsewhere"
expect_contains "emulated: its preset" "cmake --preset cuda-emulated -B $work/repo/build/gpu-check-cuda-emulated" "$(tar -xzOf "$work/elsewhere/logs.tar.gz")"
expect_contains "emulated: says that it measured nothing" "no rate here is a measurement" "$(cat "$work/elsewhere/report.md")"
expect_lacks "emulated: no GPU's state" "GPU before" "$(cat "$work/elsewhere/report.md")"
expect_contains "emulated: no sanitizer" "| memcheck of test_compression_device | not run | 0 | it needs a GPU |" "$(cat "$work/elsewhere/report.md")"

# --- packages for a machine without network
stand_in apt-cache <<<'printf "libfmt-dev\n  Depends: libfmt9\nlibfmt9\nlibc6\n"'
stand_in apt-get <<<'echo "apt-get $*"'
run --fetch "$work/debs"
expect_contains "downloads them, and what the machine will have not" "apt-get -q download libfmt-dev libfmt9" "$output"
touch "$work/debs/one.deb"
stand_in dpkg <<END
echo "dpkg \$*" >>"$work/unpacked"
END
run --emulated --debs "$work/debs"
expect_contains "unpacks them beside the build" "dpkg -x $work/debs/one.deb $work/repo/build/gpu-check-cuda-emulated/debs" "$(cat "$work/unpacked")"

# --- the plan: half an hour, in commands of ten minutes
run --plan
expect_equal "all steps in half an hour" yes "$(awk '$1 == "all" {print $2 <= 1800 ? "yes" : $2}' <<<"$output")"
expect_equal "none longer than a command" "" "$(awk '$1 != "all" && $(NF - 1) > 585' <<<"$output")"
expect_equal "each group" "bars doctor probe rows sanitizer tests" "$(awk '$1 != "all" {print $1}' <<<"$output" | sort -u | paste -sd' ')"

for wrong in "--debs $work/none" "--build $work/none" "--minutes soon" "--limit soon" "--only everything" --fast; do
  # shellcheck disable=SC2086  # a flag and its value
  run $wrong
  expect_equal "$wrong" 2 "$code"
  expect_equal "$wrong: one line" 1 "$(lines)"
done
run --help
expect_contains "the help has the exit codes" "3 there is no toolkit, no library of CUDA or no GPU" "$output"
finish
