#!/usr/bin/env bash
# Runs a command on a cluster that is made for it: virtual hosts joined by links of a chosen rate, on one machine.
# shellcheck disable=SC2317  # pass_on is called by a trap
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/virtual-cluster.sh HOSTS RATE -- COMMAND...
  scripts/virtual-cluster.sh 2 1Gbit -- mpirun -np 2 build/release/gradmeter scale --out two-hosts.jsonl
  scripts/virtual-cluster.sh 4 0 -- mpirun -np 8 build/release/gradmeter allreduce

HOSTS  how many: host1, host2 ... each with a host name and a network of its own
RATE   of each host's link, in each direction: 100Mbit, 1Gbit, 2.5Gbit; 0: as fast as the machine moves bytes

COMMAND runs on a head node, inside namespaces that vanish with it: no packet leaves them, nothing is left behind.
mpirun spreads its ranks over the hosts in turn, so as many ranks as hosts are one on each. Each host has its share of this
machine's cores (where there are fewer cores than hosts, hosts share them), and all have its files and its memory: what is
measured there is the link, not more computers.
In COMMAND's environment:
  OMPI_MCA_*               how Open MPI starts ranks on the hosts and which network it takes; what you have set is kept
  GRADMETER_HOSTS          host1,host2,...
  GRADMETER_ENTER_HOST     a program: "$GRADMETER_ENTER_HOST host2 COMMAND..." runs COMMAND there, as ssh would

Exit codes: COMMAND's own; 2 for wrong arguments; 69 where this system cannot make such a cluster.
Needs ip, tc and unshare (scripts/packages.sh test), root or user namespaces.
TEXT
}

refuse() { # WHY: the arguments are wrong
  echo "virtual-cluster: $*; see scripts/virtual-cluster.sh --help" >&2
  exit 2
}

cannot() { # WHY: this system will not do
  echo "virtual-cluster: $*" >&2
  exit 69
}

prefix=10.77.0
scratch=/dev/shm/cluster # inside, on a file system that goes with the namespaces

# The cores of a host, as a list for taskset: its share of this machine's, or one in turn where there are fewer than hosts.
cores_of() { # NUMBER HOSTS
  local -a all=() ranges
  local range share first
  IFS=, read -ra ranges <<<"$(taskset -cp $$ | sed 's/.*: //')"
  for range in "${ranges[@]}"; do
    mapfile -t -O ${#all[@]} all < <(seq "${range%-*}" "${range#*-}")
  done
  share=$((${#all[@]} / $2))
  first=$((($1 - 1) * share))
  if [ "$share" -eq 0 ]; then share=1 first=$((($1 - 1) % ${#all[@]})); fi
  local IFS=,
  echo "${all[*]:first:share}"
}

in_host() { # NUMBER COMMAND...
  local host=$scratch/host$1
  shift
  nsenter --net="$host.net" --uts="$host.uts" -- "$@"
}

# Both ends of a link are shaped, since each end holds back only what leaves there. htb is accurate up to 10 Gbit/s where tbf
# is not; 4 MB of queue hold what senders with large windows send ahead, so that nothing is lost.
shape() { # RATE DEVICE [IN HOST...]
  local rate=$1 device=$2
  shift 2
  "$@" tc qdisc add dev "$device" root handle 1: htb default 10 &&
    "$@" tc class add dev "$device" parent 1: classid 1:10 htb rate "$rate" burst 64k cburst 64k quantum 60000 &&
    "$@" tc qdisc add dev "$device" parent 1:10 bfifo limit 4mb
}

add_host() { # NUMBER RATE
  local i=$1 rate=$2
  touch "$scratch/host$i.net" "$scratch/host$i.uts" &&
    unshare --net="$scratch/host$i.net" --uts="$scratch/host$i.uts" hostname "host$i" &&
    ip link add "port$i" type veth peer name eth0 netns "$scratch/host$i.net" &&
    ip link set "port$i" master bridge0 up &&
    in_host "$i" ip link set lo up &&
    in_host "$i" ip addr add "$prefix.$i/24" dev eth0 &&
    in_host "$i" ip link set eth0 up || return
  # bbr measures a shaped link wrongly: it took a quarter of a fast one.
  in_host "$i" sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control' 2>/dev/null ||
    echo "virtual-cluster: host $i keeps its congestion control; if that is bbr, rates are too low" >&2
  [ "$rate" = 0 ] || { shape "$rate" eth0 in_host "$i" && shape "$rate" "port$i"; }
}

make_head() { # HOSTS
  local i cores
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mkdir -p "$scratch/tmp" && hostname head || return
  {
    cat /etc/hosts
    echo "$prefix.254 head"
    for i in $(seq "$1"); do echo "$prefix.$i host$i"; done
  } >"$scratch/hosts"
  for i in $(seq "$1"); do
    cores=$(cores_of "$i" "$1")
    echo "$cores" >"$scratch/host$i.cores"
    echo "host$i slots=$(tr -cd , <<<"$cores," | wc -c)"
  done >"$scratch/hostfile"
  mount --bind "$scratch/hosts" /etc/hosts &&
    ip link set lo up && ip link add bridge0 type bridge &&
    ip addr add "$prefix.254/24" dev bridge0 && ip link set bridge0 up
}

# What mpirun takes for ssh: HOST COMMAND...; the words are joined and given to a shell, as ssh does.
write_enter() {
  cat >"$scratch/enter" <<SCRIPT
#!/bin/sh
host=$scratch/\$1
shift
exec taskset -c "\$(cat "\$host.cores")" nsenter --net="\$host.net" --uts="\$host.uts" -- /bin/sh -c "\$*"
SCRIPT
  chmod +x "$scratch/enter"
}

default() { # NAME VALUE: unless it is set
  [ -n "${!1+set}" ] || export "$1=$2"
}

set_environment() { # HOSTS
  # A job of a scheduler outside is none in here.
  unset "${!SLURM_@}" "${!PMIX_@}" PBS_JOBID LSB_JOBID
  local setting
  for setting in plm=rsh plm_rsh_agent="$scratch/enter" plm_rsh_no_tree_spawn=1 ras=^slurm \
    orte_tmpdir_base="$scratch/tmp" oob_tcp_if_include=$prefix.0/24 btl_tcp_if_include=$prefix.0/24; do
    export "OMPI_MCA_$setting"
  done
  default OMPI_MCA_orte_default_hostfile "$scratch/hostfile"
  default OMPI_MCA_rmaps_base_mapping_policy node # ranks in turn over the hosts
  default OMPI_MCA_pml ob1
  default OMPI_MCA_btl tcp,vader,self
  # Long messages ask first whether they may come, and the question would wait behind all that is under way.
  default OMPI_MCA_btl_tcp_eager_limit 8000000
  default OMPI_MCA_mpi_yield_when_idle 1 # the hosts share the cores
  # shellcheck source=scripts/environment.sh
  . "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
  GRADMETER_HOSTS=$(seq -s, -f 'host%.0f' "$1")
  export GRADMETER_HOSTS GRADMETER_ENTER_HOST=$scratch/enter
}

# Runs its arguments, hands TERM and HUP on by `pass_on SIGNAL PID`, and ends as they do. Ctrl-C reaches all programs of a
# terminal by itself; but a shell would have its background programs ignore it.
supervise() { # COMMAND...
  env --default-signal=INT,QUIT -- "$@" <&0 &
  local child=$! code
  # shellcheck disable=SC2064  # this child, now
  trap "pass_on TERM $child" TERM HUP
  trap : INT
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || exit "$code"
  done
}

inside() { # HOSTS RATE COMMAND...
  local hosts=$1 rate=$2 i
  shift 2
  if ! make_head "$hosts" || ! write_enter; then cannot "the head node could not be made (see the line above)"; fi
  for i in $(seq "$hosts"); do
    add_host "$i" "$rate" || cannot "host$i could not be made (see the line above); with RATE 0 no link is shaped"
  done
  set_environment "$hosts"
  pass_on() { kill "-$1" "$2"; }
  supervise "$@"
}

outside() { # HOSTS RATE COMMAND...
  local -a new=(--net --mount --uts --ipc --pid --fork --kill-child --mount-proc)
  [ "$(id -u)" -eq 0 ] || new=(--user --map-root-user "${new[@]}")
  local reason
  if ! reason=$(unshare "${new[@]}" true 2>&1); then
    cannot "this system does not allow the namespaces it needs: run it as root, or allow user namespaces ($reason)"
  fi
  # unshare blocks TERM, so its child is told. Where that cannot be found, all in there is killed.
  pass_on() {
    local children
    children=$(cat "/proc/$2/task/$2/children" 2>/dev/null)
    # shellcheck disable=SC2086  # a list
    kill "-$1" $children 2>/dev/null || kill -KILL "$2"
  }
  # pdeathsig: nothing in there outlives this script, even when it is killed itself.
  supervise setpriv --pdeathsig KILL unshare "${new[@]}" "${BASH_SOURCE[0]}" --inside "$@"
}

PATH=$PATH:/usr/sbin:/sbin
if [ "${1:-}" = --inside ] && [ "$$" -eq 1 ]; then
  shift
  inside "$@"
fi
case "${1:-}" in
  -h | --help)
    usage
    exit 0
    ;;
esac
if [ $# -lt 4 ] || [ "$3" != -- ]; then
  usage >&2
  exit 2
fi
hosts=$1 rate=${2%/s}
shift 3
if ! [[ $hosts =~ ^[1-9][0-9]{0,2}$ ]] || [ "$hosts" -gt 250 ]; then refuse "'$hosts' hosts: give 1 to 250"; fi
[[ $rate =~ ^(0|[0-9]+(\.[0-9]+)?[KMGkmg]?bit)$ ]] || refuse "rate '$rate': give a rate such as 1Gbit or 200Mbit, or 0"
missing=()
for tool in ip tc nsenter unshare setpriv taskset mount hostname; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] || cannot "needs ${missing[*]}: scripts/packages.sh test installs what has them"
outside "$hosts" "$rate" "$@"
