#!/usr/bin/env bash
# Weak scaling with mpirun alone, a GPU for each rank. Edit jobs/settings.sh, then
#   bash jobs/weak-scaling-gpu.sh
# Started again it goes on where it stopped. jobs/weak-scaling-gpu.sbatch is the same under Slurm.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
DEVICE=cuda
. jobs/settings.sh
. jobs/common.sh

mpirun_job
