#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How does efficiency depend on the mini-batch of a rank when the whole batch grows with the ranks?
#   bash jobs/weak-scaling.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=weak-scaling
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
BATCH=${BATCH:-16,64,256} # of a rank

begin weak-scaling "$@"
measure_curve "" --scaling weak --batch "$BATCH" --time-budget "$TIME_BUDGET" && conclude "$(result_file)"
