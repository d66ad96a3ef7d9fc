#!/usr/bin/env bash
# What `make test` does, one phase after another, with the seconds of each; lint
# works beside them. The first phase that fails ends it with its status.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Where fetch.sh puts promtool.
PATH=$PATH:${PUSHFLEET_CACHE:-$PWD/.cache}/servers/promtool

phases=()
log=$(mktemp) lint_log=$(mktemp) lint=
trap 'end_lint; rm -f "$log" "$log.inside" "$lint_log"' EXIT

# phase NAME COMMAND...
phase() {
  local name=$1 began=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  phases+=("$(printf '%4d s  %s' $((SECONDS - began)) "$name")")
  if [ "$status" != 0 ]; then
    report
    go_test
    echo "== FAILED: $name (exit status $status)"
    failures "$name"
    exit "$status"
  fi
}

report() {
  command -v promtool >/dev/null || echo "== NOT TESTED: whether the alerting rules fire; promtool is missing (deploy/local/fetch.sh --help)"
  [ -w /sys/fs/cgroup/memory ] || [ -w /sys/fs/cgroup/cgroup.procs ] ||
    echo "== NOT TESTED: a worker that the kernel kills for its memory; no memory cgroup can be made here"
  echo "== seconds of each phase"
  printf '   %s\n' "${phases[@]}" "$(printf '%4d s  all' "$SECONDS")"
}

# go_test repeats what go test said, so that it stands at the end of a long log.
go_test() {
  [ -s "$log" ] || return 0
  echo "== go test"
  grep -v 'no test files' "$log" || true
}

# failures says what failed, at the very end: often the last lines are all that is
# kept of a log.
failures() {
  case $1 in
    tests) grep -E '^(FAIL\s|panic:|WARNING: DATA RACE)|--- FAIL|^\s+[a-z0-9_]+_test\.go:[0-9]+:' "$log" | tail -n 20 || true ;;
    gofmt,*) tail -n 20 "$lint_log" ;;
  esac
}

# start_lint: lint.sh works in what the tests leave of the cores, as they wait for
# servers much of the time. A process group of its own can be ended as one.
start_lint() {
  set -m
  nice -n 19 deploy/local/lint.sh >"$lint_log" 2>&1 &
  lint=$!
  set +m
}

# finish_lint waits for it and says what it said.
finish_lint() {
  local status=0
  wait "$lint" || status=$?
  lint=
  cat "$lint_log"
  return "$status"
}

end_lint() {
  [ -z "$lint" ] || kill -- "-$lint" 2>/dev/null || true
}

# Tests that judge workers from outside, in processes of their own: the test
# binary is simulator, producer and accountant. The race detector in it would
# find nothing in a worker and starve what the worker is measured by. It is in
# the workers: endtoend builds them with it.
harness='^github.com/pushfleet/pushfleet/bench/(chaos|endtoend|gateway|mutants|send|worker)$'

# go_tests FLAGS...: the packages on standard input. -count=1: what was found with
# earlier servers says nothing about these. -vet=off: lint.sh has looked at all.
go_tests() {
  local packages
  mapfile -t packages
  [ "${#packages[@]}" = 0 ] ||
    go test "$@" -count=1 -vet=off -timeout "${TIMEOUT:-60m}" "${packages[@]}" 2>&1 | tee -a "$log"
}

# long_first puts the packages first whose tests take minutes: go test begins them in
# this order, and the last one would work alone.
long_first() {
  local packages long='^github.com/pushfleet/pushfleet/(users|kafka|pipeline|cmd/pushctl|dedupe|status)$'
  packages=$(cat)
  printf %s "$packages" | grep -E "$long" || true
  printf %s "$packages" | grep -Ev "$long" || true
}

# from_inside PACKAGES AT_ONCE runs the tests that link what they test. With the race
# detector a collection of garbage is dear, and their heaps are small: at 400 % they take
# 10 to 20 % less CPU.
from_inside() {
  local packages=$1 at_once=$2 status=0
  local -x GOGC=${GOGC:-400}
  echo "-- with -race" && (grep -Ev "$harness" <<<"$packages" || true) | long_first | go_tests -race -p "$at_once" || status=$?
  echo "-- without, where files say so" &&
    deploy/local/raceless.sh -count=1 -vet=off -timeout "${TIMEOUT:-60m}" -p "$at_once" 2>&1 | tee -a "$log" || status=$?
  return "$status"
}

# from_outside PACKAGES AT_ONCE runs those that judge workers from outside, no more than
# two at once: a worker that is starved leaves its group, and repeats.
from_outside() {
  local packages=$1 at_once=$2
  echo "-- of workers from outside" && (grep -E "$harness" <<<"$packages" || true) | go_tests -p $((at_once < 2 ? at_once : 2))
}

# all_tests runs every kind, also when one has failed. Four cores have room for both
# kinds side by side; on two they only take from each other.
all_tests() {
  local packages inside='' status=0 at_once=${P:-2}
  # shellcheck disable=SC2086 # PKG may be several
  packages=$(go list ${PKG:-./...}) || return
  if [ "$(nproc)" -ge 4 ]; then
    set -m # a process group of its own, which can be ended as one
    nice -n 10 bash -c 'set -o pipefail; from_inside "$@"' from_inside "$packages" "$at_once" >"$log.inside" 2>&1 &
    inside=$!
    set +m
    # shellcheck disable=SC2064 # its number as it is now
    trap "kill -- -$inside 2>/dev/null" INT TERM EXIT
  else
    from_inside "$packages" "$at_once" || status=$?
  fi
  from_outside "$packages" "$at_once" || status=$?
  if [ -n "$inside" ]; then
    wait "$inside" || status=$?
    trap - EXIT
    cat "$log.inside"
  fi
  return "$status"
}

tests() {
  export log harness
  export -f go_tests long_first from_inside from_outside all_tests
  bin/servers run -- bash -c 'set -o pipefail; all_tests'
}

# build makes what the tests call, and the archive with which Kafka, which they start
# some thirty times, starts at half the CPU. Without it they test the same.
build() {
  go build -o bin/ ./cmd/... ./deploy/local/servers || return
  bin/servers archive || echo "-- Kafka starts without an archive of its classes"
}

phase "format" deploy/local/format.sh
phase "fetch servers" deploy/local/fetch.sh --tests
phase "build" build
start_lint
phase "fuzz" env COVERAGE=own deploy/local/fuzz.sh
phase "tests" tests
phase "gofmt, vet, staticcheck, govulncheck" finish_lint
report
go_test
