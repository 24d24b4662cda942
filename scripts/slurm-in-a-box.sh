#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command under a real Slurm whose nodes are virtual hosts on this machine, or tests the job scripts of jobs/ there.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/slurm-in-a-box.sh run [VIRTUAL-CLUSTER...] -- COMMAND...
       scripts/slurm-in-a-box.sh test [--long] [GRADMETER]
  scripts/slurm-in-a-box.sh run 4 1Gbit -- bash                    # a shell with sinfo, sbatch, srun
  scripts/slurm-in-a-box.sh run -- bash jobs/weak-scaling.sh submit --wait
  scripts/slurm-in-a-box.sh test                                   # every script of jobs/, submitted and checked

run    starts munged, slurmctld and a slurmd on each host, runs COMMAND beside them, and ends as it does.
       VIRTUAL-CLUSTER: nodes and links as scripts/virtual-cluster.sh takes them; 2 0 (two nodes, not shaped) unless given
test   submits each job script of jobs/ and checks its results; --long: also chains of jobs over time limits.
       GRADMETER: the program; without it what is missing is installed and build/release/gradmeter built

Partitions: main (the default), urgent, whose jobs preempt those of main, which are requeued. Each node claims 4 cores and 2
GPUs (device nodes that are none), whatever the machine has. Daemons, keys and files are in namespaces that vanish with
COMMAND; a Slurm or munge of this machine is neither used nor changed.
Needs Debian's slurmd, slurmctld, slurm-client and munge: installed when missing, by scripts/packages.sh slurm, which starts
none of their services. Root or user namespaces (these also need a C compiler). Ends with 69 where the system has neither.
TEXT
}

cannot() { # WHY: this system will not do
  echo "slurm-in-a-box: $*" >&2
  exit 69
}

prefix=10.77.0                 # of scripts/virtual-cluster.sh
scratch=/dev/shm/cluster/slurm # likewise: on a file system that goes with the namespaces
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

write_configuration() { # HOSTS
  local gpu
  for gpu in 0 1; do touch "$scratch/gpu$gpu" && mount --bind /dev/null "$scratch/gpu$gpu" || return; done
  echo "Name=gpu File=$scratch/gpu[0-1]" >"$scratch/gres.conf"
  cat >"$scratch/slurm.conf" <<CONFIGURATION
ClusterName=box
SlurmctldHost=head($prefix.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$scratch/munge.socket
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/%n.spool
TmpFS=$scratch/%n.tmp
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/%n.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
MpiDefault=pmix
ReturnToService=2
KillWait=5
MinJobAge=3600
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=host[1-$1] NodeAddr=$prefix.[1-$1] CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:2
PartitionName=main Nodes=host[1-$1] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=host[1-$1] MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
CONFIGURATION
}

# In a user namespace nobody may set the groups of a process, which slurmd would do for every job.
allow_groups() {
  [ "$(cat /proc/self/setgroups 2>/dev/null)" = deny ] || return 0
  cc -shared -fPIC -x c -o "$scratch/groups.so" - <<'C' || return
#include <grp.h>
int setgroups(size_t count, const gid_t* groups) { return (void)count, (void)groups, 0; }
int initgroups(const char* user, gid_t group) { return (void)user, (void)group, 0; }
C
  export LD_PRELOAD=$scratch/groups.so
}

start_munge() {
  (umask 077 && head -c 1024 /dev/urandom >"$scratch/munge.key") &&
    munged --force --key-file="$scratch/munge.key" --socket="$scratch/munge.socket" --pid-file="$scratch/munge.pid" \
      --log-file="$scratch/munge.log" --seed-file="$scratch/munge.seed"
}

idle_nodes() { sinfo -h -t idle -p main -o %D 2>/dev/null; }

start_slurm() { # HOSTS
  local i
  export SLURM_CONF=$scratch/slurm.conf
  slurmctld || return
  for i in $(seq "$1"); do
    mkdir -p "$scratch/host$i.spool" "$scratch/host$i.tmp" && "$GRADMETER_ENTER_HOST" "host$i" slurmd -N "host$i" || return
  done
  for ((i = 0; i < 300; i++)); do
    [ "$(idle_nodes)" != "$1" ] || return 0
    sleep 0.1
  done
  echo "slurm-in-a-box: $(idle_nodes) of $1 nodes are idle after 30 s; the logs:" >&2
  tail -n 5 "$scratch"/*.log >&2
  return 1
}

# Within a job mpirun asks Slurm where its ranks go; what virtual-cluster.sh says of that is for mpirun without it.
forget_hostfile() {
  unset OMPI_MCA_plm OMPI_MCA_plm_rsh_agent OMPI_MCA_plm_rsh_no_tree_spawn OMPI_MCA_ras OMPI_MCA_orte_default_hostfile \
    OMPI_MCA_rmaps_base_mapping_policy
}

inside() { # COMMAND...
  local hosts
  hosts=$(tr , '\n' <<<"$GRADMETER_HOSTS" | wc -l)
  if ! { mkdir -p "$scratch/state" && chmod 755 "$scratch" && write_configuration "$hosts" && allow_groups && start_munge; }; then
    cannot "munge could not be started (see the line above)"
  fi
  start_slurm "$hosts" || cannot "Slurm could not be started (see the lines above)"
  forget_hostfile
  exec "$@"
}

run() { # [VIRTUAL-CLUSTER...] -- COMMAND...
  local cluster=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    cluster+=("$1")
    shift
  done
  if [ $# -lt 2 ]; then
    usage >&2
    exit 2
  fi
  [ ${#cluster[@]} -gt 0 ] || cluster=(2 0)
  install
  exec "$here/scripts/virtual-cluster.sh" "${cluster[@]}" -- "$here/scripts/slurm-in-a-box.sh" --inside "${@:2}"
}

run_test() { # [--long] [GRADMETER]
  local long=()
  if [ "${1:-}" = --long ]; then long=(--long) && shift; fi
  if [ $# -eq 0 ]; then
    # shellcheck source=scripts/packages.sh
    . "$here/scripts/packages.sh"
    cd "$here" && gradmeter_install build test && cmake --preset release &&
      cmake --build --preset release --parallel "$(nproc)" --target gradmeter || exit
    set -- build/release/gradmeter
  fi
  exec bash "$here/tests/scripts/slurm_test.sh" ${long[@]+"${long[@]}"} "$1"
}

install() {
  local tool missing=()
  # shellcheck source=scripts/packages.sh
  . "$here/scripts/packages.sh"
  for tool in slurmctld slurmd sbatch srun munged; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  if [ ${#missing[@]} -gt 0 ]; then gradmeter_install slurm || cannot "needs ${missing[*]}"; fi
  for tool in "${missing[@]}"; do command -v "$tool" >/dev/null || cannot "needs $tool"; done
}

PATH=$PATH:/usr/sbin:/sbin
command=${1:-}
[ $# -eq 0 ] || shift
case "$command" in
  run) run "$@" ;;
  test) run_test "$@" ;;
  --inside) inside "$@" ;;
  -h | --help) usage ;;
  *)
    usage >&2
    exit 2
    ;;
esac
