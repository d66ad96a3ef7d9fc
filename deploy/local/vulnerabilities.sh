#!/usr/bin/env bash
# Known vulnerabilities in what we call, by govulncheck of go.mod. Its database
# is at vuln.go.dev; PUSHFLEET_VULNDB=URL names a mirror (file:///… too). Where
# it cannot be reached nothing is checked: that is said, and is no failure.
# A vulnerability that is found is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

db=${PUSHFLEET_VULNDB:-https://vuln.go.dev}
status=0
out=$(go tool govulncheck -db "$db" ./... 2>&1) || status=$?
case $status in
  0) exit 0 ;;
  3) printf '%s\nlint: known vulnerabilities: update what is named above\n' "$out" >&2 ;;
  *)
    if grep -q '^govulncheck: fetching vulnerabilities: ' <<<"$out"; then
      echo "lint: NOT CHECKED: known vulnerabilities, as their database cannot be reached ($db)"
      exit 0
    fi
    printf '%s\nlint: govulncheck failed\n' "$out" >&2
    ;;
esac
exit 1
