#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs cuSPARSELt for CUDA 13, header and library, into the folder build/cusparselt, where configuring finds it: its
# wheel from the Python registry, by its version, nothing outside the tree. 250 MB.
# Usage: scripts/cusparselt.sh    exit status 0: it is there. Without it gradmeter has no sparse products in 2:4 on GPUs.
set -euo pipefail

version=0.10.0
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=build/cusparselt
home=$folder/home # include and lib, as CUSPARSELT_HOME has them
version_of() { # HEADER
  local part
  for part in MAJOR MINOR PATCH; do sed -n "s/^#define CUSPARSELT_VER_$part //p" "$1"; done | paste -sd.
}
has_it() {
  [ -e "$home/lib/libcusparseLt.so" ] && [ -e "$home/include/cusparseLt.h" ] &&
    [ "$(version_of "$home/include/cusparseLt.h")" = "$version" ]
}

if has_it; then exit 0; fi
/usr/bin/env python3 -m venv "$folder" || {
  echo "cusparselt: no virtual environment could be made; install python3-venv" >&2
  exit 1
}
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps "nvidia-cusparselt-cu13==$version" || {
  echo "cusparselt: cuSPARSELt could not be installed from the Python registry" >&2
  exit 1
}
# The wheel has the library by the name that programs load, not by the one that they are linked with.
wheel=$("$folder/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13
rm -rf "$home"
mkdir -p "$home/lib"
ln -s "$wheel/include" "$home/include"
for name in libcusparseLt.so libcusparseLt.so.0; do ln -s "$wheel/lib/libcusparseLt.so.0" "$home/lib/$name"; done
has_it || {
  echo "cusparselt: the wheel has no header and library of cuSPARSELt $version where they are expected" >&2
  exit 1
}
