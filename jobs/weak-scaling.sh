#!/usr/bin/env bash
# Weak scaling with mpirun alone: on this machine, or on the hosts of a host file. Edit jobs/settings.sh, then
#   bash jobs/weak-scaling.sh
# Started again it goes on where it stopped. jobs/weak-scaling.sbatch is the same under Slurm.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
. jobs/settings.sh
. jobs/common.sh

total=$((NODES * RANKS_PER_NODE))
hosts=()
if [ -n "$HOSTFILE" ]; then
  hosts=(--hostfile "$HOSTFILE")
elif [ "$NODES" -gt 1 ]; then
  echo "NODES is $NODES but HOSTFILE is empty: name a host file in jobs/settings.sh, one host a line" >&2
  exit 2
fi
weak_scaling "$total" || exit
if [ ${#hosts[@]} -eq 0 ]; then
  export GRADMETER_RANKS=$total
  # shellcheck source=scripts/environment.sh
  . scripts/environment.sh
fi
# shellcheck disable=SC2086  # LAUNCH_FLAGS is a list of words
launch mpirun -np "$total" --map-by "ppr:$RANKS_PER_NODE:node" ${hosts[@]+"${hosts[@]}"} $LAUNCH_FLAGS "${measurement[@]}"
