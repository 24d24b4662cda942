#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The one list of Debian and Ubuntu packages (Debian 12, Ubuntu 24.04), and their installation.
# Run it:     scripts/packages.sh [build|test|gpu|slurm ...]          installs what is missing of these groups (default: build test)
#             scripts/packages.sh --list [build|test|gpu|slurm ...]   prints the names, one a line
# Source it:  defines gradmeter_packages GROUP... and gradmeter_install GROUP...

gradmeter_packages_build=(
  g++ cmake ninja-build ccache pkg-config git dpkg-dev file
  libopenmpi-dev openmpi-bin
  libboost-program-options-dev libdnnl-dev libhwy-dev libhwloc-dev libfmt-dev nlohmann-json3-dev zlib1g-dev python3-venv
)
# Optional to build with, but tested: libgloo-dev.
gradmeter_packages_test=(
  libgtest-dev libgmock-dev libgloo-dev
  patchelf xz-utils
  python3 python3-jsonschema python3-scipy python3-pandas chromium-driver iproute2 util-linux procps locales
  libboost-context-dev clang-format-14 clang-tidy-16 libomp-16-dev libsimgrid-dev
)
# For scripts/gpu-check.sh: without MPI and oneDNN, and no tools of development.
gradmeter_packages_gpu=(
  g++ cmake ninja-build pkg-config
  libboost-program-options-dev libhwy-dev libhwloc-dev libfmt-dev nlohmann-json3-dev zlib1g-dev libgtest-dev libgmock-dev
)

# For scripts/slurm-in-a-box.sh.
gradmeter_packages_slurm=(slurmctld slurmd slurm-client munge iproute2 util-linux procps)

# Prints the packages of the named groups, one a line.
gradmeter_packages() {
  local group
  for group in "$@"; do
    case "$group" in
      build) printf '%s\n' "${gradmeter_packages_build[@]}" ;;
      test) printf '%s\n' "${gradmeter_packages_test[@]}" ;;
      gpu) printf '%s\n' "${gradmeter_packages_gpu[@]}" ;;
      slurm) printf '%s\n' "${gradmeter_packages_slurm[@]}" ;;
      *)
        echo "packages: no group '$group'; the groups are build, test, gpu and slurm" >&2
        return 2
        ;;
    esac
  done
}

# Prints those of its arguments that are not installed.
gradmeter_missing() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
  done
}

# Installs what is missing of the named groups; touches neither the network nor root rights when nothing is.
gradmeter_install() {
  local list
  list=$(gradmeter_packages "$@") || return
  if ! command -v dpkg-query >/dev/null; then
    echo "packages: not a Debian or Ubuntu system, so nothing is installed; CMake will name what it does not find" >&2
    return 0
  fi
  local -a wanted missing
  mapfile -t wanted <<<"$list"
  mapfile -t missing < <(gradmeter_missing "${wanted[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0

  local -a as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "packages: this needs root once: apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "packages: installing ${#missing[@]}: ${missing[*]}"
  local log
  log=$(mktemp) || return
  gradmeter_apt update >"$log" 2>&1  # one broken source must not stop the rest: the installation below is what counts
  if gradmeter_without_services gradmeter_apt install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  tail -n 20 "$log" >&2
  rm -f "$log"
  echo "packages: apt-get failed (its last lines are above); install these yourself, then try again: ${missing[*]}" >&2
  return 1
}

# Runs a command during which no package starts its services, and has those of Slurm not start at the next boot either. A policy
# that the system has already stays.
gradmeter_without_services() { # COMMAND...
  local policy=${GRADMETER_POLICY:-/usr/sbin/policy-rc.d} made=false code=0 service  # another file in the tests
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null && "${as_root[@]}" chmod 755 "$policy" || return
    made=true
  fi
  "$@" || code=$?
  if $made; then "${as_root[@]}" rm -f "$policy"; fi
  for service in munge slurmctld slurmd; do
    case " ${missing[*]} " in
      *" $service "*) "${as_root[@]}" systemctl disable "$service" || : ;;  # no systemd: nothing starts
    esac
  done
  return "$code"
}

# apt-get that asks nothing; as_root comes from the caller.
gradmeter_apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -uo pipefail
  action=gradmeter_install
  if [ "${1:-}" = --list ]; then
    action=gradmeter_packages
    shift
  fi
  [ $# -gt 0 ] || set -- build test
  "$action" "$@"
fi
