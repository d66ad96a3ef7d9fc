#!/usr/bin/env bash
# Runs every fuzz target of the module for $FUZZTIME (10s), $FUZZERS (2) at a
# time with one worker each: go test takes one target a call. A target's output
# comes when it has ended. All run, also after one has failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export FUZZTIME=${FUZZTIME:-10s}

fuzz() {
  local out status=0
  # Minimizing an interesting input may take a minute, which is not the time
  # that was asked for; a failing input is still minimized.
  out=$(go test "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 5s -parallel 1 2>&1) || status=$?
  printf 'fuzz: %s %s for %s\n%s\n' "$1" "$2" "$FUZZTIME" "$out"
  return "$status"
}
export -f fuzz

files=$(grep -rlE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . | LC_ALL=C sort || true)
for file in $files; do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
    echo "./$(dirname "${file#./}") $target"
  done
done | xargs -P "${FUZZERS:-2}" -L 1 bash -c 'fuzz "$0" "$1"'
