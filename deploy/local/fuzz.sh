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
export -f fuzz only_late

files=$(grep -rlE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . | LC_ALL=C sort || true)
for file in $files; do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
    echo "./$(dirname "${file#./}") $target"
  done
done | xargs -P "${FUZZERS:-2}" -L 1 bash -c 'fuzz "$0" "$1"'
