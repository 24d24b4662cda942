#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: virtual_cluster_test.sh GRADMETER MPIRUN. Ends with 77 (skipped) where the system makes no such cluster.
# shellcheck disable=SC2016,SC2317  # what the hosts are to expand; functions called through try
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
cluster=$root/scripts/virtual-cluster.sh
gradmeter=$1 mpirun=$2
bound() { timeout -k 5 60 "$@"; }

# A cluster that is measured before use, some times: a machine may be too busy for it. Fails, and says so, where it stays that.
measured() { # ARGUMENTS...
  local pause
  for pause in 0 3 10; do
    sleep "$pause"
    try bound "$cluster" "$@"
    [ "$code" -eq 69 ] || return 0
  done
  echo "not checked here: virtual-cluster.sh $*: $output"
  return 1
}

for bad in "" "2 1Gbit mpirun" "2 1Gbit --" "0 0 -- true" "x 0 -- true" "251 0 -- true" "2 fast -- true" "2 -1 -- true" \
  "--profile fast 2 -- true" "--profile" "--profile wan 2 1Gbit -- true" "--latency 3 2 0 -- true" "--trunk 3 2 0 -- true" \
  "--trunk 1Gbit 1 0 -- true" "--slow 2 0 -- true" "--link 1-3:1ms 2 0 -- true" "--link 1-1:1ms 2 0 -- true" \
  "--link 1-2:soon 2 0 -- true" "--link 1-2 2 0 -- true" "--link"; do
  # shellcheck disable=SC2086  # a list of words
  try "$cluster" $bad
  expect_equal "refused: $bad" 2 "$code"
done
try "$cluster" --help
expect_equal "--help ends well" 0 "$code"
expect_contains "--help says how" "virtual-cluster.sh [--latency TIME] [--trunk RATE] [--link A-B:RATE|TIME]... HOSTS RATE -- COMMAND" "$output"

mkdir "$work/few"
for tool in bash id env; do ln -s "$(command -v "$tool")" "$work/few/$tool"; done
if [ ! -e /usr/sbin/tc ] && [ ! -e /sbin/tc ]; then
  try env PATH="$work/few" bash "$cluster" 2 0 -- true
  expect_contains "what is missing is named" "scripts/packages.sh test" "$output"
fi

try bound "$cluster" 2 200Mbit -- true
if [ "$code" -eq 69 ]; then
  echo "skipped: $output"
  [ "$failures" -eq 0 ] || finish
  exit 77
fi
expect_equal "a cluster comes and goes" "0 " "$code $output"

before=$(readlink /proc/self/ns/net)
try bound "$cluster" 2 0 -- bash -c 'hostname; readlink /proc/self/ns/net; ls /sys/class/net >/dev/null; exit 7'
expect_equal "COMMAND's exit code" 7 "$code"
expect_contains "COMMAND runs on the head node" head "$output"
expect_lacks "its network is not the machine's" "$before" "$output"
try bound "$cluster" 3 0 -- bash -c 'echo $GRADMETER_HOSTS; $GRADMETER_ENTER_HOST host2 hostname "&&" ip route'
expect_contains "the hosts are named" "host1,host2,host3" "$output"
expect_contains "a host can be entered" $'\nhost2\n' "$output"
expect_lacks "no way leads out" default "$output"

for given in "2 0:mpirun -np 2 a/gradmeter scale --batch 4:mpirun -np 2 a/gradmeter scale --interconnect unshaped --batch 4" \
  "2 10Gbit:gradmeter links:gradmeter links --interconnect 10Gbit" "--trunk 1Gbit 2 10Gbit:gradmeter replay t:gradmeter replay --interconnect 10Gbit trunk 1Gbit t" \
  "2 0:gradmeter allreduce --interconnect=mine:gradmeter allreduce --interconnect=mine" \
  "2 0:gradmeter scale --batch 4 --interconnect mine:gradmeter scale --batch 4 --interconnect mine" "2 0:gradmeter train:gradmeter train"; do
  IFS=: read -r links asked run <<<"$given"
  # shellcheck disable=SC2086  # lists of words
  try bound "$cluster" $links -- echo $asked
  expect_equal "rows name the links: $asked" "0 $run" "$code $output"
done

try bound "$cluster" 2 0 -- "$mpirun" -np 4 hostname
expect_equal "ranks are spread over the hosts in turn" "host1 host1 host2 host2" \
  "$(grep -x 'host.' <<<"$output" | sort | xargs)"

# A link of a host can be cut.
try bound "$cluster" 2 0 -- bash -c 'reach() { $GRADMETER_ENTER_HOST host1 "timeout 1 bash -c \"exec 3<>/dev/tcp/10.77.0.2/9\""; }
  reach; echo before $?; $GRADMETER_ENTER_HOST host2 ip link set eth0 down; reach; echo after $?'
expect_contains "a port without a server refuses at once" "before 1" "$output"
expect_contains "a host whose link is cut says nothing" "after 124" "$output"

# Profiles and latencies are measured before they are used.
if measured --profile two-racks 4 -- bash -c 'echo racks $GRADMETER_RACKS'; then
  expect_equal "two racks are what they say" 0 "$code"
  expect_contains "and the rate through the trunk is told" "of 250 Mbit/s, " "$output"
  expect_contains "the racks are named" "racks 0,0,1,1" "$output"
fi
if measured --latency 2ms --trunk 10Mbit 3 20Mbit -- bash -c 'echo racks $GRADMETER_RACKS'; then
  expect_equal "latency and a trunk together" 0 "$code"
  expect_contains "a round trip is twice the latency" "us of 4000, by" "$output"
  expect_contains "the odd host is in the first rack" "racks 0,0,1" "$output"
fi
if measured --latency 20ms 2 5Mbit -- bash -c 'tr "\0" " " < <(cat /proc/[0-9]*/cmdline)'; then
  expect_contains "the processes of a cluster" virtual-cluster.sh "$output"
  expect_lacks "what answered while it was measured has ended" " answer " "$output"
fi
if measured --link 2-1:5Mbit --link 2-3:8ms 3 20Mbit -- echo COMMAND runs; then
  expect_equal "links of their own" 0 "$code"
  expect_contains "are measured: a rate" "link 2-1 4." "$output"
  expect_contains "and a latency" "us of 16000" "$output"
fi
tc=$(PATH=$PATH:/usr/sbin:/sbin command -v tc)
# Without the queue that holds a rate, links are faster than they say.
stand_in tc <<END
[[ "\$*" != *htb*  && "\$*" != *bfifo* ]] || exit 0
exec $tc "\$@"
END
try bound "$cluster" --profile two-racks 2 -- echo COMMAND runs
expect_equal "a profile that is not what it says is refused" 69 "$code"
expect_contains "with what was reached" "of 250 Mbit/s, " "$output"
expect_lacks "before COMMAND" "COMMAND runs" "$output"
# A kernel with netem is asked for it, and what it does is measured too.
stand_in tc <<END
[[ "\$*" != *netem* ]] || { echo "tc \$*" >>"$work/netem"; exit 0; }
exec $tc "\$@"
END
try bound "$cluster" --latency 1ms 2 100Mbit -- true
expect_contains "netem delays what leaves a host, below its rate" \
  "tc qdisc add dev eth0 parent 1:10 handle 20: netem limit 100000 delay 1000000ns" "$(cat "$work/netem")"
expect_contains "and is asked for more where that is too little" \
  "tc qdisc change dev eth0 parent 1:10 handle 20: netem" "$(cat "$work/netem")"
expect_equal "a latency that is not there is refused" 69 "$code"
expect_contains "with the round trip" "us of 2000, by netem" "$output"
rm "$work/bin/tc"

# 4 MiB at 200 Mbit/s are 168 ms. The frames' headers take 3 to 5 %; a machine that is busy takes more.
try bound "$cluster" 2 200Mbit/s -- "$mpirun" -np 2 "$gradmeter" allreduce --sizes 4M --algorithm ring --in-place out -n 3 \
  -w 1 -c 0 --out "$work/sum.jsonl"
expect_equal "an all-reduce between the hosts" 0 "$code"
try bound "$cluster" 2 0 -- "$mpirun" -np 2 "$gradmeter" scale --model mlp:784-32-10 --batch 16 --ranks 2 --strategy sync \
  --algorithm ring --min-samples 3 --precision-goal 0.9 --time-budget 1s --out "$work/scale.jsonl"
expect_equal "a scaling curve over the hosts" 0 "$code"
try python3 - "$work/sum.jsonl" "$work/scale.jsonl" <<'PYTHON'
import json, sys
rows = [[json.loads(line) for line in open(path)] for path in sys.argv[1:]]
points = [[r for r in file if r["kind"] == "point"] for file in rows]
share = points[0][0]["metrics"]["algbw_bytes_per_s"] * 8 / 200e6
print("rate", "right" if 0.6 <= share <= 1.05 else share)
print("nodes", sorted({p["factors"]["nodes"] for p in points[1] if p["factors"]["ranks"] == 2}))
print("hosts", rows[1][0]["hosts"])
PYTHON
expect_contains "the link has the rate that was asked for" "rate right" "$output"
expect_contains "gradmeter sees two nodes" "nodes [2]" "$output"
expect_contains "and their names" "hosts ['host1', 'host2']" "$output"

# Of what a cluster was made of nothing is left, however it ended.
mark=4711.$$
"$cluster" 2 0 -- sleep "$mark" &
told=$!
"$cluster" 2 0 -- "$mpirun" -np 2 sleep "$mark" &
killed=$!
for _ in $(seq 100); do
  [ "$(pgrep -fc "^sleep $mark")" -lt 3 ] || break
  sleep 0.1
done
expect_equal "both run" 3 "$(pgrep -fc "^sleep $mark")"
{ kill -TERM "$told" && wait "$told"; } 2>/dev/null
expect_equal "TERM goes to COMMAND" 143 "$?"
{ kill -KILL "$killed" && wait "$killed"; } 2>/dev/null
for _ in $(seq 50); do
  pgrep -f "^sleep $mark" >/dev/null || break
  sleep 0.1
done
expect_equal "no process is left" "" "$(pgrep -f "^sleep $mark")"
expect_equal "no mount is left" "" "$(grep /dev/shm/cluster /proc/mounts)"
expect_equal "no link is left" "" "$(compgen -G '/sys/class/net/port[0-9]*')"
finish
