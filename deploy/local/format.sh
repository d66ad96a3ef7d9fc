#!/usr/bin/env bash
# Whether every file is as gofmt writes it. It takes a second, so make test asks it
# before anything that takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

unformatted=$(find . -name '*.go' -not -path './.*' -print0 | xargs -0 gofmt -l)
[ -z "$unformatted" ] || {
  printf 'lint: run gofmt -w on:\n%s\n' "$unformatted" >&2
  exit 1
}
