# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Source this before mpirun on a workstation, a container or a CI runner:   . scripts/environment.sh
# With the rank count known it can do more:                  GRADMETER_RANKS=4 . scripts/environment.sh
# It sets what Open MPI needs there, and only variables that you have not set. Where a scheduler gave the machine
# (Slurm, PBS, LSF), slots and binding are the scheduler's business, and only the first two are set.

gradmeter_default() { # NAME VALUE: export NAME=VALUE unless it is set already
  printenv "$1" >/dev/null || export "$1=$2"
}

# Exits with 0 when the kernel lets one process read the memory of another of the same user (process_vm_readv).
gradmeter_may_read_peers() {
  # Only a seccomp filter, such as a container's, takes this away from one's own processes.
  grep -q '^Seccomp:[[:space:]]*2' /proc/self/status 2>/dev/null || return 0
  python3 - 2>/dev/null <<'PROBE'
import ctypes, os, signal, sys
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
libc, mine, theirs = ctypes.CDLL(None), ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
local, remote = (Piece(ctypes.addressof(b), 8) for b in (mine, theirs))
child = os.fork()
if child == 0:
    signal.pause()
libc.process_vm_readv.restype = ctypes.c_ssize_t
got = libc.process_vm_readv(child, ctypes.byref(local), ctypes.c_ulong(1),
                            ctypes.byref(remote), ctypes.c_ulong(1), ctypes.c_ulong(0))
os.kill(child, signal.SIGKILL)
sys.exit(0 if got == 8 else 1)
PROBE
}

# mpirun refuses to start as root unless it is told twice; in a container root is the usual user.
if [ "$(id -u)" -eq 0 ]; then
  gradmeter_default OMPI_ALLOW_RUN_AS_ROOT 1
  gradmeter_default OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1
fi

if [ -z "${SLURM_JOB_ID:-}${PBS_JOBID:-}${LSB_JOBID:-}" ]; then
  # Open MPI gives each physical core one slot and refuses more ranks than slots; a first look may well want more.
  gradmeter_default OMPI_MCA_rmaps_base_oversubscribe 1

  # By default one or two ranks are bound to a core each, more of them to a whole socket: two launches that differ in
  # their rank count would differ in placement too, and the threads of a rank would share its one core.
  gradmeter_default OMPI_MCA_hwloc_base_binding_policy none

  # A waiting rank spins. With more ranks than cores it must give its core to the rank that it waits for: without this
  # a 1 MiB all-reduce of 4 ranks on 2 cores takes 16 to 60 ms instead of 0.6. Open MPI finds this out by itself only
  # where it counted the slots: not with a host file, and not where a container has fewer cores than the machine.
  if [ "${GRADMETER_RANKS:-0}" -gt "$(nproc)" ]; then
    gradmeter_default OMPI_MCA_mpi_yield_when_idle 1
  fi

  # Between ranks of one node Open MPI copies large messages straight out of the peer's memory. Where that is refused
  # it works the slow way round, after a line "Read -1, expected 524288, errno = 1" for every message.
  if ! gradmeter_may_read_peers; then
    gradmeter_default OMPI_MCA_btl_vader_single_copy_mechanism none
  fi
fi
