#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Repeats a whole launch: the spread between launches (placement, memory layout, neighbours) is not seen inside one.
# Usage: scripts/launches.sh N -- mpirun ... gradmeter SUBCOMMAND ... --out FILE
# Adds --append to the command, so that each launch adds its own run to FILE. Stops at the first launch that fails,
# with its exit code. Needs the command's last part to be gradmeter's own arguments.
set -euo pipefail

usage() {
  echo "usage: scripts/launches.sh N -- mpirun ... gradmeter SUBCOMMAND ... --out FILE" >&2
  exit 2
}
refuse() {
  echo "launches: $*" >&2
  exit 2
}

if [ $# -lt 3 ] || [ "$2" != -- ]; then usage; fi
launches=$1
shift 2
[[ $launches =~ ^[1-9][0-9]{0,5}$ ]] || refuse "'$launches' is not a number of launches; give a whole number from 1"

append=(--append)
for argument in "$@"; do
  case "$argument" in
    --append) append=() ;;
    --force) refuse "--force would throw away the launch before; leave it out, and remove the file first if it is old" ;;
    --resume) refuse "--resume would find every point measured after the first launch; leave it out" ;;
  esac
done

# shellcheck source=scripts/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

for ((launch = 1; launch <= launches; launch++)); do
  echo "launch $launch of $launches" >&2
  code=0
  "$@" ${append[@]+"${append[@]}"} || code=$?
  if [ "$code" -ne 0 ]; then
    echo "launches: launch $launch of $launches ended with exit code $code; stopped here, earlier launches are kept" >&2
    exit "$code"
  fi
done
