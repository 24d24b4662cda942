#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs vl-convert, which carries the library that draws charts and draws them without a browser, into the folder
# build/charts: its wheel from the Python registry, checked by its version, nothing outside the tree.
# Usage: scripts/charts.sh        exit status 0: it is there. Without it gradmeter's pages have tables only.
set -euo pipefail

version=1.9.0.post1
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=build/charts
python=$folder/bin/python3
has_it() { [ -x "$python" ] && "$python" -c "
import importlib.metadata, vl_convert
raise SystemExit(importlib.metadata.version('vl-convert-python') != '$version')" 2>/dev/null; }

if has_it; then exit 0; fi
/usr/bin/env python3 -m venv "$folder" || {
  echo "charts: no virtual environment could be made; install python3-venv" >&2
  exit 1
}
"$folder/bin/pip" install --quiet --disable-pip-version-check "vl-convert-python==$version" || {
  echo "charts: vl-convert could not be installed from the Python registry; pages will have tables only" >&2
  exit 1
}
has_it
