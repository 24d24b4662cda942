# shellcheck shell=bash
# How fast the links of scripts/virtual-cluster.sh are, which sources it. They take its hosts, rate, latency, trunk, profile and
# joined (what delays packets: bridges, netem or switch), and in_host, rack_of, delay_by_netem.
# shellcheck disable=SC2154  # those
port=4700 # where hosts answer while links are measured

bits() { # RATE
  awk -v r="$1" 'BEGIN { printf "%.0f", r * (r ~ /[Kk]bit/ ? 1e3 : r ~ /[Mm]bit/ ? 1e6 : r ~ /[Gg]bit/ ? 1e9 : 1) }'
}

nanoseconds() { # TIME
  awk -v t="$1" 'BEGIN { printf "%d", t * (t ~ /us$/ ? 1e3 : t ~ /ms$/ ? 1e6 : 1e9) }'
}

set_delay() { # NANOSECONDS
  local i
  if [ "$joined" = switch ]; then
    echo "$1" >"$scratch/delay"
  else
    for i in $(seq "$hosts"); do delay_by_netem change "$i" "$rate" "$1" || return; done
  fi
}

# What a packet takes beside the delay is taken off the delay, so that the round trip is what was asked for. Prints it.
tune_latency() {
  local wanted delay found
  wanted=$((2 * $(nanoseconds "$latency")))
  delay=$((wanted / 2))
  for _ in 1 2 3 4; do
    found=$(in_host 1 "$GRADMETER_VIRTUAL_NETWORK" ping "$prefix.2" "$port") || return
    if [ $((found * 100)) -ge $((wanted * 93)) ] && [ $((found * 100)) -le $((wanted * 107)) ]; then break; fi
    delay=$((delay - (found - wanted) / 2))
    [ "$delay" -ge 0 ] || delay=0
    set_delay "$delay" || return
  done
  echo "$found"
}

# All links at once, in both directions: each host sends to the next, for half a second and 50 round trips, in which TCP
# finds its speed. Prints RATE EXPECTED of each [bit/s].
measure_rates() { # NANOSECONDS OF A ROUND TRIP
  local i next expected pids=() milliseconds=$((500 + $1 / 20000))
  for i in $(seq "$hosts"); do
    next=$((i % hosts + 1))
    expected=$(bits "$rate")
    if [ "$trunk" != 0 ] && [ "$(rack_of "$i")" != "$(rack_of "$next")" ]; then expected=$(bits "$trunk"); fi
    in_host "$i" "$GRADMETER_VIRTUAL_NETWORK" send "$prefix.$next" "$port" "$((expected * milliseconds / 8000))" >"$scratch/rate$i" &
    pids+=($!)
    echo "$expected" >"$scratch/expected$i"
  done
  wait "${pids[@]}"
  for i in $(seq "$hosts"); do paste -d ' ' "$scratch/rate$i" "$scratch/expected$i"; done
}

# Says what was reached. Fails where that is not what was asked for.
calibrate() {
  local i answering=() trip=0 found verdict
  for i in $(seq "$hosts"); do
    in_host "$i" "$GRADMETER_VIRTUAL_NETWORK" answer "$port" &
    answering+=($!)
  done
  if [ -n "$latency" ]; then
    trip=$(tune_latency) || return
  else
    trip=$(in_host 1 "$GRADMETER_VIRTUAL_NETWORK" ping "$prefix.2" "$port") || return
  fi
  # A machine that is busy for a moment is asked again.
  for _ in 1 2 3; do
    if [ "$rate" = 0 ]; then found=; else found=$(measure_rates "$trip"); fi
    verdict=$(awk -v trip="$trip" -v wanted="$(nanoseconds "${latency:-0us}")" -v rate="$rate" -v by="$joined" '
      NF == 2 && $2 > 0 {
        share = $1 / $2
        if (!n++ || share < least) least = share
        if (share > most) most = share
        if (!($2 in slowest) || $1 < slowest[$2]) slowest[$2] = $1
      }
      NF == 1 { missing = 1 }
      END {
        good = wanted > 0 ? trip > 2 * wanted * 0.85 && trip < 2 * wanted * 1.15 : trip < 200e3
        if (rate != 0) good = good && !missing && n && least > 0.85 && most < 1.05
        printf "%s ", good ? "good" : "bad"
        for (expected in slowest) printf "%.4g of %.4g Mbit/s, ", slowest[expected] / 1e6, expected / 1e6
        printf "with all links busy; round trip %.4g us", trip / 1e3
        if (wanted > 0) printf " of %.4g, by %s", 2 * wanted / 1e3, by
      }' <<<"$found")
    [ "${verdict%% *}" != good ] || break
  done
  kill "${answering[@]}"
  wait "${answering[@]}" 2>/dev/null
  echo "virtual-cluster: ${profile:+$profile, }$hosts hosts: ${verdict#* }" >&2
  [ "${verdict%% *}" = good ]
}
