#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/gpu-bundle.py packs and refuses, of builds whose programs do nothing.
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
for tool in patchelf xz cc; do
  command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done

build=$work/build
mkdir -p "$build/tests/bench" "$build/tests/runtime" "$build/tests/x" "$work/lib"
echo GRADMETER_CUDA_ARCHITECTURES:STRING=90 >"$build/CMakeCache.txt"
library() { # NAME [FLAGS...]: libNAME.so.1
  echo 'int answer(void) { return 42; }' >"$work/answer.c"
  cc -shared -fPIC -Wl,-soname,"lib$1.so.1" -o "$work/lib/lib$1.so.1" "$work/answer.c" "${@:2}"
}
make_program() { # PATH [LIBRARY]
  echo 'int answer(void); int main(void) { return answer() - 42; }' >"$work/main.c"
  cc -o "$build/$1" "$work/main.c" "$work/lib/lib${2:-small}.so.1" -Wl,-rpath,"$work/lib"
}
stand_in ctest <<END
echo '{"tests":[{"name":"a","command":["$build/tests/x/test_sums_device"]},{"name":"b","command":["$build/tests/bench/bench_device"]}]}'
END
library small
for path in gradmeter tests/bench/bench_device tests/runtime/ipc_probe tests/runtime/streams_probe tests/x/test_sums_device; do
  make_program $path
done
pack() { try python3 "$root/scripts/gpu-bundle.py" "$build" "$work/bundle.tar.xz" "$@"; }

pack
expect_equal "packs" 0 "$code"
expect_contains "says what" "6 programs and libraries" "$output"
mkdir "$work/there" && tar -xJf "$work/bundle.tar.xz" -C "$work/there"
mv "$work/lib" "$work/gone"
try "$work/there/gpu-check/bin/gradmeter"
expect_equal "programs find their libraries beside them" 0 "$code"
mv "$work/gone" "$work/lib"
expect_equal "the list of test programs" test_sums_device "$(cat "$work/there/gpu-check/tests.txt")"
expect_contains "what it is of" "device: sm_90" "$(cat "$work/there/gpu-check/bundle.txt")"
expect_equal "the sources" "$(sed -n 3p "$root/scripts/gpu-check.sh")" "$(sed -n 3p "$work/there/gpu-check/source/scripts/gpu-check.sh")"
expect_lacks "stripped" ".symtab" "$(readelf -S "$work/there/gpu-check/bin/gradmeter")"
mkdir "$work/debs" && echo a >"$work/debs/one.deb"
pack --debs "$work/debs"
expect_contains "packages go along" gpu-check/debs/one.deb "$(tar -tJf "$work/bundle.tar.xz")"

library mpi
make_program gradmeter mpi
pack
expect_equal "a build with MPI is refused" 1 "$code"
expect_contains "with what to do" "configure it with -DGRADMETER_MPI=OFF" "$output"
echo 'GLIBC_2.99 { global: answer; };' >"$work/versions"
library new -Wl,--version-script,"$work/versions"
make_program gradmeter new
pack
expect_equal "a newer symbol is refused" 1 "$code"
expect_contains "and named" "gradmeter needs GLIBC_2.99, which Debian 12 has not" "$output"
library cublasLt
make_program gradmeter cublasLt
rm "$work/lib/libcublasLt.so.1"
pack
expect_equal "CUDA's libraries may be missing here" 0 "$code"
expect_lacks "and are not packed" libcublasLt "$(tar -tJf "$work/bundle.tar.xz")"
library other
make_program gradmeter other
rm "$work/lib/libother.so.1"
pack
expect_equal "others may not" 1 "$code"
expect_contains "and are named" "libother.so.1 is not found" "$output"
make_program gradmeter
pack --most 1
expect_equal "more than the limit is refused" 1 "$code"
expect_contains "and named" "is larger than 1 MiB" "$output"
echo 'GRADMETER_CUDA_ARCHITECTURES:STRING=80;90' >"$build/CMakeCache.txt"
pack
expect_equal "so are two architectures" 1 "$code"
rm "$build/tests/x/test_sums_device"
echo GRADMETER_CUDA_ARCHITECTURES:STRING=90 >"$build/CMakeCache.txt"
pack
expect_contains "and a build that is not finished" "test_sums_device is not built" "$output"
finish
