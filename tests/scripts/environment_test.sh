#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# Prints what environment.sh sets for a shell under the given variables; with dash, as a stricter reader than bash.
after() { # VARIABLE=VALUE...
  env "$@" sh -c ". '$root/scripts/environment.sh' && env" | grep '^OMPI_' | sort
}
stand_in nproc <<<'echo 2'
stand_in id <<<'echo 1000'

set_here=$(after GRADMETER_RANKS=2)
expect_lacks "an ordinary user needs no leave to be root" OMPI_ALLOW_RUN_AS_ROOT "$set_here"
expect_contains "more ranks than slots are allowed" OMPI_MCA_rmaps_base_oversubscribe=1 "$set_here"
expect_contains "no binding" OMPI_MCA_hwloc_base_binding_policy=none "$set_here"
expect_lacks "as many ranks as cores need not yield" yield "$set_here"
expect_contains "more ranks than cores yield" OMPI_MCA_mpi_yield_when_idle=1 "$(after GRADMETER_RANKS=3)"

set_here=$(after GRADMETER_RANKS=3 OMPI_MCA_mpi_yield_when_idle=0 OMPI_MCA_rmaps_base_oversubscribe=)
expect_contains "what the user set stays" OMPI_MCA_mpi_yield_when_idle=0 "$set_here"
expect_lacks "even when set to nothing" oversubscribe=1 "$set_here"

stand_in id <<<'echo 0'
expect_contains "root may run" OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$(after GRADMETER_RANKS=1)"
for job in SLURM_JOB_ID PBS_JOBID LSB_JOBID; do
  expect_equal "slots and binding are left to the scheduler ($job)" \
    $'OMPI_ALLOW_RUN_AS_ROOT=1\nOMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1' "$(after GRADMETER_RANKS=99 $job=7)"
done
expect_equal "a strict shell can source it" "" \
  "$(bash -c "set -euo pipefail; . '$root/scripts/environment.sh'" 2>&1)"
finish
