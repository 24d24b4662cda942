#!/usr/bin/env bash
# Usage: virtual_cluster_test.sh GRADMETER MPIRUN. Ends with 77 (skipped) where the system makes no such cluster.
# shellcheck disable=SC2016,SC2317  # what the hosts are to expand; functions called through try
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
cluster=$root/scripts/virtual-cluster.sh
gradmeter=$1 mpirun=$2
bound() { timeout -k 5 40 "$@"; }

for bad in "" "2 1Gbit mpirun" "2 1Gbit --" "0 0 -- true" "x 0 -- true" "251 0 -- true" "2 fast -- true" "2 -1 -- true"; do
  # shellcheck disable=SC2086  # a list of words
  try "$cluster" $bad
  expect_equal "refused: $bad" 2 "$code"
done
try "$cluster" --help
expect_equal "--help ends well" 0 "$code"
expect_contains "--help says how" "virtual-cluster.sh HOSTS RATE -- COMMAND" "$output"

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

try bound "$cluster" 2 0 -- "$mpirun" -np 4 hostname
expect_equal "ranks are spread over the hosts in turn" "host1 host1 host2 host2" \
  "$(grep -x 'host.' <<<"$output" | sort | xargs)"

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
