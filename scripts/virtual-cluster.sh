#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command on a cluster that is made for it: virtual hosts joined by links of a chosen rate and latency, on one machine.
# shellcheck disable=SC2317  # pass_on is called by a trap
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/virtual-cluster.sh [--latency TIME] [--trunk RATE] [--link A-B:RATE|TIME]... HOSTS RATE -- COMMAND...
       scripts/virtual-cluster.sh --profile NAME HOSTS -- COMMAND...
       scripts/virtual-cluster.sh test [GRADMETER]
  scripts/virtual-cluster.sh 2 1Gbit -- mpirun -np 2 build/release/gradmeter scale --out two-hosts.jsonl
  scripts/virtual-cluster.sh --profile wan 4 -- mpirun -np 4 build/release/gradmeter allreduce

HOSTS      how many: host1, host2 ... each with a host name and a network of its own
RATE       of each host's link, in each direction: 100Mbit, 1Gbit, 2.5Gbit; 0: as fast as the machine moves bytes
--latency  of a packet from host to host, 50us or 10ms; a round trip takes twice as long. By netem; where the kernel has none
           by a switch in user space (scripts/virtual-network.cpp, which a C++ compiler makes when first needed)
--trunk    puts the first half of the hosts in one rack and the others in another, with one link of this RATE between them
--link     what hosts A and B send each other is held back to RATE each way, or takes TIME longer each way: 2-6:100Mbit 1-3:2ms
--profile  all of these:  1gbe 1Gbit 100us | 2.5gbe 2.5Gbit 50us | 10gbe 10Gbit | wan 200Mbit 10ms
                          two-racks 1Gbit, a trunk of 250Mbit
test       installs what is missing, builds gradmeter unless it is given, and checks clusters and what gradmeter finds on them

With a profile, a latency or a link of its own all links are measured before use, at once, and each such link by itself: rates
and round trips within 15 % of what was asked for, or else the cluster is refused with what was reached. One line on standard
error says it.

COMMAND runs on a head node, inside namespaces that vanish with it: no packet leaves them, nothing is left behind.
mpirun spreads its ranks over the hosts in turn, so as many ranks as hosts are one on each. Each host has its share of this
machine's cores (where there are fewer cores than hosts, hosts share them), and all have its files and its memory: what is
measured there is the link, not more computers.
Where COMMAND runs gradmeter's scale, allreduce, links or replay without --interconnect, it is given one that names these links:
the profile, or RATE, latency, trunk and links, "1Gbit 50us".
In COMMAND's environment:
  OMPI_MCA_*               how Open MPI starts ranks on the hosts and which network it takes; what you have set is kept
  GRADMETER_HOSTS          host1,host2,...
  GRADMETER_RACKS          the rack of each host: 0,0,1,1
  GRADMETER_ENTER_HOST     a program: "$GRADMETER_ENTER_HOST host2 COMMAND..." runs COMMAND there, as ssh would. A host's link
                           is eth0: "$GRADMETER_ENTER_HOST host2 ip link set eth0 down" cuts it

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

# shellcheck source=scripts/virtual-links.sh
. "$(dirname "${BASH_SOURCE[0]}")/virtual-links.sh"

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

# The same in the background, by a process that is the command itself, so that a signal to $! reaches it.
start_in_host() { # NUMBER COMMAND...
  local host=$scratch/host$1
  shift
  exec nsenter --net="$host.net" --uts="$host.uts" -- "$@"
}

# Both ends of a link are shaped, since each end holds back only what leaves there. htb is accurate up to 10 Gbit/s where tbf
# is not; 4 MB of queue hold what senders with large windows send ahead, so that nothing is lost.
shape() { # RATE DEVICE [IN HOST...]
  local rate=$1 device=$2
  shift 2
  [ "$rate" != 0 ] || return 0
  "$@" tc qdisc add dev "$device" root handle 1: htb default 10 &&
    "$@" tc class add dev "$device" parent 1: classid 1:10 htb rate "$rate" burst 64k cburst 64k quantum 60000 &&
    "$@" tc qdisc add dev "$device" parent 1:10 handle 10: bfifo limit 4mb
}

# Delays what leaves a host, below the rate if it has one.
delay_by_netem() { # ACTION NUMBER RATE NANOSECONDS
  local -a place=(root)
  [ "$3" = 0 ] || place=(parent 1:10)
  in_host "$2" tc qdisc "$1" dev eth0 "${place[@]}" handle 20: netem limit 100000 delay "$4ns"
}

add_host() { # NUMBER
  touch "$scratch/host$1.net" "$scratch/host$1.uts" &&
    unshare --net="$scratch/host$1.net" --uts="$scratch/host$1.uts" hostname "host$1" &&
    in_host "$1" ip link set lo up
}

# Its device eth0 is there.
connect_host() { # NUMBER
  in_host "$1" ip addr add "$prefix.$1/24" dev eth0 &&
    in_host "$1" ip link set eth0 txqueuelen 5000 up || return
  # bbr measures a shaped link wrongly: it took a quarter of a fast one.
  in_host "$1" sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control' 2>/dev/null ||
    echo "virtual-cluster: host $1 keeps its congestion control; if that is bbr, rates are too low" >&2
}

rack_of() { # NUMBER
  echo $(($1 * 2 > hosts + 1))
}

# A bridge for each rack, and between them a link like the hosts'.
join_by_bridges() {
  local i rack
  for rack in 0 1; do
    ip link add "bridge$rack" type bridge && ip link set "bridge$rack" up || return
  done
  ip addr add "$prefix.254/24" dev bridge0 && ip link add trunk0 type veth peer name trunk1 || return
  for rack in 0 1; do
    ip link set "trunk$rack" master "bridge$rack" up && shape "$trunk" "trunk$rack" || return
  done
  for i in $(seq "$hosts"); do
    ip link add "port$i" type veth peer name eth0 netns "$scratch/host$i.net" &&
      ip link set "port$i" master "bridge$(rack_of "$i")" up && connect_host "$i" &&
      shape "$rate" eth0 in_host "$i" && shape "$rate" "port$i" || return
    [ -z "$latency" ] || delay_by_netem add "$i" "$rate" "$(nanoseconds "$latency")" || return
  done
}

join_by_switch() {
  local i
  mkfifo "$scratch/delay" || return
  local link unusual=()
  for link in $links; do
    if is_rate "${link#*:}"; then
      unusual+=("${link%:*}:$(bits "${link#*:}"):0")
    else
      unusual+=("${link%:*}:0:$(nanoseconds "${link#*:}")")
    fi
  done
  "$GRADMETER_VIRTUAL_NETWORK" switch "$scratch" "$hosts" "$(bits "$rate")" "$(nanoseconds "${latency:-0us}")" "$(bits "$trunk")" \
    ${unusual[@]+"${unusual[@]}"} <>"$scratch/delay" >"$scratch/switch" &
  until grep -qs ready "$scratch/switch"; do
    kill -0 $! 2>/dev/null || return
    sleep 0.02
  done
  ip addr add "$prefix.254/24" dev eth0 && ip link set eth0 txqueuelen 5000 up || return
  for i in $(seq "$hosts"); do connect_host "$i" && shape "$rate" eth0 in_host "$i" || return; done
}

make_head() {
  local i cores
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mkdir -p "$scratch/tmp" && hostname head && ip link set lo up || return
  {
    cat /etc/hosts
    echo "$prefix.254 head"
    for i in $(seq "$hosts"); do echo "$prefix.$i host$i"; done
  } >"$scratch/hosts"
  for i in $(seq "$hosts"); do
    cores=$(cores_of "$i" "$hosts")
    echo "$cores" >"$scratch/host$i.cores"
    echo "host$i slots=$(tr -cd , <<<"$cores," | wc -c)"
  done >"$scratch/hostfile"
  mount --bind "$scratch/hosts" /etc/hosts
}

# What mpirun takes for ssh: HOST COMMAND...; the words are joined and given to a shell, as ssh does.
write_enter() {
  local briefly=
  [ -z "$GRADMETER_VIRTUAL_NETWORK" ] || briefly="$GRADMETER_VIRTUAL_NETWORK briefly"
  cat >"$scratch/enter" <<SCRIPT
#!/bin/sh
host=$scratch/\$1
shift
exec taskset -c "\$(cat "\$host.cores")" $briefly nsenter --net="\$host.net" --uts="\$host.uts" -- /bin/sh -c "\$*"
SCRIPT
  chmod +x "$scratch/enter"
}

default() { # NAME VALUE: unless it is set
  [ -n "${!1+set}" ] || export "$1=$2"
}

set_environment() {
  # A job of a scheduler outside is none in here.
  unset "${!SLURM_@}" "${!PMIX_@}" PBS_JOBID LSB_JOBID
  local setting i
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
  # mpirun gives a host up that says nothing for 6 s; by itself it would after 8 minutes. Sooner than gradmeter's --timeout: once
  # it ends a job because a rank has failed, it waits for lost hosts for ever.
  default OMPI_MCA_oob_tcp_keepalive_time 3
  default OMPI_MCA_oob_tcp_keepalive_intvl 1
  default OMPI_MCA_oob_tcp_keepalive_probes 3
  # shellcheck source=scripts/environment.sh
  . "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
  GRADMETER_HOSTS=$(seq -s, -f 'host%.0f' "$hosts")
  GRADMETER_RACKS=$(for i in $(seq "$hosts"); do rack_of "$i"; done | paste -sd,)
  export GRADMETER_HOSTS GRADMETER_RACKS GRADMETER_ENTER_HOST=$scratch/enter
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

inside() { # COMMAND...
  local i
  if ! make_head || ! write_enter; then cannot "the head node could not be made (see the line above)"; fi
  for i in $(seq "$hosts"); do add_host "$i" || cannot "host$i could not be made (see the line above)"; done
  joined=bridges
  if [ -n "$links" ]; then
    joined=switch
  elif [ -n "$latency" ]; then
    if tc qdisc add dev lo root netem delay 1ms 2>/dev/null; then
      tc qdisc del dev lo root
      joined=netem
    else
      joined=switch
    fi
  fi
  if [ "$joined" = switch ]; then join_by_switch; else join_by_bridges; fi ||
    cannot "the hosts could not be joined (see the line above); with RATE 0 and no latency no link is shaped"
  if [ -n "$profile$latency$links" ] && [ "$hosts" -gt 1 ]; then
    calibrate || cannot "that is not what was asked for: take fewer hosts, a slower link, or a machine that is less busy"
  fi
  set_environment
  pass_on() { kill "-$1" "$2"; }
  supervise "$@"
}

# Compiles scripts/virtual-network.cpp unless that is done.
make_network_program() {
  local source=${BASH_SOURCE[0]%.sh} folder
  source=${source%virtual-cluster}virtual-network.cpp
  folder=$(dirname "$source")/../build
  if ! mkdir -p "$folder" 2>/dev/null || [ ! -w "$folder" ]; then folder=${XDG_CACHE_HOME:-$HOME/.cache}/gradmeter; fi
  GRADMETER_VIRTUAL_NETWORK=$(realpath -m "$folder/virtual-network")
  export GRADMETER_VIRTUAL_NETWORK
  [ ! "$GRADMETER_VIRTUAL_NETWORK" -nt "$source" ] ||
    [ ! "$GRADMETER_VIRTUAL_NETWORK" -nt "${source%network.cpp}switch.hpp" ] || return 0
  local made=$GRADMETER_VIRTUAL_NETWORK.$$
  mkdir -p "$folder" && "${CXX:-c++}" -std=c++20 -O2 "$source" -o "$made" && mv "$made" "$GRADMETER_VIRTUAL_NETWORK"
}

outside() { # COMMAND...
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
  supervise setpriv --pdeathsig KILL unshare "${new[@]}" "${BASH_SOURCE[0]}" \
    --inside "$hosts" "$rate" "$latency" "$trunk" "$profile" "$links" "$@"
}

# What ctest runs too; from an empty tree on a fresh Debian 12. Fails where one fails, or is skipped.
run_tests() { # [GRADMETER]
  local program=${1:-build/release/gradmeter} mpirun code=0
  if [ -n "$1" ]; then program=$(realpath "$1") || return; fi
  cd "$(dirname "${BASH_SOURCE[0]}")/.." || return
  # shellcheck source=scripts/packages.sh
  . scripts/packages.sh
  # shellcheck source=scripts/environment.sh
  . scripts/environment.sh
  gradmeter_install build test || return
  if [ -z "$1" ]; then
    cmake --preset release && cmake --build --preset release --parallel "$(nproc)" --target gradmeter || return
  fi
  mpirun=$(command -v mpirun) || cannot "there is no mpirun"
  echo "==> clusters"
  tests/scripts/virtual_cluster_test.sh "$(realpath "$program")" "$mpirun" || code=$?
  echo "==> what gradmeter finds on their links"
  tests/scripts/virtual_links_test.py "$(realpath "$program")" "$mpirun" --timed || code=$?
  return "$code"
}

take_profile() { # NAME
  profile=$1
  case "$1" in
    1gbe) rate=1Gbit latency=100us ;;
    2.5gbe) rate=2.5Gbit latency=50us ;;
    10gbe) rate=10Gbit ;;
    wan) rate=200Mbit latency=10ms ;;
    two-racks) rate=1Gbit trunk=250Mbit ;;
    *) refuse "no profile '$1': take 1gbe, 2.5gbe, 10gbe, wan or two-racks" ;;
  esac
}

is_time() { [[ $1 =~ ^[0-9]+(\.[0-9]+)?[um]s$ ]]; }
is_link() { # A-B:WHAT
  [[ $1 =~ ^([1-9][0-9]{0,2})-([1-9][0-9]{0,2}):(.*)$ ]] || return
  local a=${BASH_REMATCH[1]} b=${BASH_REMATCH[2]} what=${BASH_REMATCH[3]}
  [ "$a" -ne "$b" ] && [ "$a" -le "$hosts" ] && [ "$b" -le "$hosts" ] && [ "$what" != 0 ] || return
  is_rate "$what" || is_time "$what"
}
is_rate() { [[ $1 =~ ^(0|[0-9]+(\.[0-9]+)?[KMGkmg]?bit)$ ]]; }

# COMMAND with --interconnect behind gradmeter's subcommand, unless it has one or takes none: rows of one result file that
# were measured on other links must not look alike.
labelled() { # COMMAND... -> the array `command`
  local word label previous=''
  label=${profile:-${rate/#0/unshaped}${latency:+ $latency}}
  [ -n "$profile" ] || [ "$trunk" = 0 ] || label+=" trunk $trunk"
  label+=$links
  command=()
  for word; do
    command+=("$word")
    case "${previous##*/} $word" in
      "gradmeter scale" | "gradmeter allreduce" | "gradmeter links" | "gradmeter replay")
        [[ " $* " = *" --interconnect"[\ =]* ]] || command+=(--interconnect "$label")
        ;;
    esac
    previous=$word
  done
}

PATH=$PATH:/usr/sbin:/sbin
hosts='' rate='' latency='' trunk=0 profile='' links=''
if [ "${1:-}" = --inside ] && [ "$$" -eq 1 ]; then
  hosts=$2 rate=$3 latency=$4 trunk=$5 profile=$6 links=$7
  shift 7
  inside "$@"
fi
while :; do
  case "${1:-}" in
    -h | --help)
      usage
      exit 0
      ;;
    test)
      run_tests "${2:-}"
      exit
      ;;
    --profile | --latency | --trunk | --link)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      case "$1" in
        --profile) take_profile "$2" ;;
        --latency) latency=$2 ;;
        --trunk) trunk=${2%/s} ;;
        --link) links+=" ${2%/s}" ;;
      esac
      shift 2
      ;;
    -*) refuse "unknown option '$1'" ;;
    *) break ;;
  esac
done
hosts=${1:-}
if [ -z "$profile" ]; then
  rate=${2:-}
  rate=${rate%/s}
  shift $(($# < 2 ? $# : 2))
else
  shift $(($# < 1 ? $# : 1))
fi
if [ $# -lt 2 ] || [ "$1" != -- ]; then
  usage >&2
  exit 2
fi
shift
if ! [[ $hosts =~ ^[1-9][0-9]{0,2}$ ]] || [ "$hosts" -gt 250 ]; then refuse "'$hosts' hosts: give 1 to 250"; fi
is_rate "$rate" || refuse "rate '$rate': give a rate such as 1Gbit or 200Mbit, or 0"
is_rate "$trunk" || refuse "trunk '$trunk': give a rate such as 250Mbit, or 0 for none"
for link in $links; do
  is_link "$link" || refuse "link '$link': give two of the $hosts hosts and a rate or a time, such as 1-2:100Mbit or 1-2:2ms"
done
[ -z "$latency" ] || is_time "$latency" || refuse "latency '$latency': give a time such as 50us or 10ms"
if [ "$trunk" != 0 ] && [ "$hosts" -lt 2 ]; then refuse "a trunk joins two racks: give 2 hosts at least"; fi
missing=()
for tool in ip tc nsenter unshare setpriv taskset mount hostname; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] || cannot "needs ${missing[*]}: scripts/packages.sh test installs what has them"
if ! make_network_program 2>/dev/null; then
  [ -z "$profile$latency$links" ] || cannot "profiles, latency and links need a C++ compiler, once (scripts/packages.sh build)"
  GRADMETER_VIRTUAL_NETWORK=
fi
labelled "$@"
outside "${command[@]}"
