#!/usr/bin/env bash
# Weak scaling with mpirun alone: on this machine, or on the hosts of a host file. Edit jobs/settings.sh, then
#   bash jobs/weak-scaling.sh
# Started again it goes on where it stopped. jobs/weak-scaling.sbatch is the same under Slurm, jobs/weak-scaling-gpu.sh
# with a GPU for each rank.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
. jobs/settings.sh
. jobs/common.sh

mpirun_job
