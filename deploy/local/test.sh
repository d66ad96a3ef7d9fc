#!/usr/bin/env bash
# What `make test` does, one phase after another, with the seconds of each.
# The first phase that fails ends it with its status.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Where fetch.sh puts promtool.
PATH=$PATH:${PUSHFLEET_CACHE:-$PWD/.cache}/servers/promtool

phases=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# phase NAME COMMAND...
phase() {
  local name=$1 began=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  phases+=("$(printf '%4d s  %s' $((SECONDS - began)) "$name")")
  if [ "$status" != 0 ]; then
    report
    echo "== FAILED: $name (exit status $status)"
    go_test
    exit "$status"
  fi
}

report() {
  command -v promtool >/dev/null || echo "== NOT TESTED: whether the alerting rules fire; promtool is missing (deploy/local/fetch.sh --help)"
  echo "== seconds of each phase"
  printf '   %s\n' "${phases[@]}" "$(printf '%4d s  all' "$SECONDS")"
}

# go_test repeats what go test said, so that it stands at the end of a long log.
go_test() {
  [ -s "$log" ] || return 0
  echo "== go test"
  grep -v 'no test files' "$log" || true
}

# -count=1: what was found with earlier servers says nothing about these.
tests() {
  bin/servers run -- go test -race -count=1 -p "${P:-2}" -timeout "${TIMEOUT:-60m}" "${PKG:-./...}" 2>&1 | tee "$log"
}

phase "fetch servers" deploy/local/fetch.sh --tests
phase "build" go build -o bin/ ./cmd/... ./deploy/local/servers
phase "gofmt, vet, staticcheck" deploy/local/lint.sh
phase "fuzz" deploy/local/fuzz.sh
phase "tests" tests
report
go_test
