#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# scripts/test.sh in a repository of its own, where cmake and ctest only say what they were asked.
mkdir -p "$work/repo/src/core" "$work/repo/tests" "$work/repo/build"/{ci,dev,asan,tsan,tidy,alone,cuda,cuda-emulated}
cp -r "$root/scripts" "$work/repo/"
echo 'int one() { return 1; }' >"$work/repo/src/core/one.cpp"
echo "\"file\": \"$work/repo/src/core/one.cpp\"" >"$work/repo/build/tidy/compile_commands.json"
echo "[{\"directory\": \"$work/repo\", \"command\": \"c++ -o one.o -c src/core/one.cpp\",
  \"file\": \"$work/repo/src/core/one.cpp\"}]" >"$work/repo/build/alone/compile_commands.json"
stand_in dpkg-query <<<'echo -n installed'
stand_in clang-format-14 <<<"exit \${UNFORMATTED:-0}"
stand_in clang-tidy-16 <<<"exit \${UNTIDY:-0}"
stand_in git <<<'exit 128'
echo 'exit 0' >"$work/repo/scripts/charts.sh"
echo 'exit 0' >"$work/repo/scripts/reframe.sh"
echo 'echo "device code $*"; exit ${DEVICE_CODE:-0}' >"$work/repo/scripts/check-device-code.py"
echo 'echo "pack $*"; exit ${PACK_CODE:-0}' >"$work/repo/scripts/gpu-check.sh"
echo 'exit ${CUSPARSELT_CODE:-0}' >"$work/repo/scripts/cusparselt.sh"
echo 'echo "slurm $*"; exit ${SLURM_CODE:-0}' >"$work/repo/scripts/slurm-in-a-box.sh"
stand_in nvcc <<<'exit 0'
stand_in nvidia-smi <<<"exit \${SMI_CODE:-9}"
cat >"$work/repo/build/cuda/gradmeter" <<'END'
echo "${REFUSAL-gradmeter: --device cuda: no CUDA driver on this machine}"
exit "${REFUSAL_CODE:-3}"
END
chmod +x "$work/repo/build/cuda/gradmeter"
stand_in cmake <<'END'
echo "cmake $*"
[ "$*" != "--build --preset ${BROKEN_BUILD:-} --parallel $(nproc)" ]
END
stand_in ctest <<'END'
echo "ctest $*"
[ "$2" = "${BROKEN_TEST:-}" ] || { printf '\n100%% tests passed, 0 tests failed out of 7\n'; exit 0; }
printf 'ok     one\nFAILED the sum is right\n       found  4\n       wanted 3\nok     two\n'
printf '\n86%% tests passed, 1 tests failed out of 7\n\nThe following tests FAILED:\n\t  3 - Ring.Sums (Failed)\n'
exit 8
END
run() { try bash "$work/repo/scripts/test.sh" "$@"; }
last() { tail -n 1 <<<"$output"; }
# Of the table at the end: the names of a stage and of what failed in it, and the first word of the next stage.
table_from() { # STAGE
  sed -n '/^==> stages$/,$p' <<<"$output" | sed -n "/^$1 /,/^[a-z]/p" | sed -E '1!s/^([a-z]+) .*/\1/; s/ +[0-9]+ s .*//' |
    paste -sd'|'
}

run
expect_equal "all is well" 0 "$code"
expect_equal "the last line says so" "all 18 stages passed" "$(last)"
expect_contains "the tests are built even where quickstart left them out" "cmake --preset ci -DGRADMETER_TESTS=ON" "$output"
expect_contains "clang-tidy reads units of a preset of its own" "cmake --preset tidy" "$output"
expect_contains "ctest's summary is repeated at the end" "0 tests failed out of 7" "${output##*==> build/stages/test-ci.log}"
expect_contains "every source is compiled alone" "1 sources and 0 headers compiled alone, 0 failed" "$output"
expect_contains "CUDA code runs on the emulated runtime" "ctest --preset cuda-emulated" "$output"
expect_contains "and is compiled by nvcc" "cmake --build --preset cuda --parallel $(nproc) --target device_tests gradmeter" "$output"
expect_contains "job scripts run under Slurm, with the program that was built" "slurm test build/ci/gradmeter" "$output"
expect_lacks "no sanitizers unless asked" asan "$output"
expect_lacks "nothing is missing of cuSPARSELt" "no cuSPARSELt" "$output"
CUSPARSELT_CODE=1 run
expect_equal "no cuSPARSELt: said, and no failure" "0 all 18 stages passed" "$code $(last)"
expect_contains "with what is not checked" "no cuSPARSELt" "$output"
SLURM_CODE=77 run
expect_equal "no Slurm here: said, and no failure" "0 all 18 stages passed, 1 of them skipped" "$code $(last)"
SLURM_CODE=1 run
expect_equal "a job that fails fails" "1 FAILED: slurm" "$code $(last)"

DEVICE_CODE=1 run
expect_equal "a trap in device code fails" "1 FAILED: device code" "$code $(last)"
PACK_CODE=1 run
expect_equal "a bundle that cannot be made fails" "1 FAILED: pack cuda" "$code $(last)"
expect_contains "it is made of the build for GPUs" "pack --bundle build/gpu.tar.xz --build build/cuda" "$output"
REFUSAL_CODE=127 run
expect_equal "a program that needs a driver to start fails" "1 FAILED: refuse cuda" "$code $(last)"
REFUSAL=$'gradmeter: --device cuda: no\nand more' run
expect_equal "more than one line fails" "1 FAILED: refuse cuda" "$code $(last)"
SMI_CODE=0 run
expect_equal "with a GPU nothing is refused: said, and no failure" "0 all 18 stages passed, 1 of them skipped" "$code $(last)"

BROKEN_TEST=ci run
expect_equal "a failed test fails" 1 "$code"
expect_equal "the last line names the stage" "FAILED: test ci" "$(last)"
expect_contains "the failed test is named at the end" "3 - Ring.Sums" "${output##*==> build/stages/test-ci.log}"
expect_equal "below its stage too, with the check that failed" \
  $'test ci|    the sum is right|        found  4|        wanted 3|    Ring.Sums (Failed)|slurm' "$(table_from "test ci")"
expect_contains "the rest is still checked" "clang-tidy src/core/one.cpp" "$output"

BROKEN_BUILD=ci run --sanitizers
expect_equal "a failed build fails" 1 "$code"
expect_equal "and is named" "FAILED: build ci" "$(last)"
expect_lacks "nothing of it is run" "ctest --preset ci" "$output"
expect_lacks "nor is a sanitizer, whose build would fail as well" "preset asan" "$output"
BROKEN_BUILD=asan run --sanitizers
expect_equal "a sanitizer's failed build is named" "FAILED: build asan" "$(last)"
expect_contains "the other sanitizer is run" "ctest --preset tsan" "$output"

UNFORMATTED=1 UNTIDY=1 run
expect_equal "format and tidy fail" 1 "$code"
expect_equal "and are named" "FAILED: format, clang-tidy" "$(last)"
expect_equal "with the file that clang-tidy found fault with" $'clang-tidy|    src/core/one.cpp|configure' "$(table_from clang-tidy)"

echo 'int one() { return two(); }' >"$work/repo/src/core/one.cpp"
run
expect_equal "a source that does not compile alone fails" "FAILED: compile alone" "$(last)"
expect_equal "the table of stages names it, once" $'compile alone|    src/core/one.cpp|configure' "$(table_from "compile alone")"
echo 'int one() { return 1; }' >"$work/repo/src/core/one.cpp"

BROKEN_TEST=tsan run --sanitizers
expect_equal "a sanitizer's failed test is named" "FAILED: test tsan" "$(last)"

run --sanitizers --within 60
expect_equal "with time for all nothing is left out" "0 all 24 stages passed" "$code $(last)"
run --sanitizers --within 0
expect_equal "without time what is left are the tests" "0 all 5 stages passed; 7 were left out" "$code $(last)"
expect_contains "what is left out is told" \
  "NOT CHECKED, as 0 minutes were over: slurm, configure tidy, configure alone, configure cuda-emulated, configure cuda, configure asan, configure tsan" "$output"
expect_lacks "and does not run" "clang-tidy src" "$output"
BROKEN_TEST=ci run --sanitizers --within 0
expect_equal "a failed test is a failure however late it is" "1 FAILED: test ci" "$code $(last)"

# What CI runs is what the README says, with the sanitizers on top: the environment takes nothing away and adds nothing.
mkdir -p "$work/repo/.ci"
cp "$root/.ci/run" "$work/repo/.ci/"
stages() { sed -n 's/^==> //p' <<<"$output"; }
run
here=$(stages)
CI=true run
expect_equal "CI=true has the same stages" "$here" "$(stages)"
run --sanitizers
here=$(stages)
CI=true try bash "$work/repo/.ci/run"
expect_equal "CI runs the same command" "0 $here" "$code $(stages)"
expect_contains "with clang-tidy on every source" "clang-tidy src/core/one.cpp" "$output"
expect_contains "and every source alone" "1 sources and 0 headers compiled alone, 0 failed" "$output"
run --quick --preset dev
expect_contains "quick: the unit tests of the preset named" "ctest --preset dev --parallel $((($(nproc) * 3 + 1) / 2)) --label-regex unit" "$output"
expect_lacks "quick: no clang-tidy" clang-tidy "$output"
expect_lacks "quick: no CUDA" cuda "$output"
expect_lacks "quick: no Slurm" "slurm test" "$output"
expect_equal "quick: passes" 0 "$code"
run --fast
expect_equal "an unknown argument is refused" 2 "$code"
finish
