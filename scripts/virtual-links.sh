# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# How fast the links of scripts/virtual-cluster.sh are, which sources it. They take its hosts, rate, latency, trunk, links, profile
# and joined (what delays packets: bridges, netem or switch), and in_host, start_in_host, rack_of, is_rate, delay_by_netem.
# shellcheck disable=SC2154  # those
port=4700 # where hosts answer while links are measured

awk() { LC_ALL=C command awk "$@"; } # numbers with a point, and COMMAND's language left alone

bits() { # RATE
  awk -v r="$1" 'BEGIN { printf "%.0f", r * (r ~ /[Kk]bit/ ? 1e3 : r ~ /[Mm]bit/ ? 1e6 : r ~ /[Gg]bit/ ? 1e9 : 1) }'
}

nanoseconds() { # TIME
  awk -v t="$1" 'BEGIN { printf "%d", t * (t ~ /us$/ ? 1e3 : t ~ /ms$/ ? 1e6 : 1e9) }'
}

# What --link says of two hosts' link, in either order: words, none where it is as usual.
unusual() { # A B
  local link
  for link in $links; do
    case "$link" in "$1-$2":* | "$2-$1":*) echo "${link#*:}" ;; esac
  done
}

expected_rate() { # A B [bit/s]
  local between=$rate what
  if [ "$trunk" != 0 ] && [ "$(rack_of "$1")" != "$(rack_of "$2")" ]; then between=$trunk; fi
  for what in $(unusual "$1" "$2"); do ! is_rate "$what" || between=$what; done
  bits "$between"
}

expected_trip() { # A B [ns]
  local sum what
  sum=$(nanoseconds "${latency:-0us}")
  for what in $(unusual "$1" "$2"); do is_rate "$what" || sum=$((sum + $(nanoseconds "$what"))); done
  echo $((2 * sum))
}

ping_host() { # FROM TO: prints the round trip [ns]
  in_host "$1" "$GRADMETER_VIRTUAL_NETWORK" ping "$prefix.$2" "$port"
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
  wanted=$(expected_trip 1 2)
  delay=$(nanoseconds "$latency")
  for _ in 1 2 3 4; do
    found=$(ping_host 1 2) || return
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
    expected=$(expected_rate "$i" "$next")
    in_host "$i" "$GRADMETER_VIRTUAL_NETWORK" send "$prefix.$next" "$port" "$((expected * milliseconds / 8000))" >"$scratch/rate$i" &
    pids+=($!)
    echo "$expected" >"$scratch/expected$i"
  done
  wait "${pids[@]}"
  for i in $(seq "$hosts"); do paste -d ' ' "$scratch/rate$i" "$scratch/expected$i"; done
}

# Each link that --link names, by itself. Prints what was reached of what was asked for; fails where that is not within 15 %.
measure_unusual() {
  local link a b found expected code=0
  for link in $links; do
    a=${link%%-*} b=${link#*-} b=${b%%:*}
    if is_rate "${link#*:}"; then
      expected=$(expected_rate "$a" "$b")
      found=$(in_host "$a" "$GRADMETER_VIRTUAL_NETWORK" send "$prefix.$b" "$port" $((expected / 16))) || return
      awk -v l="$a-$b" -v f="$found" -v e="$expected" \
        'BEGIN { printf ", link %s %.5g of %.5g Mbit/s", l, f / 1e6, e / 1e6; exit !(f > 0.85 * e && f < 1.05 * e) }' || code=1
    else
      expected=$(expected_trip "$a" "$b")
      found=$(ping_host "$a" "$b") || return
      awk -v l="$a-$b" -v f="$found" -v e="$expected" \
        'BEGIN { printf ", link %s round trip %.5g us of %.5g", l, f / 1e3, e / 1e3; exit !(f > 0.85 * e && f < 1.15 * e + 2e5) }' || code=1
    fi
  done
  return "$code"
}

# Says what was reached. Fails where that is not what was asked for.
calibrate() {
  local i answering=() trip=0 found verdict unusual
  for i in $(seq "$hosts"); do
    start_in_host "$i" "$GRADMETER_VIRTUAL_NETWORK" answer "$port" &
    answering+=($!)
  done
  if [ -n "$latency" ]; then
    trip=$(tune_latency) || return
  else
    trip=$(ping_host 1 2) || return
  fi
  # A machine that is busy for a moment is asked again.
  for _ in 1 2 3; do
    if [ "$rate" = 0 ]; then found=; else found=$(measure_rates "$trip"); fi
    verdict=$(awk -v trip="$trip" -v wanted="$(expected_trip 1 2)" -v rate="$rate" -v by="$joined" -v tuned="${latency:+1}" \
      -v slack="$(awk -v r="$(expected_rate 1 2)" 'BEGIN { print 2e5 + (r > 0 ? 4e12 / r : 0) }')" '
      NF == 2 && $2 > 0 {
        share = $1 / $2
        if (!n++ || share < least) least = share
        if (share > most) most = share
        if (!($2 in slowest) || $1 < slowest[$2]) slowest[$2] = $1
      }
      NF == 1 { missing = 1 }
      END {
        good = wanted > 0 ? trip > wanted * 0.85 && trip < wanted * 1.15 + slack * !tuned : trip < slack
        if (rate != 0) good = good && !missing && n && least > 0.85 && most < 1.05
        printf "%s ", good ? "good" : "bad"
        for (expected in slowest) printf "%.5g of %.5g Mbit/s, ", slowest[expected] / 1e6, expected / 1e6
        printf "with all links busy; round trip %.5g us", trip / 1e3
        if (wanted > 0) printf " of %.5g, by %s", wanted / 1e3, by
      }' <<<"$found")
    unusual=$(measure_unusual) || verdict="bad ${verdict#* }"
    [ "${verdict%% *}" != good ] || break
    sleep 1
  done
  kill "${answering[@]}"
  wait "${answering[@]}" 2>/dev/null
  echo "virtual-cluster: ${profile:+$profile, }$hosts hosts: ${verdict#* }$unusual" >&2
  [ "${verdict%% *}" = good ]
}
