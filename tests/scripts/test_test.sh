#!/usr/bin/env bash
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
printf '\n86%% tests passed, 1 tests failed out of 7\n\nThe following tests FAILED:\n\t  3 - Ring.Sums (Failed)\n'
exit 8
END
run() { try bash "$work/repo/scripts/test.sh" "$@"; }
last() { tail -n 1 <<<"$output"; }

run
expect_equal "all is well" 0 "$code"
expect_equal "the last line says so" "all 16 stages passed" "$(last)"
expect_contains "the tests are built even where quickstart left them out" "cmake --preset ci -DGRADMETER_TESTS=ON" "$output"
expect_contains "clang-tidy reads units of a preset of its own" "cmake --preset tidy" "$output"
expect_contains "ctest's summary is repeated at the end" "0 tests failed out of 7" "${output##*==> build/ci/ctest.log}"
expect_contains "every source is compiled alone" "1 sources compiled alone, 0 failed" "$output"
expect_contains "CUDA code runs on the emulated runtime" "ctest --preset cuda-emulated" "$output"
expect_contains "and is compiled by nvcc" "cmake --build --preset cuda --parallel $(nproc) --target device_tests gradmeter" "$output"
expect_contains "job scripts run under Slurm, with the program that was built" "slurm test build/ci/gradmeter" "$output"
expect_lacks "no sanitizers unless asked" asan "$output"
expect_lacks "nothing is missing of cuSPARSELt" "no cuSPARSELt" "$output"
CUSPARSELT_CODE=1 run
expect_equal "no cuSPARSELt: said, and no failure" "0 all 16 stages passed" "$code $(last)"
expect_contains "with what is not checked" "no cuSPARSELt" "$output"
SLURM_CODE=77 run
expect_equal "no Slurm here: said, and no failure" "0 all 16 stages passed, 1 of them skipped" "$code $(last)"
SLURM_CODE=1 run
expect_equal "a job that fails fails" "1 FAILED: slurm" "$code $(last)"

REFUSAL_CODE=127 run
expect_equal "a program that needs a driver to start fails" "1 FAILED: refuse cuda" "$code $(last)"
REFUSAL=$'gradmeter: --device cuda: no\nand more' run
expect_equal "more than one line fails" "1 FAILED: refuse cuda" "$code $(last)"
SMI_CODE=0 run
expect_equal "with a GPU nothing is refused: said, and no failure" "0 all 16 stages passed, 1 of them skipped" "$code $(last)"

BROKEN_TEST=ci run
expect_equal "a failed test fails" 1 "$code"
expect_equal "the last line names the stage" "FAILED: test ci" "$(last)"
expect_contains "the failed test is named at the end" "3 - Ring.Sums" "${output##*==> build/ci/ctest.log}"
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

echo 'int one() { return two(); }' >"$work/repo/src/core/one.cpp"
run
expect_equal "a source that does not compile alone fails" "FAILED: compile alone" "$(last)"
echo 'int one() { return 1; }' >"$work/repo/src/core/one.cpp"

BROKEN_TEST=tsan CI=true run
expect_equal "CI=true brings the sanitizers" "FAILED: test tsan" "$(last)"
stand_in git <<'END'
case $1 in
  rev-parse) ;;
  log) echo "${CHANGED:-}" ;;
  *) exit 128 ;;
esac
END
CI=true CHANGED=src/core/one.cpp run
expect_contains "CI has clang-tidy read what changed lately" "clang-tidy src/core/one.cpp" "$output"
CI=true CHANGED=src/core/gone.cpp run
expect_lacks "and nothing else" "clang-tidy src/core/one.cpp" "$output"
expect_contains "which may be nothing" "change no source" "$output"
CHANGED=src/core/gone.cpp run
expect_contains "elsewhere it reads all" "clang-tidy src/core/one.cpp" "$output"
stand_in git <<<'exit 128'
run --quick --preset dev
expect_contains "quick: the unit tests of the preset named" "ctest --preset dev --parallel $((($(nproc) * 3 + 1) / 2)) --label-regex unit" "$output"
expect_lacks "quick: no clang-tidy" clang-tidy "$output"
expect_lacks "quick: no CUDA" cuda "$output"
expect_lacks "quick: no Slurm" "slurm test" "$output"
expect_equal "quick: passes" 0 "$code"
run --fast
expect_equal "an unknown argument is refused" 2 "$code"
finish
