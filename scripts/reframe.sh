#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the check of packaging/reframe on this machine. Brings ReFrame into the folder build/reframe: its wheel from the
# Python registry, by its version, nothing outside the tree.
# Usage: scripts/reframe.sh --install                     exit status 0: ReFrame is there
#        scripts/reframe.sh [ARGUMENTS OF REFRAME ...]    such as -r -S program=$PWD/build/release/gradmeter
set -euo pipefail

version=4.7.4
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$tree/build/reframe
has_it() { [ -x "$folder/bin/reframe" ] && [[ $("$folder/bin/reframe" --version) == "$version"* ]]; }

if ! has_it; then
  /usr/bin/env python3 -m venv "$folder" || {
    echo "reframe: no virtual environment could be made; install python3-venv" >&2
    exit 1
  }
  "$folder/bin/pip" install --quiet --disable-pip-version-check "reframe-hpc==$version" || {
    echo "reframe: ReFrame could not be installed from the Python registry" >&2
    exit 1
  }
  has_it
fi
[ "${1:-}" != --install ] || exit 0
# shellcheck source=scripts/environment.sh
. "$tree/scripts/environment.sh"
prefix=${REFRAME_PREFIX:-$folder/runs}
mkdir -p "$prefix"
export RFM_SQLITE_DB_FILE=$prefix/results.db RFM_REPORT_FILE=$prefix/report.json  # else they are in the home folder
exec "$folder/bin/reframe" --config-file "$tree/packaging/reframe/settings.py" --checkpath "$tree/packaging/reframe" \
  --prefix "$prefix" "$@"
