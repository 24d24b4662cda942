#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: packaging_test.sh GRADMETER
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
program=$1

# Spack's recipe, over a stand-in for Spack 1.0: its options are the build's, and each library that the build requires is there.
mkdir -p "$work"/stub/{spack,spack_repo/builtin/build_systems}
cat >"$work/stub/spack/package.py" <<'END'
depended = []
def depends_on(what, **_): depended.append(what.split("@")[0].split()[0])
def license(*_, **__): pass
version = variant = generator = license
END
cat >"$work/stub/spack_repo/builtin/build_systems/cmake.py" <<'END'
class CMakePackage:
    def define(self, name, value): return f"{name}={value}"
    def define_from_variant(self, name, variant): return f"{name}={variant}"
    class spec:
        variants = {"cuda_arch": type("", (), {"value": ("90",)})}
        satisfies = staticmethod(lambda text: text == "+cuda")
END
echo 'class CudaPackage: pass' >"$work/stub/spack_repo/builtin/build_systems/cuda.py"
try env PYTHONPATH="$work/stub" PYTHONDONTWRITEBYTECODE=1 python3 - "$root" <<'END'
import re, runpy, sys, spack.package
recipe = runpy.run_path(f"{sys.argv[1]}/packaging/spack/package.py")["Gradmeter"]
text = open(f"{sys.argv[1]}/CMakeLists.txt").read()
options = set(re.findall(r"(?:option|set)\((GRADMETER_\w+)", text))
asked = {a.split("=")[0] for a in recipe().cmake_args()}
print("unknown options:", sorted(asked - options))
found = re.findall(r"(?:find_package\((\w+)|pkg_check_modules\((\w+))[^)]* REQUIRED", open(f"{sys.argv[1]}/cmake/Libraries.cmake").read())
names = {"hwy": "highway", "nlohmann_json": "nlohmann-json", "ZLIB": "zlib-api", "PkgConfig": "pkgconfig", "Boost": "boost"}
ours = {"Threads", "OpenMP", "CUDAToolkit"}  # the compiler's, and CudaPackage's
print("missing:", sorted({names.get(n, n) for pair in found for n in pair if n} - ours - set(spack.package.depended)))
END
expect_equal "Spack's recipe knows the build" $'unknown options: []\nmissing: []' "$output"

# Apptainer's %post with stand-ins does what quickstart does, and installs.
mkdir -p "$work/repo/scripts" "$work/repo/build/release"
cp "$root"/scripts/{quickstart,packages,environment}.sh "$work/repo/scripts/"
echo 'echo charts' >"$work/repo/scripts/charts.sh"
echo 'exit 0' >"$work/repo/build/release/gradmeter"
chmod +x "$work/repo/scripts/charts.sh" "$work/repo/build/release/gradmeter"
stand_in dpkg-query <<<'echo -n installed'
stand_in cmake <<<'echo "cmake $*"'
stand_in mpirun <<<'exit 0'
try bash "$work/repo/scripts/quickstart.sh"
quick=$(grep -E '^(cmake|charts)' <<<"$output")
sed -n '/^%post/,/^%runscript/p' "$root/packaging/apptainer/gradmeter.def" | sed "1d;\$d;s,/opt/gradmeter,$work/repo," >"$work/post.sh"
try bash -e "$work/post.sh"
expect_equal "Apptainer's %post ends well" 0 "$code"
expect_equal "and does what quickstart does, then installs" "$quick"$'\n'"cmake --install build/release --prefix /usr/local" "$output"
rm "$work"/bin/{cmake,mpirun,dpkg-query}
hash -r

# ReFrame's check, on real ranks; then over what they left, made wrong.
check() { # PROGRAM
  REFRAME_PREFIX=$work/runs try "$root/scripts/reframe.sh" --keep-stage-files --nocolor -r -S program="$1" -S time_budget=2s
}
if [ -x "$root/build/reframe/bin/reframe" ]; then
  check "$program"
  expect_equal "ReFrame's check passes" 0 "$code"
  expect_contains "by one check" "Ran 1/1 test case(s)" "$output"
  file=$(find "$work/runs/stage" -name result.jsonl)
  wanted=$(python3 - "$file" <<'END'
import json, sys
points = [p for p in map(json.loads, open(sys.argv[1])) if p["kind"] == "point"]
p = next(p for p in points if p["factors"]["strategy"] == "sync" and p["factors"]["ranks"] == 2)
print(f"P: step: {1000 * p['metrics']['time_s']['median']} ms")
END
)
  expect_contains "its step is the file's" "$wanted" "$output"
  sed '/"kind":"point"/s/"status":"[a-z]*"/"status":"wrong"/' "$file" >"$work/wrong.jsonl"
  stand_in wrong <<<"cp '$work/wrong.jsonl' result.jsonl"
  check "$work/bin/wrong"
  expect_equal "a wrong point fails it" 1 "$code"
  expect_contains "and says so" "points that are not ok" "$output"
else
  echo "note: no ReFrame (scripts/reframe.sh --install brings it): its check is not run"
fi
finish
