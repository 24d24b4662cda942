#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
packages=$root/scripts/packages.sh

# Everything is installed, except what $work/missing names; apt-get notes its call and installs.
touch "$work/missing"
stand_in dpkg-query <<END
grep -qx "\${!#}" "$work/missing" && exit 1
echo -n installed
END
stand_in apt-get <<END
echo "apt-get \$*" >>"$work/calls"
[ ! -x "$work/policy" ] || echo "services stay off" >>"$work/calls"
case "\$*" in
  *" install "*) [ -z "\${BROKEN:-}" ] || { echo "E: no such package"; exit 100; } ;;
  *" update") exit "\${UPDATE_CODE:-0}" ;;
esac
END
stand_in id <<<'echo 0'
stand_in systemctl <<<"echo \"systemctl \$*\" >>'$work/calls'"
export GRADMETER_POLICY=$work/policy
calls() { cat "$work/calls" 2>/dev/null; }

try "$packages"
expect_equal "nothing missing: passes" 0 "$code"
expect_equal "nothing missing: says nothing" "" "$output"
expect_equal "nothing missing: apt-get is left alone" "" "$(calls)"

printf 'libfmt-dev\nlibgtest-dev\n' >"$work/missing"
try "$packages" build
expect_equal "a missing package is installed" 0 "$code"
expect_equal "one line says which" "packages: installing 1: libfmt-dev" "$output"
expect_contains "first the lists" " update" "$(calls | head -1)"
expect_contains "then the missing one alone" " install -y --no-install-recommends libfmt-dev" "$(calls)"
expect_equal "no package starts a service meanwhile" "services stay off" "$(calls | tail -1)"
expect_equal "afterwards the system's policy is as it was" "" "$(compgen -G "$work/policy*")"
expect_lacks "another group's package waits" libgtest-dev "$(calls)"

printf 'munge\n' >"$work/missing"
try "$packages" slurm
expect_contains "a service of Slurm does not start at the next boot" "systemctl disable munge" "$(calls)"
expect_lacks "one that was there before is left alone" "systemctl disable slurmd" "$(calls)"
echo "the system's" >"$work/policy"
try "$packages" slurm
expect_equal "a policy of the system stays" "the system's" "$(cat "$work/policy")"
rm "$work/policy"
printf 'libfmt-dev\nlibgtest-dev\n' >"$work/missing"

BROKEN=1 try "$packages"
expect_equal "a failed installation fails" 1 "$code"
expect_contains "apt-get's reason is shown" "E: no such package" "$output"
expect_contains "what to do is said" "install these yourself" "$output"

UPDATE_CODE=100 try "$packages"
expect_equal "one broken source does not stop the installation" 0 "$code"

stand_in id <<<'echo 1000'
stand_in sudo <<END
echo "sudo \$*" >>"$work/calls"
END
rm "$work/calls"
try "$packages" test
expect_contains "not root: through sudo" "sudo env DEBIAN_FRONTEND=noninteractive apt-get" "$(calls)"

# A path of links to just what the script needs, without sudo.
mkdir "$work/few"
for tool in bash cat grep mktemp tail rm env; do ln -s "$(command -v "$tool")" "$work/few/$tool"; done
for tool in id dpkg-query; do ln -s "$work/bin/$tool" "$work/few/$tool"; done
try env PATH="$work/few" bash "$packages" test
expect_equal "no root and no sudo: fails" 1 "$code"
expect_equal "no root and no sudo: one line says what to install" \
  "packages: this needs root once: apt-get install libgtest-dev" "$output"
rm "$work/few/dpkg-query"
try env PATH="$work/few" bash "$packages" test
expect_equal "no dpkg: CMake decides" 0 "$code"

try "$packages" cellar
expect_equal "an unknown group is refused" 2 "$code"
try "$packages" --list build
expect_contains "the list is printed" $'libopenmpi-dev\nopenmpi-bin' "$output"
finish
