#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which link between two nodes is slower than the others?
#   bash jobs/links.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=links
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
LINKS=${LINKS:-} # more flags of gradmeter links, such as --size 8,1M

DEVICE=cpu # what travels is memory of the hosts
begin links "$@"
# shellcheck disable=SC2086  # a list of words
measure "" links $LINKS --time-budget "$TIME_BUDGET" && conclude "$(result_file)"
