#!/usr/bin/env bash
# gofmt, go vet and staticcheck over the whole module.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

unformatted=$(find . -name '*.go' -not -path './.*' -print0 | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
  printf 'lint: run gofmt -w on:\n%s\n' "$unformatted" >&2
  exit 1
fi
go vet ./...
go tool staticcheck ./...
