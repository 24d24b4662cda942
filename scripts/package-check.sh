#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks what people download, in a clean Debian 12: the source tarball of the last commit builds by the README's words, outside
# a repository, and the .deb made of that build installs, runs and is removed again in a second root that has no tools of development.
# Takes twenty minutes and 4 GB, root rights, debootstrap and a Debian mirror. Not part of scripts/test.sh.
# Usage: scripts/package-check.sh [--work FOLDER] [--ccache FOLDER]
#   --work FOLDER     for roots, logs and packages, which stay; its `root-base` is used again (default: a temporary one)
#   --ccache FOLDER   a compiler cache for the build
#   MIRROR            in the environment: another mirror than http://deb.debian.org/debian
# Exit status 0: all well; 1: a check failed, 2: wrong arguments, 77: debootstrap or root rights are missing, nothing was checked.
set -euo pipefail

work='' cache=''
while [ $# -gt 0 ]; do
  case "$1" in
    --work) work=$(realpath -m "${2:?"--work needs a folder"}") ;;
    --ccache) cache=$(realpath "${2:?"--ccache needs a folder"}") ;;
    *)
      sed -n '3,11s/^# //p' "${BASH_SOURCE[0]}"
      [ "$1" = --help ] || [ "$1" = -h ] || exit 2
      exit 0
      ;;
  esac
  shift 2
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  echo "package-check: nothing was checked: it needs root rights and debootstrap" >&2
  exit 77
fi
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
say() { printf '\n==> %s\n' "$*"; }

# Runs a command in a root. What is mounted for it is seen by it alone and goes away with it.
inside() { # ROOT COMMAND...
  local root=$1
  shift
  # shellcheck disable=SC2016  # the inner shell's variables
  unshare --mount --propagation private bash -euc '
    root=$1 cache=$2
    shift 2
    mount -t proc proc "$root/proc"
    mount --rbind --make-rslave /sys "$root/sys" # hwloc and MPI look for cores there
    mkdir -p "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/dev/shm"
    if [ -n "$cache" ]; then
      mkdir -p "$root/ccache"
      mount --bind "$cache" "$root/ccache"
      export CCACHE_DIR=/ccache CCACHE_BASEDIR=/root/source CCACHE_NOHASHDIR=true
    fi
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
      ${CCACHE_DIR:+CCACHE_DIR="$CCACHE_DIR" CCACHE_BASEDIR="$CCACHE_BASEDIR" CCACHE_NOHASHDIR=true} \
      OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
      OMPI_MCA_mpi_yield_when_idle=1 chroot "$root" "$@"
  ' inside "$root" "$cache" "$@"
}

say "clean roots"
if [ ! -e "$work/base.done" ]; then
  rm -rf "$work/root-base"
  debootstrap --variant=minbase bookworm "$work/root-base" "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log"
  touch "$work/base.done"
fi
for root in build run; do
  rm -rf "${work:?}/root-$root"
  cp -a "$work/root-base" "$work/root-$root"
  cp -L /etc/resolv.conf "$work/root-$root/etc/"
done

version=$(sed -n 's/^project(gradmeter VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
commit=$(git rev-parse HEAD)
say "source tarball of ${commit:0:10}"
# What the target dist does, without a build folder.
git archive --prefix="gradmeter-$version/" --output="$work/gradmeter-$version.tar.gz" HEAD
mkdir -p "$work/root-build/root/source"
tar -xzf "$work/gradmeter-$version.tar.gz" -C "$work/root-build/root/source" --strip-components=1

say "build by the README's words"
# shellcheck disable=SC2016  # no expansion is meant
sed -n '/^## Install/,/^## /{/^```sh$/,/^```$/{/^```/d;s/ *# .*//;p}}' README.md >"$work/root-build/root/install.sh"
grep -q 'cmake --preset release' "$work/root-build/root/install.sh"
cat "$work/root-build/root/install.sh"
inside "$work/root-build" bash -euxc 'apt-get -q update; cd /root/source; . /root/install.sh' >"$work/build.log" 2>&1 ||
  { tail -n 30 "$work/build.log"; exit 1; }
installed=$(inside "$work/root-build" /root/.local/bin/gradmeter --version)
[ "$installed" = "gradmeter $version (${commit:0:10})" ] || { echo "FAILED the tarball's program says: $installed"; exit 1; }
echo "$installed, installed into ~/.local"

say "the .deb in a root without tools of development"
deb=$(cd "$work/root-build/root/source/build/release" && echo "gradmeter_${version}"_*.deb)
cp "$work/root-build/root/source/build/release/$deb" "$work/"
cp "$work/$deb" "$work/root-run/root/"
dpkg-deb --field "$work/$deb" Package Version Installed-Size Depends Recommends
cache=''
# shellcheck disable=SC2016  # the inner shell's variables
inside "$work/root-run" bash -euxc '
  apt-get -q update
  apt-get -q install -y --no-install-recommends "/root/$1"
  cd /root
  test "$(gradmeter --version)" = "gradmeter $2 (${3:0:10})"
  gradmeter list algorithms >list.txt
  grep -q recursive-doubling list.txt
  gradmeter allreduce --thread-ranks 2 -b 1K -e 8K -f 8 --time-budget 2s --out r.jsonl
  gradmeter report r.jsonl -o page.html
  test -s page.html
  test -s /usr/share/man/man1/gradmeter.1 -a -s /usr/share/bash-completion/completions/gradmeter
  apt-get -q install -y --no-install-recommends openmpi-bin
  mpirun -np 2 gradmeter allreduce -b 1K -e 1K --algorithm mpi,ring --time-budget 2s
  apt-get -q remove -y gradmeter
  test -z "$(find /usr -name "*gradmeter*")"
' run "$deb" "$version" "$commit" >"$work/run.log" 2>&1 || { tail -n 30 "$work/run.log"; exit 1; }
grep -A 12 -m 1 '^gradmeter .*2 ranks' "$work/run.log" || :
say "well: gradmeter-$version.tar.gz builds and $deb installs, runs and is removed in Debian 12"
