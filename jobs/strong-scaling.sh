#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How far does a fixed whole batch go when ranks are added, each of which then has less of it?
#   bash jobs/strong-scaling.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=strong-scaling
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
BATCH=${BATCH:-256,1024} # of all ranks together; a rank count that does not divide it is skipped

begin strong-scaling "$@"
measure_curve "" --scaling strong --batch "$BATCH" --time-budget "$TIME_BUDGET" && conclude "$(result_file)"
