#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rehearses the first day on a GPU where nothing of this machine is: in a clean Debian 13 without a network, a bundle of an emulated
# build is unpacked and scripts/gpu-check.sh run from it. Takes two minutes beside the build, root rights, mmdebstrap and a Debian mirror.
# Not part of scripts/test.sh, which runs the same on this machine (tests/scripts/gpu_day_test.sh).
# Usage: scripts/gpu-rehearsal.sh [--work FOLDER] [--bundle FILE] [--minutes N]
#   --work FOLDER    for the root, the bundle and the results, which stay (default: a temporary one)
#   --bundle FILE    one that is there, of an emulated build (default: makes one)
#   --minutes N      that all steps may take together (default: 10)
#   MIRROR           in the environment: another mirror than http://deb.debian.org/debian
# Exit status 0: all steps ran and none failed; 1: one failed or was not run, 2: wrong arguments, 77: mmdebstrap or root rights are missing.
set -euo pipefail

work='' bundle='' minutes=10
while [ $# -gt 0 ]; do
  case "$1" in
    --work) work=$(realpath -m "${2:?"--work needs a folder"}") ;;
    --bundle) bundle=$(realpath "${2:?"--bundle needs a file"}") ;;
    --minutes) minutes=${2:?"--minutes needs a number"} ;;
    *)
      sed -n '3,11s/^# //p' "${BASH_SOURCE[0]}"
      [ "$1" = --help ] || [ "$1" = -h ] || exit 2
      exit 0
      ;;
  esac
  shift 2
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null; then
  echo "gpu-rehearsal: nothing was rehearsed: it needs root rights and mmdebstrap" >&2
  exit 77
fi
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
if [ -z "$bundle" ]; then
  bundle=$work/gpu.tar.xz
  scripts/gpu-check.sh --bundle "$bundle" --emulated
fi
# Python is there because PyTorch is.
if [ ! -e "$work/root.done" ]; then
  rm -rf "$work/root"
  mmdebstrap --variant=minbase --include=python3,xz-utils trixie "$work/root" "${MIRROR:-http://deb.debian.org/debian}" 2>"$work/root.log"
  touch "$work/root.done"
fi
rm -rf "$work/root/root/gpu-check" "$work/root/root/results"
cp "$bundle" "$work/root/root/gpu.tar.xz"
echo "rehearsing in Debian $(cat "$work/root/etc/debian_version"), $(chroot "$work/root" ldd --version | sed -n 1p), no network"
begin=$SECONDS code=0
# shellcheck disable=SC2016  # the inner shell's variables
unshare --mount --net --pid --fork --propagation private bash -euc '
  mount -t proc proc "$1/proc"
  mount --rbind --make-rslave /sys "$1/sys" # hwloc looks for cores there
  mkdir -p "$1/dev/shm"
  mount -t tmpfs tmpfs "$1/dev/shm"
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 chroot "$1" bash -euc "
    cd /root
    tar -xJf gpu.tar.xz
    gpu-check/source/scripts/gpu-check.sh --build gpu-check --out results --minutes $2"
' inside "$work/root" "$minutes" || code=$?
cp -r "$work/root/root/results" "$work/"
echo "took $((SECONDS - begin)) s: $work/results/report.md"
if grep -q 'no time was left' "$work/results/report.md"; then
  echo "gpu-rehearsal: steps were not run for want of time" >&2
  code=1
fi
exit "$code"
