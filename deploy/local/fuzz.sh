#!/usr/bin/env bash
# Runs every fuzz target of the module for $FUZZTIME (10s), $FUZZERS (2) at a
# time with one worker each. A test binary takes one target a call and is built
# once for all targets of its package. A target's output comes when it has ended.
# All run, also after one has failed. COVERAGE=own is guided by the coverage of this
# module alone, and not by that of all it is built from, which go test -fuzz compiles
# once more for that: five times the CPU of the build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export FUZZTIME=${FUZZTIME:-10s} COVERAGE=${COVERAGE:-all}
dir=$(mktemp -d) corpus=$(go env GOCACHE)/fuzz module=$(go list -m)
export dir corpus module
trap 'rm -rf "$dir"' EXIT

# binary PACKAGE: where its test binary is.
binary() { echo "$dir/${1//\//_}"; }

# build PACKAGE: as go test -fuzz does, but for what lint.sh does, and where coverage
# is counted. libfuzzer is the flag by which go test has it counted.
build() {
  local counted=(-fuzz .)
  [ "$COVERAGE" != own ] || counted=(-gcflags="$module/...=-d=libfuzzer")
  go test -c -vet=off "${counted[@]}" -ldflags='-s -w' -o "$(binary "$1")" "$1"
}

# fuzz PACKAGE TARGET: what it found interesting is kept where go test keeps it.
fuzz() {
  local out status=0
  # Minimizing an interesting input may take a minute, which is not the time
  # that was asked for; a failing input is still minimized.
  out=$(cd "$1" && "$(binary "$1")" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 5s \
    -test.parallel 1 -test.fuzzcachedir "$corpus/$(go list .)" 2>&1) || status=$?
  printf 'fuzz: %s %s for %s\n%s\n' "$1" "$2" "$FUZZTIME" "$out"
  if grep -q 'not built with coverage instrumentation' <<<"$out"; then
    echo "fuzz: $1 $2 was blind: nothing counted its coverage"
    return 1
  fi
  if [ "$status" != 0 ] && only_late "$out"; then
    echo "fuzz: $1 $2 found nothing; that it ended in its last moment is go.dev/issue/75804"
    return 0
  fi
  return "$status"
}

# only_late OUTPUT: the one complaint is that the time was over. Until Go 1.27 the
# coordinator may take the end of -fuzztime for a failure of the target
# (go.dev/issue/75804). A failure that is one comes with its input.
only_late() {
  local complaints
  complaints=$(sed -n '/^--- FAIL/,$p' <<<"$1" | grep -vE '^(--- FAIL: .*|FAIL.*|exit status 1)$')
  [ "$complaints" = '    context deadline exceeded' ]
}
export -f binary build fuzz only_late

files=$(grep -rlE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . | LC_ALL=C sort || true)
targets=$(for file in $files; do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
    echo "./$(dirname "${file#./}") $target"
  done
done)
cut -d ' ' -f 1 <<<"$targets" | uniq | xargs -r -P "${FUZZERS:-2}" -L 1 bash -c 'build "$0"'
xargs -r -P "${FUZZERS:-2}" -L 1 bash -c 'fuzz "$0" "$1"' <<<"$targets"
